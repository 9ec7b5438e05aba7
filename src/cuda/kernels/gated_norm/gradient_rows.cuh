// Computes gradients of the gated norm, row by row.
//
// Math      docs/math.md section 10: dx = rstd (s - n mean(s n)), n = rstd x, s = d_out act(z) weight
// Roles     packs: V / 8 lanes have a row, eight numbers each, and go through 32 rows; the CTA's
//           groups of lanes have neighbouring rows. Any form: a warp has a row, and goes through 32.
// Pipeline  packs: the next row is asked for before a row's sums; the sums of squares and of s x are
//           one butterfly of shuffles.
// Memory    registers; sums of dweight go to the workspace, of packs once a CTA by shared memory, of
//           any form number by number, each by one lane.
// Floor     x, z, d_out, dx and dz once: docs/kernels/layer.md
// Rejected  atomics for dweight: other bits in every run
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_ROWS_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_ROWS_CUH_

#include "cuda/device/column_sums.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/packs.cuh"
#include "cuda/kernels/gated_norm/launch.h"
#include "cuda/kernels/gated_norm/rows.cuh"

namespace sluice::cuda::gated_norm {

/// The activation of z and its slope.
struct Gate {
  float value, slope;
};

__device__ __forceinline__ Gate gate_of(const NormParams& p, float z) {
  const float s = device::sigmoid(z);
  if (p.silu) return {z * s, fmaf(s * z, 1.0f - s, s)};
  return {s, s * (1.0f - s)};
}

/// Factors of a row: 1 / rms, and the mean of s n.
struct RowFactors {
  float factor, mean;
};

/// @param sums of squares and of s x, each lane's part
__device__ __forceinline__ RowFactors factors_of(const NormParams& p, float (&sums)[2], int lanes) {
  sum_over_group(sums, lanes);
  const float factor = factor_of(p, sums[0]);
  return {factor, factor * sums[1] * p.inverse_V};
}

/// What one number of a row gives.
struct Gradient {
  float dx, dz, dweight;
};

__device__ __forceinline__ Gradient gradient_of(const NormParams& p, const RowFactors& row, float x,
                                                const Gate& gate, float d_out, float weight) {
  const float n = row.factor * x;
  const float used =
      p.rounding == Rounding::kInputAndNormalised ? device::rounded(p.rounded_to, n) : n;
  const float dn = d_out * used;
  return {row.factor * fmaf(-n, row.mean, d_out * gate.value * weight), dn * weight * gate.slope,
          dn * gate.value};
}

/// Moves on by the rows of `step`. PERF no division.
__device__ __forceinline__ void advance(const NormParams& p, const Place& step, Place& place) {
  int64_t carry = 0;
#pragma unroll
  for (int axis = 3; axis > 0; --axis) {
    place.index[axis] += step.index[axis] + carry;
    carry = place.index[axis] >= p.shape[axis] ? 1 : 0;
    if (carry != 0) place.index[axis] -= p.shape[axis];
  }
  place.index[0] += step.index[0] + carry;
}

/// A lane's numbers of a row, as they were loaded.
template <Number kType>
struct PackedRow {
  Place place;
  device::Pack<kType> x, z, d_out;
  bool live;
};

/// Where a lane's numbers of a row lie.
__device__ __forceinline__ char* pack_at(const NormRows& rows, const Place& place, int column) {
  return static_cast<char*>(rows.data) + 2 * (place.in(rows) + column);
}

/// @param inside the row is one, and the lane has numbers of it
template <Number kType>
__device__ __forceinline__ PackedRow<kType> load_row(const NormGradientParams& p,
                                                     const Place& place, int column, bool inside) {
  const NormParams& f = p.forward;
  PackedRow<kType> row{place, {}, {}, {}, false};
  if (!inside) return row;
  row.live = kind_of(f, place) == RowKind::kLive;
  if (!row.live) return row;
  row.x = device::Pack<kType>::load(pack_at(f.x, place, column));
  row.z = device::Pack<kType>::load(pack_at(f.z, place, column));
  row.d_out = device::Pack<kType>::load(pack_at(p.d_out, place, column));
  return row;
}

/// One row of one type; adds to the lane's sums of dweight.
template <Number kType>
__device__ __forceinline__ void pack_row(const NormGradientParams& p, const PackedRow<kType>& row,
                                         int column, const float (&weight)[kPack],
                                         float (&sums)[kPack]) {
  const NormParams& f = p.forward;
  float x[kPack], z[kPack], d_out[kPack], parts[2] = {};
  Gate gate[kPack];
  row.x.unpack(x), row.z.unpack(z), row.d_out.unpack(d_out);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    gate[i] = gate_of(f, z[i]);
    parts[0] = fmaf(x[i], x[i], parts[0]);
    parts[1] = fmaf(d_out[i] * gate[i].value * weight[i], x[i], parts[1]);
  }
  const RowFactors factors = factors_of(f, parts, f.lanes);
  if (!row.live) return;  // WHY not before: all lanes take part in a sum
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const Gradient g = gradient_of(f, factors, x[i], gate[i], d_out[i], weight[i]);
    x[i] = g.dx, z[i] = g.dz, sums[i] += g.dweight;
  }
  if (p.dx.data != nullptr) device::Pack<kType>::store(pack_at(p.dx, row.place, column), x);
  if (p.dz.data != nullptr) device::Pack<kType>::store(pack_at(p.dz, row.place, column), z);
}

/// Rows of packs of one 16-bit type, V a multiple of 8 up to 256.
template <Number kType>
__global__ void __launch_bounds__(kThreads, 4)
    packs_kernel(const __grid_constant__ NormGradientParams p) {
  device::follow();
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto* const shared = reinterpret_cast<float*>(dynamic_shared);  // [groups, 8 lanes]
  const NormParams& f = p.forward;
  const int groups = kThreads / f.lanes, group = static_cast<int>(threadIdx.x) / f.lanes;
  const int column = static_cast<int>(threadIdx.x) % f.lanes * kPack, padded = f.lanes * kPack;
  float weight[kPack] = {}, sums[kPack] = {};
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (column >= f.V) break;
    weight[i] = device::load_number(f.weight.data, (column + i) * f.weight.stride, f.weight.number);
  }
  int64_t row = int64_t{blockIdx.x} * groups * kGroupRows + group;
  const auto inside = [&] { return row < f.rows && column < f.V; };
  const Place step = place_of(f, groups);
  PackedRow<kType> next = load_row<kType>(p, place_of(f, row), column, inside());
#pragma unroll 1
  for (int64_t i = 0; i < kGroupRows; ++i) {
    const PackedRow<kType> now = next;
    Place place = now.place;
    advance(f, step, place), row += groups;
    next = load_row<kType>(p, place, column, i + 1 < kGroupRows && inside());
    pack_row<kType>(p, now, column, weight, sums);
  }
  if (p.sums == nullptr) return;
#pragma unroll
  for (int i = 0; i < kPack; ++i) shared[group * padded + column + i] = sums[i];
  __syncthreads();
  for (int64_t j = threadIdx.x; j < f.V; j += kThreads) {
    float sum = 0.0f;
    for (int g = 0; g < groups; ++g) sum += shared[g * padded + j];
    p.sums[int64_t{blockIdx.x} * f.V + j] = sum;
  }
}

/// One row of any form; adds to the warp's row of sums of dweight.
__device__ __forceinline__ void any_row(const NormGradientParams& p, const Place& place, int lane,
                                        float* sums) {
  const NormParams& f = p.forward;
  const int64_t x_at = place.in(f.x), z_at = place.in(f.z), d_at = place.in(p.d_out);
  const auto weight = [&](int64_t j) {
    return device::load_number(f.weight.data, j * f.weight.stride, f.weight.number);
  };
  float parts[2] = {};
  for (int64_t j = lane; j < f.V; j += 32) {
    const float x = device::load_number(f.x.data, x_at + j, f.x.number);
    const float d_out = device::load_number(p.d_out.data, d_at + j, p.d_out.number);
    const Gate gate = gate_of(f, device::load_number(f.z.data, z_at + j, f.z.number));
    parts[0] = fmaf(x, x, parts[0]);
    parts[1] = fmaf(d_out * gate.value * weight(j), x, parts[1]);
  }
  const RowFactors factors = factors_of(f, parts, 32);
  for (int64_t j = lane; j < f.V; j += 32) {
    const float x = device::load_number(f.x.data, x_at + j, f.x.number);
    const float d_out = device::load_number(p.d_out.data, d_at + j, p.d_out.number);
    const Gate gate = gate_of(f, device::load_number(f.z.data, z_at + j, f.z.number));
    const Gradient g = gradient_of(f, factors, x, gate, d_out, weight(j));
    if (p.dx.data != nullptr) {
      device::store_number(p.dx.data, place.in(p.dx) + j, p.dx.number, g.dx);
    }
    if (p.dz.data != nullptr) {
      device::store_number(p.dz.data, place.in(p.dz) + j, p.dz.number, g.dz);
    }
    if (sums != nullptr) sums[j] += g.dweight;
  }
}

inline __global__ void __launch_bounds__(kThreads)
    any_gradient_kernel(const __grid_constant__ NormGradientParams p) {
  device::follow();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, first = warp * kGroupRows;
  float* const sums = p.sums == nullptr ? nullptr : p.sums + warp * p.forward.V;
  for (int64_t j = lane; sums != nullptr && j < p.forward.V; j += 32) sums[j] = 0.0f;
#pragma unroll 1
  for (int64_t row = first; row < min(first + kGroupRows, p.forward.rows); ++row) {
    const Place place = place_of(p.forward, row);
    if (kind_of(p.forward, place) == RowKind::kLive) any_row(p, place, lane, sums);
  }
}

/// 32 numbers of dweight.
inline __global__ void __launch_bounds__(device::kSumThreads)
    sums_kernel(const __grid_constant__ NormGradientParams p) {
  device::follow();
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  device::add_columns(p.sums, p.sum_rows, p.forward.V, reinterpret_cast<float*>(dynamic_shared),
                      [&](int64_t column, float sum) {
                        device::store_number(p.dweight.data, column * p.dweight.stride[0],
                                             p.dweight.number, sum);
                      });
}

/// By GradientForm, and that of sums.
inline constexpr NormGradientKernel kGradientKernels[] = {
    any_gradient_kernel, packs_kernel<Number::kBfloat16>, packs_kernel<Number::kFloat16>,
    sums_kernel};

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_GRADIENT_ROWS_CUH_
