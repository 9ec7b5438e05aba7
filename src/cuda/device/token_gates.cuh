// Reads gates and betas of single tokens.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_TOKEN_GATES_CUH_
#define SLUICE_CUDA_DEVICE_TOKEN_GATES_CUH_

#include "cuda/device/gate.cuh"
#include "cuda/device/work_items.cuh"

namespace sluice::cuda::device {

/// log alpha. NUM: float32 whatever the input's type.
__device__ __forceinline__ float log_gate(const PrefillParams& p, const RawGate& raw, float gate) {
  float g = 0.0f;
  if (p.gate_form == GateForm::kLog) {
    g = gate;
  } else if (p.gate_form == GateForm::kLinear) {
    g = logf(gate);
  } else if (device::is_raw(p.gate_form)) {
    g = device::raw_log_gate(p.gate_form, raw, gate);
  }
  // NUM e^-128 is zero in float32, and a lower bound keeps -inf and cancellation out of the sum.
  return g < -128.0f ? -128.0f : g;
}

/// Address of a work item's first scalar.
__device__ __forceinline__ const char* scalar_address(const PrefillParams& p, const TokenScalar& t,
                                                      const WorkItem& item) {
  return static_cast<const char*>(t.data) + item.batch * t.batch_bytes + item.row * t.token_bytes +
         (item.head / p.r) * t.group_bytes + (item.head % p.r) * t.member_bytes;
}

/// Two consecutive tokens' scalars, as far as `left` tokens are left.
__device__ __forceinline__ void fetch_pair(float (&out)[2], const char* at, const TokenScalar& t,
                                           int left) {
  if (left > 0) out[0] = load_number(at, 0, t.number);
  if (left > 1) out[1] = load_number(at + t.token_bytes, 0, t.number);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_TOKEN_GATES_CUH_
