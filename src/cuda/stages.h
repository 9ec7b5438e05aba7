// chunk_stage on CUDA: what the core's table points to.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_STAGES_H_
#define SLUICE_CUDA_STAGES_H_

#include "core/backend.hpp"
#include "cuda/device/prefill_params.h"
#include "cuda/kernels/chunk_h/launch.h"
#include "cuda/kernels/chunk_o/launch.h"
#include "cuda/kernels/stages/launch.h"
#include "cuda/select.h"

namespace sluice::cuda {

/// A stage for any of its kernels: no checks, no CUDA calls.
device::StageParams lower_stage(const core::ChunkStageProblem& problem) noexcept;

/// chunk_o that carries its states as a chunk_forward of linear attention; its gates may be sums
/// (lower_linear_stage()).
core::DeltaRuleProblem as_linear_attention(const core::ChunkStageProblem& problem) noexcept;
device::PrefillParams lower_linear_stage(const core::ChunkStageProblem& problem,
                                         const device::CutRequest& split) noexcept;

/// chunk_o from given states for its own kernel; h as if all batch entries were one.
chunk_o::Tiles lower_output_tiles(const core::ChunkStageProblem& problem) noexcept;
/// chunk_h for Hopper's kernel, likewise.
chunk_h::Tiles lower_state_tiles(const core::ChunkStageProblem& problem) noexcept;

enum class StageWay {
  kStage,    ///< kernels/stages
  kLinear,   ///< kernels/linear_attention: chunk_o that carries its states, on Hopper
  kOutputs,  ///< kernels/chunk_o: from given ones, on Hopper
  kStates,   ///< kernels/chunk_h: with w, on Hopper
};

/// What a stage runs.
struct StageChoice {
  StageWay way = StageWay::kStage;
  core::KernelName name = "";
  stages::Kernel kernel{};   ///< of kStage
  device::CutRequest split;  ///< of kLinear
};

/// Whether one of Hopper's own kernels takes a chunk_o or chunk_h of aligned 16-bit rows.
bool choose_hopper(const core::ChunkStageProblem& problem, const Gpu& gpu, const Environment& wish,
                   StageChoice* choice) noexcept;

/// States from those of one batch entry to those of the next; 0: no whole number. 1 without h.
int64_t states_per_batch(const core::ChunkStageProblem& problem) noexcept;

/// Hopper's own kernels, or the one of tensor cores, where sizes, dtypes, strides and the
/// GPU allow it, else the plain one; kUnsupported where none goes: K above 512 in stages that carry
/// a state, GPUs before 8.0.
Status choose_stage_kernel(const core::ChunkStageProblem& problem, const Gpu& gpu,
                           const Environment& wish, StageChoice* choice) noexcept;

Status select_chunk_stage(const core::ChunkStageProblem& problem, core::KernelName* name) noexcept;
/// The segments' states of simple GLA; none otherwise.
size_t chunk_stage_workspace(const core::ChunkStageProblem& problem) noexcept;
/// Enqueues on `stream` of the views' GPU; neither allocates nor waits.
Status run_chunk_stage(const core::ChunkStageProblem& problem, sluice_workspace workspace,
                       void* stream) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_STAGES_H_
