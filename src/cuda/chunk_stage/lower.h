// Lowers stages of the chunk form to what their kernels take: no checks, no CUDA calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_STAGE_LOWER_H_
#define SLUICE_CUDA_CHUNK_STAGE_LOWER_H_

#include "core/problem.hpp"
#include "cuda/device/prefill_params.h"
#include "cuda/device/stage_params.h"
#include "cuda/kernels/chunk_h/launch.h"
#include "cuda/kernels/chunk_o/launch.h"
#include "cuda/kernels/stages/launch.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {

/// Sizes and options of a stage, or of the stages that a delta rule is made of, without views.
/// @param C tokens of a chunk
template <class Problem>
device::StageParams lower_stage_sizes(const Problem& p, int64_t C) noexcept {
  device::StageParams out{};
  out.cu_seqlens = indices_of(p.rows.cu_seqlens);
  out.N = p.rows.N, out.T = p.rows.T;
  out.H = p.H, out.HV = p.HV, out.K = p.K, out.V = p.V, out.r = p.r;
  const bool packed = core::present(p.rows.cu_seqlens);
  out.slots = packed ? p.rows.T / C + p.rows.N : core::chunk_count(p.rows.T, C);
  const bool is_vk = p.state.layout == SLUICE_STATE_VK;
  out.row_step = is_vk ? 1 : p.V;
  out.column_step = is_vk ? p.K : 1;
  out.C = static_cast<int32_t>(C);
  out.columns = device::kColumns;
  out.scale = static_cast<float>(p.scale);
  out.head_map_cyclic = p.head_map == SLUICE_HEAD_MAP_CYCLIC;
  out.repeats = 1;
  return out;
}

/// A stage for any of its kernels.
device::StageParams lower_stage(const core::ChunkStageProblem& problem) noexcept;

/// chunk_cumsum of key-wise gates [B,T,HV,K]: the channels of a head are its heads, HV times.
device::StageParams as_channel_sums(device::StageParams params) noexcept;

/// How chunk_cumsum makes logarithms of its gates.
stages::SumGates lower_sum_gates(const core::ChunkStageProblem& problem) noexcept;

/// chunk_o for Hopper's kernel; h as if all batch entries were one.
chunk_o::MappedTensors lower_output_tensors(const core::ChunkStageProblem& problem) noexcept;
/// chunk_h for Hopper's kernel, likewise.
chunk_h::MappedTensors lower_state_tensors(const core::ChunkStageProblem& problem) noexcept;

/// States from those of one batch entry to those of the next; 0: no whole number. 1 without h.
int64_t states_per_batch(const core::ChunkStageProblem& problem) noexcept;

/// Whether a tensor map can name these rows, wherever they lie.
bool is_mappable(const tile::TokenTensor& rows) noexcept;
/// Whether maps can count so many tokens, and so many states of chunks.
bool are_countable(int64_t tokens, int64_t states) noexcept;

/// chunk_o that carries its states as a chunk_forward of linear attention; its gates may be sums
/// (lower_linear_stage()).
core::DeltaRuleProblem as_linear_attention(const core::ChunkStageProblem& problem) noexcept;
device::PrefillParams lower_linear_stage(const core::ChunkStageProblem& problem,
                                         const device::CutRequest& cut) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_STAGE_LOWER_H_
