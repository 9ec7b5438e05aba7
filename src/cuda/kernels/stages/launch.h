// Declares the host side of the stage kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_STAGES_LAUNCH_H_

#include "cuda/device/stage_params.h"
#include "cuda/device/views.h"
#include "cuda/launch.h"

namespace sluice::cuda::stages {

using device::StageParams;

/// What chunk_cumsum makes logarithms of gates with: a POD, passed as a __grid_constant__.
struct SumGates {
  device::GateForm form = device::GateForm::kLog;
  device::HeadScalar A_log{}, dt_bias{};  ///< of raw gates, either may be null
};

enum class Kernel {
  kCumsum,
  kSolve,
  kPlainKkt,  ///< the plain ones: any dtype and stride
  kPlainWy,
  kPlainSolveWy,
  kPlainChain,    ///< chunk_h, and chunk_o without h
  kPlainOutputs,  ///< chunk_o with h
  kJoin,          ///< between the passes of simple GLA in segments
  kScaleKeys,     ///< before kKeyStates
  kKkt,           ///< from here on: 16-bit numbers by tensor cores
  kWy,
  kSolveWy,
  kOutputs,
  kStates,
  kKeyStates,  ///< chunk_h of key-wise gates: 32 columns of V, k as kScaleKeys left it
  kGla,
};
constexpr bool is_plain(Kernel kernel) noexcept { return kernel < Kernel::kKkt; }

/// Extents of a launch.
struct Launch {
  int64_t items;  ///< CTAs that have work to do
  int threads;
  int64_t shared_bytes;  ///< dynamic
};
/// Host code, tested without a GPU.
Launch plan_launch(Kernel kernel, const StageParams& params) noexcept;
/// CTAs of a launch. Those of scaled_dot_kkt have several items in a row where there are many:
/// PERF neighbouring heads of the same tokens, whose gates and betas lie in the same sectors of
/// token-first views, which then come from the L1.
int64_t grid_of(Kernel kernel, int64_t items, int multiprocessors) noexcept;

/// StageParams::columns: fewer where sequences and heads are too few for the GPU.
int32_t state_columns(const StageParams& params, int multiprocessors) noexcept;

/// Tokens of a segment of simple GLA by tensor cores; 0: there are sequences and heads enough.
int64_t segment_tokens(const StageParams& params, int multiprocessors) noexcept;
/// Bytes of what the segments add, and of their decays.
int64_t segment_bytes(const StageParams& params, int64_t tokens) noexcept;
/// Cuts sequences, with that memory.
void cut(int64_t tokens, void* memory, StageParams* params) noexcept;

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; nothing is allocated and nothing waits for the device. gates: of kCumsum.
void launch(Kernel kernel, const StageParams& params, Launcher& launcher,
            const SumGates& gates = {}) noexcept;

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_LAUNCH_H_
