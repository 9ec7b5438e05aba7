// Rows of 16-bit numbers of one type: a group of V/8 lanes has a head of kTokens tokens, all of
// their loads in flight at once and the weights of its columns in registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_WALK_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_WALK_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/gated_norm/rows.cuh"
#include "cuda/ptx/address.cuh"
#include "cuda/ptx/convert.cuh"

namespace sluice::cuda::gated_norm {

/// Eight neighbours of a 16-bit type.
template <Number kType>
struct Eight {
  uint4 words;

  static __device__ __forceinline__ Eight load(const char* at) {
    return {*reinterpret_cast<const uint4*>(at)};
  }
  __device__ __forceinline__ void unpack(float (&out)[kPack]) const {
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kType == Number::kBfloat16) {
        out[2 * i] = __uint_as_float(word[i] << 16);
        out[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
      } else {
        out[2 * i] = device::from_bits(kType, static_cast<unsigned short>(word[i]));
        out[2 * i + 1] = device::from_bits(kType, static_cast<unsigned short>(word[i] >> 16));
      }
    }
  }
  /// Rounds to nearest even.
  static __device__ __forceinline__ void store(char* at, const float (&x)[kPack]) {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word[i] = kType == Number::kBfloat16 ? ptx::pack_bf16(x[2 * i], x[2 * i + 1])
                                           : ptx::pack_f16(x[2 * i], x[2 * i + 1]);
    }
    ptx::store_16(at, {word[0], word[1], word[2], word[3]});
  }
};

/// Sums of kTokens rows over the lanes of a group, the same bits in each of them.
template <int kTokens>
__device__ __forceinline__ void sum_rows(float (&sum)[kTokens], int lanes) {
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    if (mask >= lanes) break;
#pragma unroll
    for (int j = 0; j < kTokens; ++j) sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], mask);
  }
}

template <Number kType>
__device__ __forceinline__ float squares(const Eight<kType>& pack) {
  float x[kPack], sum = 0.0f;
  pack.unpack(x);
#pragma unroll
  for (int i = 0; i < kPack; ++i) sum = fmaf(x[i], x[i], sum);
  return sum;
}

/// @tparam kPlain SiLU and no rounding on the way are known
template <bool kPlain, Number kType>
__device__ __forceinline__ void finish_row(const NormParams& p, const Eight<kType>& packed_x,
                                           const Eight<kType>& packed_z, float factor,
                                           const float (&weight)[kPack], bool live, char* out) {
  float x[kPack], z[kPack];
  packed_x.unpack(x);
  packed_z.unpack(z);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] *= factor;
  if (!kPlain && p.rounding == Rounding::kInputAndNormalised) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = device::rounded(kType, x[i]);
  }
  if (kPlain || p.silu) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) z[i] = device::silu(z[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) z[i] = device::sigmoid(z[i]);
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = live ? x[i] * weight[i] * z[i] : 0.0f;
  Eight<kType>::store(out, x);
}

/// A lane's place in a tensor: of a head's columns at a token.
__device__ __forceinline__ char* place_at(const WalkStrides& strides, const void* data,
                                          uint32_t token, uint32_t head, uint32_t members,
                                          int column) {
  const uint32_t group = head / members, member = head - group * members;
  const int64_t bytes = token * strides.token + group * strides.group + member * strides.member;
  return const_cast<char*>(static_cast<const char*>(data)) + bytes + column * 2;
}

/// The weights of a lane's columns. PERF their type is asked for once, not a number.
__device__ __forceinline__ void load_weights(const HeadScalar& weight, int column,
                                             float (&out)[kPack]) {
  const auto load_all = [&](const auto* data) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      out[i] = device::to_float(__ldg(data + (column + i) * weight.stride));
    }
  };
  if (weight.number == Number::kFloat32) return load_all(static_cast<const float*>(weight.data));
  if (weight.number == Number::kBfloat16) {
    return load_all(static_cast<const __nv_bfloat16*>(weight.data));
  }
  load_all(static_cast<const __half*>(weight.data));
}

/// V / 8 a power of two up to 32; x, z and out of one 16-bit type, tokens evenly spaced.
/// @tparam kTokens 4, or 1 where there are few rows: PERF less code, which is fetched as it runs
template <Number kType, int kTokens>
__global__ void __launch_bounds__(kThreads, 5) walk_kernel(const __grid_constant__ NormParams p) {
  device::follow();
  const Walk& w = p.walk;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto per_cta = static_cast<uint32_t>(kThreads / p.lanes);
  const uint32_t group = blockIdx.x * per_cta + static_cast<uint32_t>(thread / p.lanes);
  const uint32_t tile = group / w.heads, head = group - tile * w.heads, first = tile * kTokens;
  const int column = thread % p.lanes * kPack;
  // Of this group. WHY groups without rows go along: all lanes of a warp take part in a sum.
  const uint32_t tokens = (p.rows - head + w.heads - 1) / w.heads;
  const uint32_t count = first < tokens ? tokens - first : 0;
  const char* x = place_at(w.x, p.x.data, first, head, w.members, column);
  const char* z = place_at(w.z, p.z.data, first, head, w.members, column);
  char* out = place_at(w.out, p.out.data, first, head, w.members, column);
  Eight<kType> packed_x[kTokens] = {}, packed_z[kTokens] = {};
  int kind[kTokens] = {};
  float factor[kTokens], weight[kPack];
#pragma unroll
  for (uint32_t j = 0; j < kTokens; ++j) {
    if (j < count) {
      packed_x[j] = Eight<kType>::load(x), packed_z[j] = Eight<kType>::load(z);
      kind[j] = p.row_kinds == nullptr ? kLiveRow : p.row_kinds[first + j];
    }
    ptx::advance(x, w.x.token);
    ptx::advance(z, w.z.token);
  }
  load_weights(p.weight, column, weight);
#pragma unroll
  for (int j = 0; j < kTokens; ++j) factor[j] = squares(packed_x[j]);
  sum_rows(factor, p.lanes);
#pragma unroll
  for (int j = 0; j < kTokens; ++j) {
    if (kind[j] != kNobodysRow) {
      finish_row<false>(p, packed_x[j], packed_z[j], factor_of(p, factor[j]), weight,
                        kind[j] == kLiveRow, out);
    }
    ptx::advance(out, w.out.token);
  }
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_WALK_CUH_
