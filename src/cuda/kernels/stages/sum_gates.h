// Describes what chunk_cumsum makes logarithms of gates with: a POD, passed as a __grid_constant__.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_SUM_GATES_H_
#define SLUICE_CUDA_KERNELS_STAGES_SUM_GATES_H_

#include "cuda/device/views.h"

namespace sluice::cuda::stages {

struct SumGates {
  device::GateForm form = device::GateForm::kLog;
  device::HeadScalar A_log{}, dt_bias{};  ///< of raw gates, either may be null
};

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_SUM_GATES_H_
