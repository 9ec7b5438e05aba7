// Computes the gated norm of a layer, out = o rsqrt(mean(o^2) + eps) weight act(z), from o in the
// token buffer.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_NORM_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_NORM_CUH_

#include "cuda/device/activation.cuh"
#include "cuda/device/store.cuh"
#include "cuda/kernels/decode/tokens.cuh"
#include "cuda/ptx/lanes.cuh"

namespace sluice::cuda::decode {

/// z and weight of one element, on their way.
struct NormInputs {
  RawNumber z, weight;
};

/// Entry `at` of [tokens][columns].
template <class Params>
__device__ __forceinline__ NormInputs request_norm(const Params& p, const Unit& unit,
                                                   const TokenBuffer& s, int at) {
  NormInputs in{};
  if (at >= unit.seq.tokens * s.columns) return in;
  const Quotient element(at, p.by_columns, s.columns);
  const Place place = place_of_column(p, unit, element.rest);
  if (!exists(p, unit, element.rest, place)) return in;
  const NormParams& n = p.norm;
  const Group group = group_of(p, place.head);
  const int64_t offset = row_offset(n.z, unit.seq, element.whole, group.group, place.column);
  in.z = request_number(n.z.data, offset + group.member * n.z_member_stride, n.z.number);
  in.weight = request_number(n.weight.data, place.column * n.weight.stride, n.weight.number);
  return in;
}

template <class Params>
__device__ __forceinline__ void settle_norm(const Params& p, const Unit& unit, const TokenBuffer& s,
                                            int at, const NormInputs& in) {
  if (at >= unit.seq.tokens * s.columns) return;
  const float z = number_of(p.norm.z.number, in.z);
  const float act = p.norm.silu ? device::silu(z) : device::sigmoid(z);
  s.gates[at] = number_of(p.norm.weight.number, in.weight) * act;
}

/// 1 / rms of a value head's o, by a whole warp. The order of the sum is one of columns: a tree
/// over 32 blocks of four at a time, whichever CTAs have them, so that its bits do not depend on
/// who has which.
template <class Params>
__device__ __forceinline__ float norm_factor(const Params& p, const Unit& unit,
                                             const TokenBuffer& s, int token, int member) {
  const int bits = p.column_bits(), lane = static_cast<int>(threadIdx.x % 32);
  float sum = 0.0f;
  for (int first = 0; first < p.V; first += 128) {
    const int column = first + 4 * lane;
    float part[1] = {0.0f};
    if (column < p.V) {
      const Quotient place(member * p.tiles_per_head + (column >> bits), p.by_tiles, p.tiles());
      const int local = (place.rest << bits) + (column & ((1 << bits) - 1));
      const float* const at = &s.squares[(token * s.columns + local) / 4];
      part[0] =
          place.whole == unit.rank ? *at : ptx::load_remote(at, static_cast<uint32_t>(place.whole));
    }
    ptx::sum_over_lanes<0, 5>(part);
    sum += part[0];
  }
  return rsqrtf(__fdividef(sum, static_cast<float>(p.V)) + p.norm.eps);
}

/// Writes one element of out, and of the core output where that is asked for.
template <class Params>
__device__ __forceinline__ void write_element(const Params& p, const Unit& unit, int token,
                                              const Place& at, float out, float core) {
  const TokenRows& rows = p.norm.out;
  const Group group = group_of(p, at.head);
  const int64_t offset = row_offset(rows, unit.seq, token, group.group, at.column) +
                         group.member * p.norm.out_member_stride;
  device::store_number(rows.data, offset, rows.number, out);
  if (p.o.data == nullptr) return;
  device::store_number(p.o.data, row_offset(p.o, unit.seq, token, at.head, at.column), p.o.number,
                       core);
}

/// All rows of the CTA's columns, a warp 32 columns of a token at a time. SYNC: o and the sums of
/// squares of the unit are complete.
template <class Params>
__device__ __forceinline__ void write_rows(const Params& p, const Unit& unit,
                                           const TokenBuffer& s) {
  const Number number = p.norm.out.number;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int first = static_cast<int>(threadIdx.x) - lane; first < unit.seq.tokens * s.columns;
       first += static_cast<int>(blockDim.x)) {
    const Quotient element(first, p.by_columns, s.columns);
    const int token = element.whole, local = element.rest + lane;
    const Place at = place_of_column(p, unit, local);
    if (unit.first + (local >> p.column_bits()) >= unit.last) continue;
    const float factor = norm_factor(p, unit, s, token, at.member);
    if (at.column >= p.V) continue;
    const float o = s.o[token * s.columns + local];
    const float x = p.norm.round_input ? device::rounded(number, o) : o;
    float normed = x * factor;
    if (p.norm.round_normed) normed = device::rounded(number, normed);
    write_element(p, unit, token, at, normed * s.gates[token * s.columns + local], o);
  }
}

/// Zero rows of a padded sequence.
template <class C, class Params>
__device__ __forceinline__ void write_zeros(const Params& p, const Unit& unit,
                                            const TokenBuffer& s) {
  for (int i = static_cast<int>(threadIdx.x); i < unit.seq.tokens * s.columns;
       i += static_cast<int>(blockDim.x)) {
    const Quotient element(i, p.by_columns, s.columns);
    const int token = element.whole, local = element.rest;
    const Place at = place_of_column(p, unit, local);
    if (!exists(p, unit, local, at)) continue;
    if (C::kLayer) {
      write_element(p, unit, token, at, 0.0f, 0.0f);
    } else {
      device::store_number(p.o.data, row_offset(p.o, unit.seq, token, at.head, at.column),
                           p.o.number, 0.0f);
    }
  }
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_NORM_CUH_
