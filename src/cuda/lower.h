// Old names of what chunk_forward/lower.h does, for operators that have no catalogue yet.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_LOWER_H_
#define SLUICE_CUDA_LOWER_H_

#include "cuda/chunk_forward/lower.h"

namespace sluice::cuda {

inline device::PrefillParams lower_fused(const core::DeltaRuleProblem& problem,
                                         const device::CutRequest& cut) noexcept {
  return lower_prefill(problem, cut);
}

namespace prefill {
inline int launch(PrefillParams params, const Tiles& tiles, void* workspace, int device,
                  void* stream) noexcept {
  const Machine machine{device, kHopperCapability, 0, {}};
  Launcher launcher("chunk_forward", machine, stream);
  launch(params, tiles, workspace, launcher);
  return launcher.ok() ? 0 : 1;
}
}  // namespace prefill

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_LOWER_H_
