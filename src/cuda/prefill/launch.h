// Old place of chunk_forward/launch.h, for operators that have no catalogue yet.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PREFILL_LAUNCH_H_
#define SLUICE_CUDA_PREFILL_LAUNCH_H_

#include "cuda/lower.h"

#endif  // SLUICE_CUDA_PREFILL_LAUNCH_H_
