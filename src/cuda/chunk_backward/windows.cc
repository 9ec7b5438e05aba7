// Launches the kernels of chunk_backward by tensor cores window by window.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_backward/waves.h"

#include "cuda/chunk_backward/forward_pass.h"
#include "cuda/chunk_backward/lower.h"
#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda {
namespace {

using backward::BackwardParams, backward::ChainPass;
using core::ChunkBackwardProblem, core::DeltaRuleProblem;

/// The launches of one call.
class Windows {
 public:
  Windows(const ChunkBackwardProblem& b, const Waves& waves, void* memory,
          Launcher& launcher) noexcept
      : b_(b),
        p_(b.forward),
        waves_(waves),
        memory_(memory),
        launcher_(launcher),
        count_((p_.rows.T - 1) / waves.window_rows + 1),
        pass_(waves.cut.exists() ? ChainPass::kAll : ChainPass::kWhole) {}

  void run() noexcept {
    const BackwardParams any = window(0, false).params;
    if (any.maxima != nullptr) find_maxima();
    if (waves_.cut.exists()) find_boundaries();
    if (!has_row_gradients(any)) {
      for (int64_t i = count_; i-- > 0;) launch_gradients_of_states(prepared(i, false));
      return;
    }
    for (int64_t i = 0; i + 1 < count_; ++i) launch_states(prepared(i, false), pass_);
    for (int64_t i = count_; i-- > 0;) {
      const Call w = prepared(i, true);
      launch_states(w, pass_);
      launch_gradients_of_states(w);
      backward::launch_gradients(w.params, w.tensors, launcher_);
    }
  }

 private:
  /// What the launches of a window are told.
  struct Call {
    BackwardParams params;
    StageRows rows;
    backward::TileTensors tensors;
  };

  Call window(int64_t number, bool sends) const noexcept {
    Call w{};
    w.params = lower_backward(b_);
    w.params.cut = waves_.cut;
    w.params.window = window_of(waves_, number);
    w.params.window.sends = sends;
    BackwardWorkspace workspace(p_, memory_, w.params.window);
    place_head_sums(p_, 0, workspace, &w.params);
    w.rows = place_tiles(p_, WhichAddresses::kThese, workspace, &w.params);
    place_boundaries(p_, workspace, &w.params);
    place_borders(p_, workspace, &w.params);
    w.params.ready = nullptr;
    w.tensors = tile_tensors(p_, w.params);
    return w;
  }
  /// A window whose rows are ready for the chains.
  Call prepared(int64_t number, bool sends) const noexcept {
    const Call w = window(number, sends);
    backward::launch_prepare(w.params, launcher_);
    launch_rows(p_, w.params, w.rows, launcher_);
    return w;
  }

  void launch_states(const Call& w, ChainPass pass) const noexcept {
    backward::launch_states(w.params, w.tensors, pass, launcher_);
  }
  void launch_gradients_of_states(const Call& w) const noexcept {
    backward::launch_chain(w.params, w.tensors, pass_, launcher_);
  }

  /// Of all chunks: a sequence has one power of two.
  void find_maxima() const noexcept {
    for (int64_t i = 0; i < count_; ++i) {
      const Call w = window(i, false);
      backward::launch_prepare(w.params, launcher_);
      backward::launch_maxima(w.params, launcher_);
    }
  }
  void find_boundaries() const noexcept {
    for (int64_t i = 0; i < count_; ++i) launch_states(prepared(i, false), ChainPass::kMaps);
    for (int64_t i = count_; i-- > 0;) {
      const Call w = prepared(i, false);
      backward::launch_chain(w.params, w.tensors, ChainPass::kMaps, launcher_);
    }
    backward::launch_fold(window(0, false).params, launcher_);
  }

  const ChunkBackwardProblem& b_;
  const DeltaRuleProblem& p_;
  const Waves& waves_;
  void* memory_;
  Launcher& launcher_;
  int64_t count_;
  ChainPass pass_;
};

}  // namespace

void launch_windows(const ChunkBackwardProblem& b, const Waves& waves, void* memory,
                    Launcher& launcher) noexcept {
  Windows(b, waves, memory, launcher).run();
}

}  // namespace sluice::cuda
