// Lowers chunk_backward to what its kernels take, and lays out what they leave for each other.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_LOWER_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_LOWER_H_

#include <initializer_list>

#include "core/problem.hpp"
#include "cuda/device/stage_params.h"
#include "cuda/kernels/backward/params.h"
#include "cuda/tile/token_map.hpp"
#include "cuda/workspace_layout.h"

namespace sluice::cuda {

/// What all kernels are told; places in the workspace are still null.
backward::BackwardParams lower_backward(const core::ChunkBackwardProblem& problem) noexcept;

/// Dense rows and states of a call's workspace.
class BackwardWorkspace {
 public:
  /// @param base null to count alone
  BackwardWorkspace(const core::DeltaRuleProblem& p, void* base) noexcept : p_(p), layout_(base) {}
  /// What holds the rows of a window's chunks alone, if it exists.
  BackwardWorkspace(const core::DeltaRuleProblem& p, void* base,
                    const backward::Window& window) noexcept
      : p_(p), layout_(base), window_(window) {}

  /// [B,T,heads,columns]; in windows those rows have memory that chunks reach which begin in one.
  device::TokenRows rows(int64_t heads, int64_t columns,
                         device::Number number = device::Number::kFloat32) noexcept;
  /// [B,T,heads] float32, a head's tokens next to each other: kernels have a head's.
  device::TokenRows numbers(int64_t heads) noexcept;
  /// Of all chunks, [B,slots,HV,K,V].
  device::ChunkStates states(int64_t slots, device::Number number) noexcept;
  float* floats(int64_t count) noexcept { return layout_.take<float>(count); }
  size_t bytes() const noexcept { return layout_.bytes(); }

 private:
  void* take(int64_t count, device::Number number) noexcept;

  const core::DeltaRuleProblem& p_;
  WorkspaceLayout layout_;
  backward::Window window_{};
};

/// Rows of the workspace that only the stages of the forward pass know; null where a call has none.
struct StageRows {
  device::TokenRows sums, A, u;
};

/// Whether a call asks for sums over tokens.
inline bool has_head_sums(const backward::BackwardParams& p) noexcept {
  return p.dA_log.data != nullptr || p.ddt_bias.data != nullptr;
}

/// Whether a call asks for more than the gradients of initial states, which need no states themselves.
inline bool has_row_gradients(const backward::BackwardParams& p) noexcept {
  for (const void* data : {p.dq.data, p.dk.data, p.dv.data, p.dgate.data, p.dbeta.data}) {
    if (data != nullptr) return true;
  }
  return has_head_sums(p);
}

/// [B,T,heads,columns] for a map of the copy engine.
tile::TokenTensor mapped_rows(const core::DeltaRuleProblem& problem, const device::TokenRows& rows,
                              int64_t heads, int64_t columns) noexcept;

/// What a layout of the workspace is for.
enum class WhichAddresses {
  kThese,
  kWorst,  ///< those that need the most of it: no row lies where the copy engine can read it
};

/// Gives params their places, for plain kernels and for those of tensor cores.
StageRows place_plain(const core::DeltaRuleProblem& problem, BackwardWorkspace& workspace,
                      backward::BackwardParams* params) noexcept;
StageRows place_tiles(const core::DeltaRuleProblem& problem, WhichAddresses which,
                      BackwardWorkspace& workspace, backward::BackwardParams* params) noexcept;
/// What chunks add to sums over tokens, of all batch entries of `all`: `params` is of those from
/// `entry` on. In front of place_tiles(), so that waves of entries leave them in one place.
void place_head_sums(const core::DeltaRuleProblem& all, int64_t entry, BackwardWorkspace& workspace,
                     backward::BackwardParams* params) noexcept;
/// What lies at the boundaries of `params->cut`; behind place_tiles(). K is V.
void place_boundaries(const core::DeltaRuleProblem& problem, BackwardWorkspace& workspace,
                      backward::BackwardParams* params) noexcept;
/// What lies at the borders of windows like `params->window`; behind place_boundaries().
void place_borders(const core::DeltaRuleProblem& problem, BackwardWorkspace& workspace,
                   backward::BackwardParams* params) noexcept;

/// chunk_backward with key-wise gates: what its kernels are told, places included.
backward::KeyBackwardParams lower_key_wise(const core::ChunkBackwardProblem& problem,
                                           BackwardWorkspace& workspace) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_LOWER_H_
