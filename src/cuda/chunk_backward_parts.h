// chunk_backward on CUDA: what its two ways, plain kernels and tensor cores, have in common.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_PARTS_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_PARTS_H_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/backend.hpp"
#include "cuda/kernels/backward/launch.h"
#include "cuda/kernels/stages/launch.h"
#include "cuda/select.h"
#include "cuda/stages.h"
#include "cuda/target.h"

namespace sluice::cuda {

/// What both ways are told; places in the workspace are still null.
backward::BackwardParams lower_backward(const core::ChunkBackwardProblem& problem) noexcept;

/// Hands out pieces of the workspace; with a null base it only counts.
class Pieces {
 public:
  Pieces(const core::DeltaRuleProblem& p, void* base) noexcept
      : p_(p), base_(static_cast<std::byte*>(base)) {}

  /// Rows [B,T,heads,columns].
  device::TokenRows rows(int64_t heads, int64_t columns,
                         device::Number number = device::Number::kFloat32) noexcept {
    const int64_t token = heads * columns;
    void* const data = take(p_.rows.B * p_.rows.T * token, number);
    return {data, p_.rows.T * token, token, columns, number};
  }
  /// States of all chunks.
  device::ChunkStates states(int64_t slots, device::Number number) noexcept {
    const int64_t head = p_.K * p_.V, chunk = p_.HV * head;
    const int64_t batches = core::present(p_.rows.cu_seqlens) ? 1 : p_.rows.B;
    void* const data = take(batches * slots * chunk, number);
    return {data, slots * chunk, chunk, head, number};
  }
  size_t bytes() const noexcept { return used_; }

 private:
  void* take(int64_t count, device::Number number) noexcept {
    constexpr size_t kLine = 256;
    const size_t each = number == device::Number::kFloat32 ? 4 : 2;
    void* const at = base_ + used_;
    used_ += (static_cast<size_t>(count) * each + kLine - 1) / kLine * kLine;
    return at;
  }

  const core::DeltaRuleProblem& p_;
  std::byte* base_;
  size_t used_ = 0;
};

/// Launches one after the other until one fails.
class Launches {
 public:
  Launches(const Target& target, void* stream, int error) noexcept
      : target_(target), stream_(stream) {
    note(error);
  }
  void stage(stages::Kernel kernel, const device::StageParams& params) noexcept {
    if (status_.ok()) note(stages::launch(kernel, params, target_, stream_));
  }
  /// A stage by whichever of its kernels takes it.
  void stage(const core::ChunkStageProblem& problem) noexcept {
    if (status_.ok()) status_ = run_chunk_stage(problem, {}, stream_);
  }
  /// Hopper's chunk_h.
  void chain(const device::StageParams& params, const chunk_h::Tiles& tiles,
             int32_t h_per_batch) noexcept {
    if (status_.ok()) note(chunk_h::launch(params, tiles, h_per_batch, target_, stream_));
  }
  void own(backward::Kernel kernel, const backward::BackwardParams& params) noexcept {
    if (status_.ok()) note(backward::launch(kernel, params, target_, stream_));
  }
  const Status& status() const noexcept { return status_; }

 private:
  void note(int error) noexcept {
    if (error == cudaSuccess) return;
    status_ =
        Status::failure(Code::kDeviceError, "chunk_backward: launch = %s, expected cudaSuccess",
                        cudaGetErrorName(static_cast<cudaError_t>(error)));
  }

  const Target& target_;
  void* stream_;
  Status status_ = ok_status();
};

/// Whether tensor cores take the call: Hopper, one 16-bit dtype and aligned rows of q, k, v and
/// d_o, K = V = 128, states in KV.
bool backward_by_tiles(const core::ChunkBackwardProblem& problem, int capability,
                       const Environment& wish) noexcept;
core::KernelName backward_tiles_name(const core::ChunkBackwardProblem& problem) noexcept;
/// Bytes that they need for sizes and dtypes like these; 0 where they never go.
size_t backward_tiles_workspace(const core::ChunkBackwardProblem& problem) noexcept;
/// All but the sums over heads and tokens; gives params their places.
void launch_backward_tiles(const core::ChunkBackwardProblem& problem, const Target& target,
                           Pieces& pieces, backward::BackwardParams* params,
                           Launches* launches) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_PARTS_H_
