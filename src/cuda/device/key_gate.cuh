// Holds the constants of key-wise raw gates, whose dt_bias is [HV,K]; what they do is in gate.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_KEY_GATE_CUH_
#define SLUICE_CUDA_DEVICE_KEY_GATE_CUH_

#include "cuda/device/gate.cuh"

namespace sluice::cuda::device {

/// Those of value head `head` and channel `i`, by params with A_log and dt_bias, either of which may
/// be absent: rate 1, no bias.
template <class Params>
__device__ __forceinline__ RawGate load_key_gate(const Params& p, GateForm form, int64_t head,
                                                 int64_t i) {
  if (!is_raw(form)) return {};
  const auto number = [](const HeadScalar& v, int64_t at) {
    return v.data == nullptr ? 0.0f : load_number(v.data, at, v.number);
  };
  return {-expf(number(p.A_log, head * p.A_log.stride)),
          number(p.dt_bias, head * p.dt_bias.stride + i)};
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_KEY_GATE_CUH_
