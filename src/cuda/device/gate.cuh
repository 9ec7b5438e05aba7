// Decays and write strengths from what the caller calls gate and beta.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_GATE_CUH_
#define SLUICE_CUDA_DEVICE_GATE_CUH_

#include "cuda/device/views.h"

namespace sluice::cuda::device {

/// Per-head constants of raw gates.
struct RawGate {
  float minus_rate = 0, dt_bias = 0;  ///< -exp(A_log), dt_bias
};

/// One token's decay, twice: alpha, and alpha - 1, which keeps its digits where alpha is near 1.
struct Decay {
  float alpha, minus_one;
};

/// The decay of a log gate. NUM: e^-128 is zero in float32; the clamp is that of sluice.h, and NaN
/// passes it.
__device__ __forceinline__ Decay decay_of_log(float g) {
  g = g < -128.0f ? -128.0f : g;
  return {expf(g), expm1f(g)};
}

__device__ __forceinline__ Decay decay_of(GateForm form, const RawGate& raw, float gate) {
  if (form == GateForm::kNone) return {1.0f, 0.0f};
  if (form == GateForm::kLinear) return {gate, gate - 1.0f};
  if (form == GateForm::kLog) return decay_of_log(gate);
  const float x = gate + raw.dt_bias;
  return decay_of_log(raw.minus_rate * (x > 20.0f ? x : log1pf(expf(x))));
}

__device__ __forceinline__ float write_strength(BetaForm form, float factor, float beta) {
  if (form == BetaForm::kNone) return factor;
  return factor * (form == BetaForm::kLogit ? 1.0f / (1.0f + expf(-beta)) : beta);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_GATE_CUH_
