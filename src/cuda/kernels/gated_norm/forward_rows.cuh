// Normalises rows, norm before gate: packs of one 16-bit type, which is what models have, or any form.
//
// Math      out = x rsqrt(mean(x^2) + eps) * weight * act(z) over rows of V, in float32
// Roles     packs: a lane has eight numbers of a row, and a group of V / 8 lanes has the row, or the
//           rows of a head at four tokens. Any form: a warp has a row of any V, types, alignment and
//           strides, of which a lane has NormParams::lane_numbers side by side at a time.
// Pipeline  packs: all loads of a lane are in flight at once. PERF code that runs once is fetched as
//           it runs, and a launch of as many lanes as there are packs keeps more of them in flight
//           than lanes that go from row to row do. Any form: none; the sum over a row is one
//           butterfly of shuffles within a warp.
// Memory    registers only. In any form x is read twice. In place (out is x's memory) every number is
//           read before it is written, by the lane that writes it, and the shuffles of the sum stand
//           between the first reading and the writing.
// Floor     docs/kernels/layer.md
// Rejected  docs/kernels/layer.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_FORWARD_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_FORWARD_ROWS_CUH_

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
__device__ __forceinline__ char* place_at(const RowStrides& strides, void* data, uint32_t token,
                                          uint32_t head, uint32_t members, int column) {
  const uint32_t group = head / members, member = head - group * members;
  const int64_t bytes = token * strides.token + group * strides.group + member * strides.member;
  return static_cast<char*>(data) + bytes + column * 2;
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
  const auto at = [&](void* data, const RowStrides& strides) {
    return static_cast<char*>(data) + row * strides.member + column * 2;
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
  RowKind kind[kTokens] = {};
  float sum[kTokens], weight[kPack];
#pragma unroll
  for (uint32_t j = 0; j < kTokens; ++j) {
    if (j < count) {
      packed_x[j] = Pack<kType>::load_written(x), packed_z[j] = Pack<kType>::load_written(z);
      kind[j] = p.row_kinds == nullptr ? RowKind::kLive : p.row_kinds[first + j];
    }
    ptx::advance(x, s.x.token), ptx::advance(z, s.z.token);
  }
  load_weights(p.weight, column, weight);
#pragma unroll
  for (int j = 0; j < kTokens; ++j) sum[j] = squares(packed_x[j]);
  sum_over_group(sum, p.lanes);
#pragma unroll
  for (int j = 0; j < kTokens; ++j) {
    if (kind[j] != RowKind::kNobodys) {
      finish_row<false>(p, packed_x[j], packed_z[j], factor_of(p, sum[j]), weight,
                        kind[j] == RowKind::kLive, out);
    }
    ptx::advance(out, s.out.token);
  }
}

/// Calls visit(column) for the lane's numbers of a row, in ascending order.
template <class Visit>
__device__ __forceinline__ void for_lane_columns(const NormParams& p, int lane,
                                                 const Visit& visit) {
  for (int64_t base = lane * p.lane_numbers; base < p.V; base += 32 * p.lane_numbers) {
    for (int64_t j = base; j < base + p.lane_numbers; ++j) visit(j);
  }
}

__device__ __forceinline__ void norm_row(const NormParams& p, const Place& place, RowKind kind,
                                         int lane) {
  const int64_t x_at = place.in(p.x), z_at = place.in(p.z), out_at = place.in(p.out);
  float squares[1] = {};
  for_lane_columns(p, lane, [&](int64_t j) {
    const float x = norm_input(p, device::load_written(p.x.data, x_at + j, p.x.number));
    squares[0] = fmaf(x, x, squares[0]);
  });
  sum_over_group(squares, 32);
  const float factor = factor_of(p, squares[0]);
  for_lane_columns(p, lane, [&](int64_t j) {
    const float x = device::load_written(p.x.data, x_at + j, p.x.number);
    if (p.copy.data != nullptr) {
      device::store_number(p.copy.data, place.in(p.copy) + j, p.copy.number, x);
    }
    // WHY a choice: a padded row is zeros whatever z and the weights hold.
    float y = 0.0f;
    if (kind == RowKind::kLive) {
      const float w = device::load_number(p.weight.data, j * p.weight.stride, p.weight.number);
      const float z = device::load_number(p.z.data, z_at + j, p.z.number);
      y = norm_output(p, norm_input(p, x), factor, w, z);
    }
    device::store_number(p.out.data, out_at + j, p.out.number, y);
  });
}

__global__ void __launch_bounds__(kThreads) any_form_kernel(const __grid_constant__ NormParams p) {
  device::follow();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; row < p.rows; row += step) {
    const Place place = place_of(p, row);
    const RowKind kind = kind_of(p, place);
    if (kind != RowKind::kNobodys) norm_row(p, place, kind, lane);
  }
}

/// Of a 16-bit type, by Form without the first; the last is of V = 256.
template <Number kType>
inline constexpr NormKernel kKernels[] = {token_rows_kernel<kType, 1>, token_rows_kernel<kType, 4>,
                                          one_axis_kernel<kType, 16>, one_axis_kernel<kType, 32>};

inline NormKernel kernel_of(const PlannedNorm& norm) noexcept {
  const NormParams& p = norm.params;
  if (norm.form == Form::kAny) return any_form_kernel;
  const bool wide = norm.form == Form::kOneAxis && p.V == 256;
  const int at = static_cast<int>(norm.form) - 1 + (wide ? 1 : 0);
  return p.x.number == Number::kBfloat16 ? kKernels<Number::kBfloat16>[at]
                                         : kKernels<Number::kFloat16>[at];
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_FORWARD_ROWS_CUH_
