// Turns the gates of a layer's head into decays, where each row of a state has a gate of its own.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_GATES_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_GATES_CUH_

#include "cuda/kernels/decode/single/layer_parts.cuh"

namespace sluice::cuda::decode {

/// Decays of a head's rows, which one warp writes and all read.
template <class C, bool kKeyGates = C::kKeyGates>
struct HeadAlphas {
  alignas(16) float alpha[kSingleSize];
};
template <class C>
struct HeadAlphas<C, false> {};

/// A lane's share of the gates of a head's rows: four neighbours. PERF parameters are read once the
/// gates are there, a second trip to the L2 while the other warps convolve: nine registers of every
/// thread would spill where states have 16 bits.
template <class C, bool kKeyGates = C::kKeyGates>
struct HeadGates {
  RawNumber gate[4];

  __device__ __forceinline__ void request(const SingleKeyLayerParams& p, const LayerPlace<C>& at) {
    const char* const gates = moved(moved(p.key_gate.data, at.sequence, p.key_gate.sequence_bytes),
                                    at.head, p.key_gate.head_bytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      gate[i] = request_number(gates, 4 * at.lane + i, p.key_gate.number);
    }
  }
  /// The decays to shared memory.
  __device__ __forceinline__ void settle(const SingleKeyLayerParams& p, const LayerPlace<C>& at,
                                         HeadAlphas<C>* shared) const {
    RawNumber A_log = 0, bias[4] = {};
    if (p.A_log.data != nullptr) {
      const char* const rate = moved(p.A_log.data, at.head, p.A_log.head_bytes);
      A_log = request_number(rate, 0, p.A_log.number);
    }
    if (p.key_bias.data != nullptr) {
      const char* const biases = moved(p.key_bias.data, at.head, p.key_bias.head_bytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bias[i] = request_number(biases, 4 * at.lane + i, p.key_bias.number);
      }
    }
    const float minus_rate = -expf(number_of(p.A_log.number, A_log));
    float alpha[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const device::RawGate raw{minus_rate, number_of(p.key_bias.number, bias[i])};
      alpha[i] =
          closer_alpha(device::decay_of(p.key_form, raw, number_of(p.key_gate.number, gate[i])));
    }
    write_four(&shared->alpha[4 * at.lane], alpha);
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
