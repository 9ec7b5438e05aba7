// Turns a token's gates of rows into decays, where each row of a state has a gate of its own (KDA).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_ROW_GATES_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_ROW_GATES_CUH_

#include "cuda/kernels/decode/single/tile.cuh"
#include "cuda/ptx/lanes.cuh"

namespace sluice::cuda::decode {

/// Decays of a warp's rows, which the CTA's tiles share: they are columns of one head. Behind a
/// warp's decays are its rows of k and of q, where registers do not hold them.
template <class C, bool kKeyGates = C::kKeyGates>
struct SharedAlphas {
  alignas(16) float alpha[C::kWarps][(C::kSharesRows ? 3 : 1) * C::kWarpRows];
};
template <class C>
struct SharedAlphas<C, false> {};

/// A lane's share of the gates of its warp's rows: every 32nd one, of several tiles the next one's
/// behind it. PERF lanes with the same rows would compute the same exponentials: 4 to 128 times as
/// many.
template <class C, bool kKeyGates = C::kKeyGates>
struct RowGates {
  static constexpr int kLanes = 32 * C::kTiles;  ///< that share a warp's rows
  static constexpr int kOwn = (C::kWarpRows + kLanes - 1) / kLanes;
  /// PERF where registers hold the state, parameters are read once the gates are there: a second
  /// trip, to the L2, that other CTAs hide.
  static constexpr bool kLate = C::kCut == SingleCut::kWide || C::kCut == SingleCut::kMany;
  struct Parameters {
    RawNumber A_log, bias[kOwn];
  };
  RawNumber gate[kOwn];
  Parameters early;

  /// Row i of the lane's, of the warp's.
  static __device__ __forceinline__ uint32_t own(const SinglePlace<C>& at, int i) {
    const uint32_t tile = C::kTiles == 1 ? 0 : threadIdx.x / (32 * C::kWarps);
    return at.lane + 32 * tile + kLanes * i;
  }
  static __device__ __forceinline__ bool has(const SinglePlace<C>& at, int i) {
    return C::kWarpRows >= kLanes || own(at, i) < C::kWarpRows;
  }
  static __device__ __forceinline__ uint32_t row(const SinglePlace<C>& at, int i) {
    return at.warp * C::kWarpRows + own(at, i);
  }
  static __device__ __forceinline__ Parameters request_parameters(const SingleKeyParams& p,
                                                                  const SinglePlace<C>& at) {
    Parameters out{};
    if (p.A_log.data != nullptr) {
      const char* const rate = moved(p.A_log.data, at.head, p.A_log.head_bytes);
      out.A_log = request_number(rate, 0, p.A_log.number);
    }
    if (p.key_bias.data == nullptr) return out;
    const char* const biases = moved(p.key_bias.data, at.head, p.key_bias.head_bytes);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (has(at, i)) out.bias[i] = request_number(biases, row(at, i), p.key_bias.number);
    }
    return out;
  }
  __device__ __forceinline__ void request(const SingleKeyParams& p, const SinglePlace<C>& at) {
    const char* const gates = moved(moved(p.key_gate.data, at.token(), p.key_gate.sequence_bytes),
                                    at.head, p.key_gate.head_bytes);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      gate[i] = has(at, i) ? request_number(gates, row(at, i), p.key_gate.number) : 0;
    }
    if constexpr (!kLate) early = request_parameters(p, at);
  }
  /// The decays to shared memory, where `token` finds those of its rows.
  __device__ __forceinline__ void settle(const SingleKeyParams& p, const SinglePlace<C>& at,
                                         SharedAlphas<C>* shared, SingleToken<C>* token) {
    if constexpr (kLate) early = request_parameters(p, at);
    float* const alphas = shared->alpha[C::kTiles == 1 ? threadIdx.x / 32 : at.warp];
    const float minus_rate = -expf(number_of(p.A_log.number, early.A_log));
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!has(at, i)) continue;
      const device::RawGate raw{minus_rate, number_of(p.key_bias.number, early.bias[i])};
      const float g = number_of(p.key_gate.number, gate[i]);
      alphas[own(at, i)] = closer_alpha(device::decay_of(p.key_form, raw, g));
      if constexpr (C::kSharesRows) token->share(alphas + own(at, i));
    }
    token->alpha = alphas + at.lane / C::kRowLanes * C::kRows;
    if constexpr (C::kTiles > 1) {
      // SYNC CTA: the decays are there
      __syncthreads();
    } else {
      // SYNC warp: its rows' decays are there
      __syncwarp();
    }
  }
};

template <class C>
struct RowGates<C, false> {
  template <class... Any>
  __device__ __forceinline__ void request(const Any&...) const {}
  template <class... Any>
  __device__ __forceinline__ void settle(const Any&...) const {}
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_ROW_GATES_CUH_
