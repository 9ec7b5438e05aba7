// Computes decays and write strengths from what the caller calls gate and beta.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_GATE_CUH_
#define SLUICE_CUDA_DEVICE_GATE_CUH_

#include "cuda/device/load.cuh"
#include "cuda/device/views.h"
#include "cuda/ptx/convert.cuh"

namespace sluice::cuda::device {

/// Per-head constants of raw gates.
struct RawGate {
  float minus_rate = 0, dt_bias = 0;  ///< -exp(A_log), dt_bias
};

/// @tparam kBounded false in kernels that get no bounded gates, here and below
template <bool kBounded = true>
__device__ __forceinline__ bool is_bounded(GateForm form) {
  return kBounded && static_cast<int32_t>(form) < 0;
}

template <bool kBounded = true>
__device__ __forceinline__ bool is_raw(GateForm form) {
  return form == GateForm::kRaw || is_bounded<kBounded>(form);
}

/// The constants of value head `head` by params with gate_form, A_log and dt_bias.
template <class Params>
__device__ __forceinline__ RawGate load_raw_gate(const Params& p, int64_t head) {
  if (!is_raw(p.gate_form)) return {};
  const auto number = [&](const HeadScalar& v) {
    return v.data == nullptr ? 0.0f : load_number(v.data, head * v.stride, v.number);
  };
  return {-expf(number(p.A_log)), number(p.dt_bias)};
}

/// Those of key-wise gates, whose dt_bias is [HV,K], for channel `i`. Params have A_log and dt_bias,
/// either of which may be absent: rate 1, no bias.
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

/// g of a raw gate, not yet clamped.
template <bool kBounded = true>
__device__ __forceinline__ float raw_log_gate(GateForm form, const RawGate& raw, float gate) {
  const float x = gate + raw.dt_bias;
  if (is_bounded<kBounded>(form)) {
    // PERF an exact division is 130 instructions in each prefill kernel.
    const float bound = __uint_as_float(static_cast<uint32_t>(form));
    return bound * ptx::reciprocal_fast(1.0f + expf(raw.minus_rate * x));
  }
  return raw.minus_rate * (x > 20.0f ? x : log1pf(expf(x)));
}

/// A log gate as sluice.h has it. NUM: e^-128 is zero in float32, and a lower bound keeps -inf and
/// cancellation out of sums; NaN passes.
__device__ __forceinline__ float clamped_gate(float g) { return g < -128.0f ? -128.0f : g; }

/// log alpha of no gate, a logarithm or alpha itself. NUM: float32 whatever the input's type.
__device__ __forceinline__ float log_gate(GateForm form, float gate) {
  if (form == GateForm::kNone) return 0.0f;
  return clamped_gate(form == GateForm::kLinear ? logf(gate) : gate);
}
/// The same of raw gates too.
__device__ __forceinline__ float log_gate(GateForm form, const RawGate& raw, float gate) {
  return is_raw(form) ? clamped_gate(raw_log_gate(form, raw, gate)) : log_gate(form, gate);
}

/// Derivatives of raw_log_gate(), which is `g`, by the gate and by A_log.
struct RawSlopes {
  float gate, A_log;
};
__device__ __forceinline__ RawSlopes raw_slopes(GateForm form, const RawGate& raw, float gate,
                                                float g) {
  const float x = gate + raw.dt_bias;
  if (is_bounded(form)) {
    const float y = raw.minus_rate * x, slope = g / (1.0f + expf(-y));  // y: minus the argument
    return {-slope * raw.minus_rate, -slope * y};
  }
  return {raw.minus_rate * (x > 20.0f ? 1.0f : 1.0f / (1.0f + expf(-x))), g};
}

/// One token's decay, twice: alpha, and alpha - 1, which keeps its digits where alpha is near 1.
struct Decay {
  float alpha, minus_one;
};

/// The decay of a log gate.
__device__ __forceinline__ Decay decay_of_log(float g) {
  g = clamped_gate(g);
  return {expf(g), expm1f(g)};
}

template <bool kBounded = true>
__device__ __forceinline__ Decay decay_of(GateForm form, const RawGate& raw, float gate) {
  if (form == GateForm::kNone) return {1.0f, 0.0f};
  if (form == GateForm::kLinear) return {gate, gate - 1.0f};
  if (form == GateForm::kLog) return decay_of_log(gate);
  return decay_of_log(raw_log_gate<kBounded>(form, raw, gate));
}

__device__ __forceinline__ float write_strength(BetaForm form, float factor, float beta) {
  if (form == BetaForm::kNone) return factor;
  return factor * (form == BetaForm::kLogit ? 1.0f / (1.0f + expf(-beta)) : beta);
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_GATE_CUH_
