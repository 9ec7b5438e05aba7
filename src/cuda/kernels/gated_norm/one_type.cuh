// Normalises rows of one 16-bit type: a lane has eight numbers of a row, and a group of V / 8 lanes
// has the row, or the rows of a head at four tokens, all of their loads in flight at once. PERF code
// that runs once is fetched as it runs, and a launch of as many lanes as there are packs keeps more
// of them in flight than lanes that go from row to row do.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_ONE_TYPE_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_ONE_TYPE_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/device/packs.cuh"
#include "cuda/kernels/gated_norm/rows.cuh"

namespace sluice::cuda::gated_norm {

using device::Pack;

template <Number kType>
__device__ __forceinline__ float squares(const Pack<kType>& pack) {
  float x[kPack], sum = 0.0f;
  pack.unpack(x);
#pragma unroll
  for (int i = 0; i < kPack; ++i) sum = fmaf(x[i], x[i], sum);
  return sum;
}

/// @tparam kOfModels SiLU and no rounding on the way are known
template <bool kOfModels, Number kType>
__device__ __forceinline__ void finish_row(const NormParams& p, const Pack<kType>& packed_x,
                                           const Pack<kType>& packed_z, float factor,
                                           const float (&weight)[kPack], bool live, char* out) {
  float x[kPack], z[kPack];
  packed_x.unpack(x);
  packed_z.unpack(z);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] *= factor;
  if (!kOfModels && p.rounding == Rounding::kInputAndNormalised) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = device::rounded(kType, x[i]);
  }
  if (kOfModels || p.silu) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) z[i] = device::silu(z[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) z[i] = device::sigmoid(z[i]);
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = live ? x[i] * weight[i] * z[i] : 0.0f;
  Pack<kType>::store(out, x);
}

/// A lane's place in a tensor: of a head's columns at a token.
__device__ __forceinline__ char* place_at(const RowStrides& strides, const void* data,
                                          uint32_t token, uint32_t head, uint32_t members,
                                          int column) {
  const uint32_t group = head / members, member = head - group * members;
  const int64_t bytes = token * strides.token + group * strides.group + member * strides.member;
  return const_cast<char*>(static_cast<const char*>(data)) + bytes + column * 2;
}

/// The weights of a lane's columns.
__device__ __forceinline__ void load_weights(const HeadScalar& weight, int column,
                                             float (&out)[kPack]) {
  device::with_type(weight.data, weight.number, [&](const auto* data) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      out[i] = device::to_float(__ldg(data + (column + i) * weight.stride));
    }
  });
}

/// Weights that are packs.
template <Number kType>
__device__ __forceinline__ void load_packed_weights(const HeadScalar& weight, int column,
                                                    float (&out)[kPack]) {
  if (weight.number != Number::kFloat32) {
    const auto* at = static_cast<const char*>(weight.data) + column * 2;
    return Pack<kType>::load(at).unpack(out);
  }
  const auto* at = reinterpret_cast<const uint4*>(static_cast<const float*>(weight.data) + column);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 w = __ldg(at + i);
    out[4 * i] = __uint_as_float(w.x), out[4 * i + 1] = __uint_as_float(w.y);
    out[4 * i + 2] = __uint_as_float(w.z), out[4 * i + 3] = __uint_as_float(w.w);
  }
}

/// Rows that are one evenly spaced axis, in the form of models: V of 128 or 256, SiLU, weights that
/// are packs. Nothing is looked up or divided.
/// @tparam kLanes of a row; strides of members are those of rows
template <Number kType, int kLanes>
__global__ void __launch_bounds__(kThreads) one_axis_kernel(const __grid_constant__ NormParams p) {
  device::follow();
  const uint32_t row = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
  const auto column = static_cast<int>(threadIdx.x % kLanes) * kPack;
  const bool live = row < p.spaced.rows;  // WHY no return: all lanes of a warp take part in a sum
  const auto at = [&](const void* data, const RowStrides& strides) {
    return const_cast<char*>(static_cast<const char*>(data)) + row * strides.member + column * 2;
  };
  Pack<kType> x{}, z{};
  if (live) {
    x = Pack<kType>::load_written(at(p.x.data, p.spaced.x));
    z = Pack<kType>::load_written(at(p.z.data, p.spaced.z));
  }
  float weight[kPack], sum[1] = {squares(x)};
  load_packed_weights<kType>(p.weight, column, weight);
  sum_over_group(sum, kLanes);
  if (!live) return;
  finish_row<true>(p, x, z, factor_of(p, sum[0]), weight, true, at(p.out.data, p.spaced.out));
}

/// Rows of tokens that are evenly spaced: V / 8 a power of two up to 32, strides that differ between
/// x, z and out, a layer's padding, any rounding.
/// @tparam kTokens of a group of lanes: 4, or 1 where there are few rows
template <Number kType, int kTokens>
__global__ void __launch_bounds__(kThreads, 5)
    token_rows_kernel(const __grid_constant__ NormParams p) {
  device::follow();
  const SpacedRows& s = p.spaced;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto per_cta = static_cast<uint32_t>(kThreads / p.lanes);
  const uint32_t group = blockIdx.x * per_cta + static_cast<uint32_t>(thread / p.lanes);
  const uint32_t block = group / s.heads, head = group - block * s.heads, first = block * kTokens;
  const int column = thread % p.lanes * kPack;
  // WHY groups without rows go along: all lanes of a warp take part in a sum.
  const uint32_t tokens = (s.rows - head + s.heads - 1) / s.heads;
  const uint32_t count = first < tokens ? tokens - first : 0;
  const char* x = place_at(s.x, p.x.data, first, head, s.members, column);
  const char* z = place_at(s.z, p.z.data, first, head, s.members, column);
  char* out = place_at(s.out, p.out.data, first, head, s.members, column);
  Pack<kType> packed_x[kTokens] = {}, packed_z[kTokens] = {};
  int kind[kTokens] = {};
  float sum[kTokens], weight[kPack];
#pragma unroll
  for (uint32_t j = 0; j < kTokens; ++j) {
    if (j < count) {
      packed_x[j] = Pack<kType>::load_written(x), packed_z[j] = Pack<kType>::load_written(z);
      kind[j] = p.row_kinds == nullptr ? kLiveRow : p.row_kinds[first + j];
    }
    ptx::advance(x, s.x.token), ptx::advance(z, s.z.token);
  }
  load_weights(p.weight, column, weight);
#pragma unroll
  for (int j = 0; j < kTokens; ++j) sum[j] = squares(packed_x[j]);
  sum_over_group(sum, p.lanes);
#pragma unroll
  for (int j = 0; j < kTokens; ++j) {
    if (kind[j] != kNobodysRow) {
      finish_row<false>(p, packed_x[j], packed_z[j], factor_of(p, sum[j]), weight,
                        kind[j] == kLiveRow, out);
    }
    ptx::advance(out, s.out.token);
  }
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_ONE_TYPE_CUH_
