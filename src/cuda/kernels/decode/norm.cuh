// The gated norm of a layer: out = o rsqrt(mean(o^2) + eps) weight act(z), from o in the stage.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_NORM_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_NORM_CUH_

#include "cuda/device/activation.cuh"
#include "cuda/device/store.cuh"
#include "cuda/kernels/decode/stage.cuh"

namespace sluice::cuda::decode {

/// Element of z or out: rows of key heads, each with its value heads.
__device__ __forceinline__ int64_t member_offset(const DecodeParams& p, int64_t member_stride,
                                                 const Place& at) {
  return at.head % p.r * member_stride + at.column;
}

/// Whether column `local` of the CTA is one of V.
__device__ __forceinline__ bool exists(const DecodeParams& p, const Unit& unit, int local,
                                       const Place& at) {
  return unit.first + local / kTileColumns < unit.last && at.column < p.V;
}

/// z and weight of one element.
struct NormInputs {
  float z, weight;
};

/// Entry `at` of [tokens][columns].
__device__ __forceinline__ NormInputs request_norm(const DecodeParams& p, const Unit& unit,
                                                   const Stage& s, int at) {
  const int token = at / s.columns, local = at % s.columns;
  const Place place = place_of_column(p, unit, local);
  if (token >= unit.seq.tokens || !exists(p, unit, local, place)) return {0.0f, 0.0f};
  const NormParams& n = p.norm;
  return {load_element(n.z, unit.seq, token, place.head / p.r,
                       member_offset(p, n.z_member_stride, place)),
          device::load_number(n.weight.data, place.column * n.weight.stride, n.weight.number)};
}

__device__ __forceinline__ void settle_norm(const DecodeParams& p, const Stage& s, int at,
                                            const NormInputs& in) {
  s.gates[at] = in.weight * (p.norm.silu ? device::silu(in.z) : device::sigmoid(in.z));
}

/// 1 / rms of a value head's o. The sum is that of its tiles in order, whichever CTAs have them, so
/// that its bits do not depend on the split.
__device__ __forceinline__ float norm_factor(const DecodeParams& p, const Unit& unit,
                                             const Stage& s, int token, int member) {
  float sum = 0.0f;
  const int first = member * p.tiles_per_head;
  for (int tile = first; tile < first + p.tiles_per_head; ++tile) {
    const int rank = tile / p.grid.tiles;
    const float* const at = &s.partial[token * s.tiles + tile % p.grid.tiles];
    sum += rank == unit.rank ? *at : ptx::load_remote(at, static_cast<uint32_t>(rank));
  }
  return 1.0f / sqrtf(sum / static_cast<float>(p.V) + p.norm.eps);
}

/// Writes one row of out, and of the core output where that is asked for.
__device__ __forceinline__ void write_row_element(const DecodeParams& p, const Unit& unit,
                                                  int token, const Place& at, float out,
                                                  float core) {
  const TokenRows& rows = p.norm.out;
  const int64_t row = unit.seq.row + token;
  device::store_number(rows.data,
                       unit.seq.batch * rows.batch_stride + row * rows.token_stride +
                           at.head / p.r * rows.head_stride +
                           member_offset(p, p.norm.out_member_stride, at),
                       rows.number, out);
  if (p.o.data == nullptr) return;
  device::store_number(p.o.data,
                       unit.seq.batch * p.o.batch_stride + row * p.o.token_stride +
                           at.head * p.o.head_stride + at.column,
                       p.o.number, core);
}

/// All rows of the CTA's columns. SYNC: o and the partial sums of the unit are complete.
__device__ __forceinline__ void write_rows(const DecodeParams& p, const Unit& unit,
                                           const Stage& s) {
  const Number number = p.norm.out.number;
  for (int i = static_cast<int>(threadIdx.x); i < unit.seq.tokens * s.columns;
       i += static_cast<int>(blockDim.x)) {
    const int token = i / s.columns, local = i % s.columns;
    const Place at = place_of_column(p, unit, local);
    if (!exists(p, unit, local, at)) continue;
    const float o = s.v(token)[local];
    const float x = p.norm.round_input ? device::rounded(number, o) : o;
    float normed = x * norm_factor(p, unit, s, token, at.member);
    if (p.norm.round_normed) normed = device::rounded(number, normed);
    write_row_element(p, unit, token, at, normed * s.gates[i], o);
  }
}

/// Zero rows of a padded sequence.
template <class C>
__device__ __forceinline__ void write_zeros(const DecodeParams& p, const Unit& unit,
                                            const Stage& s) {
  for (int i = static_cast<int>(threadIdx.x); i < unit.seq.tokens * s.columns;
       i += static_cast<int>(blockDim.x)) {
    const int token = i / s.columns, local = i % s.columns;
    const Place at = place_of_column(p, unit, local);
    if (!exists(p, unit, local, at)) continue;
    if (C::kLayer) {
      write_row_element(p, unit, token, at, 0.0f, 0.0f);
    } else {
      device::store_number(p.o.data,
                           unit.seq.batch * p.o.batch_stride +
                               (unit.seq.row + token) * p.o.token_stride +
                               at.head * p.o.head_stride + at.column,
                           p.o.number, 0.0f);
    }
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_NORM_CUH_
