// Lists the kernels of chunk_backward: tensor cores on Hopper, plain ones elsewhere.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/catalogues.h"
#include "cuda/chunk_backward/cut.h"
#include "cuda/chunk_backward/forward_pass.h"
#include "cuda/chunk_backward/lower.h"
#include "cuda/chunk_backward/waves.h"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/launch.h"
#include "cuda/kernels/stages/launch.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using backward::BackwardParams;
using core::ChunkBackwardProblem, core::DeltaRuleProblem, core::Plan, core::Tensor;
using BackwardKernel = backward::Kernel;

// ---------------------------------------------------------------------------- tensor cores ----

Status accept_tiles(const ChunkBackwardProblem& b, const Machine& machine) noexcept {
  const DeltaRuleProblem& p = b.forward;
  const sluice_dtype io = p.q.dtype;
  const bool size = p.K == backward::kTileSize || 2 * p.K == backward::kTileSize;
  bool takes =
      !core::present(p.key_gate) && machine.is_hopper() && p.rows.T > 0 && size && p.V == p.K;
  for (const Tensor* t : {&p.q, &p.k, &p.v}) {
    takes = takes && t->dtype.bits == 16 && t->dtype.code == io.code;
  }
  // The first launch copies d_o of another type. WHY not to float16: it has not float32's exponents.
  const bool is_bf16 = number_type(io) == device::Number::kBfloat16;
  takes = takes && (number_type(b.d_o.dtype) == number_type(io) || is_bf16);
  return takes ? ok_status() : left_to_others();
}

constexpr const char* kTileSizes[] = {"k64", "k128"};
constexpr const char* kTileSuffixes[] = {"", ".segments"};
constexpr NameTable kTileNames("cuda.chunk_backward.sm_90.", kTypeWords, kTileSizes, kTileSuffixes);

Status plan_tiles(const ChunkBackwardProblem& b, const Machine& machine,
                  const Environment& environment, Plan* plan) noexcept {
  const DeltaRuleProblem& p = b.forward;
  BackwardWorkspace workspace(p, any_workspace());
  BackwardParams params = lower_backward(b);
  place_tiles(p, WhichAddresses::kThese, workspace, &params);
  if (!are_mappable(p, tile_tensors(p, params))) return left_to_others();
  const Waves waves = choose_waves(b, choose_backward_cut(b, machine, environment.cut), machine);
  plan->kernel =
      kTileNames.at(type_index(p.q.dtype), p.K == backward::kTileSize, waves.cut.exists());
  plan->workspace_bytes = waves.bytes;
  plan->keep(waves);
  return ok_status();
}

/// Batch entries from `entry` on of a wave of heads.
void launch_wave(const ChunkBackwardProblem& heads, int64_t entry, const Waves& waves, void* memory,
                 Launcher& launcher) noexcept {
  const int64_t B = heads.forward.rows.B, entries = std::min(waves.entries, B - entry);
  const ChunkBackwardProblem b = entries_of_wave(heads, entry, entries);
  const DeltaRuleProblem& p = b.forward;
  BackwardWorkspace workspace(p, memory);
  BackwardParams params = lower_backward(b);
  params.cut = cut_of_wave(waves.cut, B, entries);
  place_head_sums(heads.forward, entry, workspace, &params);
  const StageRows rows = place_tiles(p, WhichAddresses::kThese, workspace, &params);
  place_boundaries(p, workspace, &params);
  if (!backward::has_early_gradients(params, launcher.machine().multiprocessors)) {
    params.ready = nullptr;
  }
  const backward::TileTensors tensors = tile_tensors(p, params);
  backward::launch_prepare(params, launcher);
  backward::launch_maxima(params, launcher);
  launch_chains(p, params, tensors, rows, launcher);
  if (has_row_gradients(params)) backward::launch_gradients(params, tensors, launcher);
}

/// dA_log and ddt_bias, of what all batch entries have left.
void launch_head_sums(const ChunkBackwardProblem& heads, void* memory,
                      Launcher& launcher) noexcept {
  BackwardWorkspace workspace(heads.forward, memory);
  BackwardParams params = lower_backward(heads);
  place_head_sums(heads.forward, 0, workspace, &params);
  if (params.chunk_sums != nullptr) backward::launch(BackwardKernel::kChunkSums, params, launcher);
}

void launch_tiles(const ChunkBackwardProblem& b, const Plan& plan, void* memory,
                  Launcher& launcher) noexcept {
  const auto waves = plan.kept<Waves>();
  if (waves.window_rows > 0) {
    launch_windows(b, waves, memory, launcher);
    return launch_head_sums(b, memory, launcher);
  }
  for (int64_t number = 0; number * waves.key_heads < b.forward.H; ++number) {
    const ChunkBackwardProblem heads = heads_of_wave(b, number, waves.key_heads);
    for (int64_t entry = 0; entry < heads.forward.rows.B; entry += waves.entries) {
      launch_wave(heads, entry, waves, memory, launcher);
    }
    launch_head_sums(heads, memory, launcher);
  }
}

// ----------------------------------------------------------------------------------- plain ----

Status accept_plain(const ChunkBackwardProblem& b, const Machine& machine) noexcept {
  if (core::present(b.forward.key_gate)) return left_to_others();
  if (const Status s = check_capability("chunk_backward", machine); !s.ok()) return s;
  return check_at_most("chunk_backward", "k.shape[3]", b.forward.K, backward::kMaxK);
}

Status plan_plain(const ChunkBackwardProblem& b, const Machine&, const Environment&,
                  Plan* plan) noexcept {
  BackwardWorkspace workspace(b.forward, nullptr);
  BackwardParams params = lower_backward(b);
  place_plain(b.forward, workspace, &params);
  plan->kernel = "cuda.chunk_backward.plain";
  plan->workspace_bytes = workspace.bytes();
  return ok_status();
}

void launch_plain(const ChunkBackwardProblem& b, const Plan&, void* memory,
                  Launcher& launcher) noexcept {
  BackwardWorkspace workspace(b.forward, memory);
  BackwardParams params = lower_backward(b);
  const StageRows rows = place_plain(b.forward, workspace, &params);
  backward::launch(BackwardKernel::kPrepare, params, launcher);
  launch_forward_plain(params, rows, launcher);
  backward::launch(BackwardKernel::kLocal, params, launcher);
  backward::launch(BackwardKernel::kChain, params, launcher);
  backward::launch(BackwardKernel::kGradients, params, launcher);
  if (params.dq.data != nullptr || params.dk.data != nullptr) {
    backward::launch(BackwardKernel::kKeys, params, launcher);
  }
  if (has_head_sums(params)) backward::launch(BackwardKernel::kHeadSums, params, launcher);
}

// -------------------------------------------------------------------------- key-wise gates ----

Status accept_key_wise(const ChunkBackwardProblem& b, const Machine& machine) noexcept {
  const DeltaRuleProblem& p = b.forward;
  if (!core::present(p.key_gate)) return left_to_others();
  if (const Status s = check_capability("chunk_backward", machine); !s.ok()) return s;
  if (p.K <= backward::kMaxK && p.V <= backward::kKeyMaxV) return ok_status();
  return Status::failure(
      Code::kUnsupported,
      "chunk_backward: K, V = %lld, %lld, expected at most %lld, %lld (CUDA kernels, key-wise "
      "gates)",
      static_cast<long long>(p.K), static_cast<long long>(p.V),
      static_cast<long long>(backward::kMaxK), static_cast<long long>(backward::kKeyMaxV));
}

Status plan_key_wise(const ChunkBackwardProblem& b, const Machine&, const Environment&,
                     Plan* plan) noexcept {
  BackwardWorkspace workspace(b.forward, nullptr);
  lower_key_wise(b, workspace);
  plan->kernel = "cuda.chunk_backward.key_wise";
  plan->workspace_bytes = workspace.bytes();
  return ok_status();
}

void launch_key_wise(const ChunkBackwardProblem& b, const Plan&, void* memory,
                     Launcher& launcher) noexcept {
  BackwardWorkspace workspace(b.forward, memory);
  const backward::KeyBackwardParams params = lower_key_wise(b, workspace);
  backward::launch(BackwardKernel::kPrepare, params.all, launcher);
  backward::launch_key_wise(params, launcher);
  if (params.all.dq.data != nullptr || params.all.dk.data != nullptr) {
    backward::launch(BackwardKernel::kKeys, params.all, launcher);
  }
}

constexpr Kernel<ChunkBackwardProblem> kCatalogue[] = {
    {"chunk_backward.tiles",
     "bfloat16 or float16 by tensor cores: K = V of 64 or 128, compute capability 9.0", Tier::kFast,
     accept_tiles, nullptr, plan_tiles, launch_tiles, load_on_hopper<backward::load_tile_kernels>},
    {"chunk_backward.plain", "every option with K <= 512, compute capability 8.0 or newer",
     Tier::kAny, accept_plain, nullptr, plan_plain, launch_plain,
     [](const Machine&) noexcept { return backward::load_kernels(); }},
    {"chunk_backward.key_wise",
     "key-wise gates: every option with K <= 512 and V <= 2048, compute capability 8.0 or newer",
     Tier::kAny, accept_key_wise, nullptr, plan_key_wise, launch_key_wise, nullptr},
};

}  // namespace

Catalogue<ChunkBackwardProblem> chunk_backward_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
