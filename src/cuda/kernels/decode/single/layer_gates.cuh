// Turns the gates of a layer's head into decays, where each row of a state has a gate of its own.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_GATES_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_GATES_CUH_

#include "cuda/kernels/decode/single/layer_parts.cuh"

namespace sluice::cuda::decode {

/// Decays of a head's rows.
template <class C, bool kKeyGates = C::kKeyGates>
struct HeadAlphas {
  alignas(16) float alpha[kSingleSize];
};
template <class C>
struct HeadAlphas<C, false> {};

/// A lane's share of the gates of its warp's rows: one. PERF parameters are read once the gates are
/// there, a second trip to the L2: registers of every thread that would spill where states have 16
/// bits.
template <class C, bool kKeyGates = C::kKeyGates>
struct HeadGates {
  static_assert(C::kRows <= 32);
  RawNumber gate;

  /// The lane's row of the head; lanes behind the warp's rows repeat them.
  static __device__ __forceinline__ uint32_t row(const LayerPlace<C>& at) {
    return at.row + at.lane % C::kRows;
  }
  __device__ __forceinline__ void request(const SingleKeyLayerParams& p, const LayerPlace<C>& at) {
    const char* const gates = moved(moved(p.key_gate.data, at.sequence, p.key_gate.sequence_bytes),
                                    at.head, p.key_gate.head_bytes);
    gate = request_number(gates, row(at), p.key_gate.number);
  }
  /// The decays to shared memory.
  __device__ __forceinline__ void settle(const SingleKeyLayerParams& p, const LayerPlace<C>& at,
                                         HeadAlphas<C>* shared) const {
    RawNumber A_log = 0, bias = 0;
    if (p.A_log.data != nullptr) {
      const char* const rate = moved(p.A_log.data, at.head, p.A_log.head_bytes);
      A_log = request_number(rate, 0, p.A_log.number);
    }
    if (p.key_bias.data != nullptr) {
      const char* const biases = moved(p.key_bias.data, at.head, p.key_bias.head_bytes);
      bias = request_number(biases, row(at), p.key_bias.number);
    }
    const device::RawGate raw{-expf(number_of(p.A_log.number, A_log)),
                              number_of(p.key_bias.number, bias)};
    const float g = number_of(p.key_gate.number, gate);
    if (at.lane >= C::kRows) return;
    shared->alpha[row(at)] = closer_alpha(device::decay_of(p.key_form, raw, g));
  }
};

template <class C>
struct HeadGates<C, false> {
  template <class... Any>
  __device__ __forceinline__ void request(const Any&...) const {}
  template <class... Any>
  __device__ __forceinline__ void settle(const Any&...) const {}
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_GATES_CUH_
