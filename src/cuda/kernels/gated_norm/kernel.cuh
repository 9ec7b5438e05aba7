// Gated RMSNorm: norm before gate.
//
// Math      out = x rsqrt(mean(x^2) + eps) * weight * act(z) over rows of V, in float32
// Roles     walk (walk.cuh): a group of lanes has a head and goes from token to token.
//           packed: a group of lanes has two rows at a time, each lane eight elements of both.
//           by elements: a warp has a row of any V, alignment and stride.
// Pipeline  none; the sum over a row is one butterfly of shuffles within a warp.
// Memory    registers only. In place (out is x's memory) every element is read before it is
//           written, by the thread that writes it; rows by elements are read twice, and the
//           shuffles of the sum stand between the first reading and the writing.
// Floor     docs/kernels/layer.md
// Rejected  docs/kernels/layer.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_KERNEL_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/gated_norm/rows.cuh"

namespace sluice::cuda::gated_norm {

inline constexpr int kTogether = 2;  ///< rows of a lane group in flight

/// Eight elements at an aligned address: one load of 16 bits each, two of float32. Not converted
/// until used, so that several loads are in flight.
struct Pack {
  uint4 words[2];
};

__device__ __forceinline__ Pack load_pack(const NormRows& rows, int64_t element) {
  Pack pack{};
  if (rows.number == Number::kFloat32) {
    const auto* at = reinterpret_cast<const uint4*>(static_cast<const float*>(rows.data) + element);
    pack.words[0] = at[0], pack.words[1] = at[1];
  } else {
    const auto* data = static_cast<const unsigned short*>(rows.data);
    pack.words[0] = *reinterpret_cast<const uint4*>(data + element);
  }
  return pack;
}

__device__ __forceinline__ void unpack(const Pack& pack, Number number, float (&out)[kPack]) {
  const uint4 a = pack.words[0], b = pack.words[1];
  const uint32_t word[kPack] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const auto bits = static_cast<unsigned short>(word[i / 2] >> (i % 2 * 16));
    out[i] =
        number == Number::kFloat32 ? __uint_as_float(word[i]) : device::from_bits(number, bits);
  }
}

__device__ __forceinline__ void store_pack(const NormRows& rows, int64_t element,
                                           const float (&x)[kPack]) {
  if (rows.number == Number::kFloat32) {
    auto* at = reinterpret_cast<float4*>(static_cast<float*>(rows.data) + element);
    at[0] = {x[0], x[1], x[2], x[3]};
    at[1] = {x[4], x[5], x[6], x[7]};
    return;
  }
  uint32_t word[kPack / 2];
#pragma unroll
  for (int i = 0; i < kPack / 2; ++i) {
    word[i] = device::to_bits(rows.number, x[2 * i]) |
              static_cast<uint32_t>(device::to_bits(rows.number, x[2 * i + 1])) << 16;
  }
  auto* data = static_cast<unsigned short*>(rows.data);
  *reinterpret_cast<uint4*>(data + element) = {word[0], word[1], word[2], word[3]};
}

/// One row's part of a lane, from its loads to its store.
struct LanePart {
  Pack x, z;
  int64_t out_at, copy_at;
  int kind;
};

__device__ __forceinline__ LanePart load_part(const NormParams& p, uint32_t row, int column,
                                              bool wanted) {
  LanePart part{};
  if (!wanted) return part;
  const Place place = place_of(p, row);
  part.kind = kind_of(p, place);
  if (part.kind == kNobodysRow) return part;
  part.x = load_pack(p.x, place.in(p.x) + column);
  part.z = load_pack(p.z, place.in(p.z) + column);
  part.out_at = place.in(p.out) + column;
  part.copy_at = place.in(p.copy) + column;
  return part;
}

__device__ __forceinline__ float squares_of(const NormParams& p, const LanePart& part) {
  float x[kPack], sum = 0.0f;
  unpack(part.x, p.x.number, x);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const float value = norm_input(p, x[i]);
    sum = fmaf(value, value, sum);
  }
  return sum;  // zero of a lane without a part
}

__device__ __forceinline__ void finish_part(const NormParams& p, const LanePart& part, float factor,
                                            const float (&weight)[kPack]) {
  float x[kPack], z[kPack], y[kPack] = {};
  unpack(part.x, p.x.number, x);
  unpack(part.z, p.z.number, z);
  if (p.copy.data != nullptr) store_pack(p.copy, part.copy_at, x);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    // WHY a choice: a padded row is zeros whatever z and the weights hold.
    if (part.kind == kLiveRow) y[i] = norm_output(p, norm_input(p, x[i]), factor, weight[i], z[i]);
  }
  store_pack(p.out, part.out_at, y);
}

/// V a multiple of 8 up to 256, everything aligned; lanes * 8 >= V.
__global__ void __launch_bounds__(kThreads, 5) packed_kernel(const __grid_constant__ NormParams p) {
  device::follow();
  const auto thread = static_cast<int>(threadIdx.x), lanes = p.lanes;
  const int column = thread % lanes * kPack;
  const bool has_column = column < p.V;
  float weight[kPack] = {};
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (!has_column) continue;
    weight[i] = device::load_number(p.weight.data, (column + i) * p.weight.stride, p.weight.number);
  }
  const auto per_cta = static_cast<uint32_t>(kThreads / lanes);
  const uint32_t groups = gridDim.x * per_cta;
  const uint32_t group = blockIdx.x * per_cta + static_cast<uint32_t>(thread / lanes);
  // WHY every lane goes on while any row of the grid is left: all lanes of a warp take part in
  // every butterfly. BOUND: the launch has at most 2^30 groups, so that no sum here passes 2^32.
  for (uint32_t base = 0; base < p.rows; base += groups * kTogether) {
    LanePart parts[kTogether];
#pragma unroll
    for (uint32_t j = 0; j < kTogether; ++j) {
      const uint32_t row = base + j * groups + group;
      parts[j] = load_part(p, row, column, has_column && row < p.rows);
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const float factor = factor_of(p, sum_over(squares_of(p, parts[j]), lanes));
      if (parts[j].kind != kNobodysRow) finish_part(p, parts[j], factor, weight);
    }
  }
}

/// One row by a warp: x is read twice.
__device__ __forceinline__ void element_row(const NormParams& p, const Place& place, int kind,
                                            int lane) {
  const int64_t x_at = place.in(p.x), z_at = place.in(p.z), out_at = place.in(p.out);
  float squares = 0.0f;
  for (int64_t j = lane; j < p.V; j += 32) {
    const float x = norm_input(p, device::load_written(p.x.data, x_at + j, p.x.number));
    squares = fmaf(x, x, squares);
  }
  const float factor = factor_of(p, sum_over(squares, 32));
  for (int64_t j = lane; j < p.V; j += 32) {
    const float x = device::load_written(p.x.data, x_at + j, p.x.number);
    if (p.copy.data != nullptr) {
      device::store_number(p.copy.data, place.in(p.copy) + j, p.copy.number, x);
    }
    float y = 0.0f;
    if (kind == kLiveRow) {
      const float w = device::load_number(p.weight.data, j * p.weight.stride, p.weight.number);
      const float z = device::load_number(p.z.data, z_at + j, p.z.number);
      y = norm_output(p, norm_input(p, x), factor, w, z);
    }
    device::store_number(p.out.data, out_at + j, p.out.number, y);
  }
}

/// Any V, alignment and stride.
__global__ void __launch_bounds__(kThreads) element_kernel(const __grid_constant__ NormParams p) {
  device::follow();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const uint32_t step = gridDim.x * kWarps;
  for (uint32_t row = blockIdx.x * kWarps + threadIdx.x / 32; row < p.rows; row += step) {
    const Place place = place_of(p, row);
    const int kind = kind_of(p, place);
    if (kind != kNobodysRow) element_row(p, place, kind, lane);
  }
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_KERNEL_CUH_
