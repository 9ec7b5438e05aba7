// Computes a chunk of the chain of gradients, the mirror of chunk_h's.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_H_BACK_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_H_BACK_CUH_

#include "cuda/kernels/chunk_h/items.cuh"

namespace sluice::cuda::chunk_h {

/// dN^T in the place of what is inside the chunk, rounded, n = -dN^T and
/// d_o^T with scale exp(G), whose columns past the end are zero.
template <class Io>
__device__ __forceinline__ void complete_values(tile::Operand<Io, 64>& r, tile::Operand<Io, 64>& n,
                                                tile::Operand<Io, 64>& o,
                                                const tile::Accumulator<64>& kD,
                                                const float* factors, int rows) {
  using Pack = tile::Packed<Io>;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int column = 8 * j + tile::lane_column();
    const float2 f = *reinterpret_cast<const float2*>(&factors[column]),
                 g = *reinterpret_cast<const float2*>(&factors[64 + column]);
    const uint32_t kept = tile::tail_mask(rows - column);
#pragma unroll
    for (int at = 2 * j; at < 2 * j + 2; ++at) {
      r.x[at] = Pack::pack(fmaf(f.x, kD.x[2 * at], Pack::first(r.x[at])),
                           fmaf(f.y, kD.x[2 * at + 1], Pack::second(r.x[at])));
      n.x[at] = (r.x[at] ^ 0x80008000u) & kept;  // both numbers change their sign
      o.x[at] = Pack::pack(g.x * Pack::first(o.x[at]), g.y * Pack::second(o.x[at])) & kept;
    }
  }
}

/// One chunk, whose operands are at the cursor: u and v_new are dN, h is dh. D becomes the gradient
/// of the state that enters it.
template <class C>
__device__ __forceinline__ void run_chunk_back(const StatesParams& p, SharedMemoryPlan<C>& s,
                                               const Place& place, const Item& item, int c,
                                               int64_t state, int stage,
                                               tile::Accumulator<C::kK>& D) {
  Stage<C>& from = s.stage[stage];
  const Factors& factors = s.factors[stage];
  const int rows = min(item.sequence.tokens - c * C::kChunk, C::kChunk);
  tile::Operand<typename C::Io, C::kK> left;
  tile::Operand<typename C::Io, 64> r, n, o;
  tile::Accumulator<64> kD;
  left.pack(D);
  if (rows < C::kChunk) {
    // Rows past the end are another sequence's, and may be NaN.
    from.w.zero_rows_from(rows);
    from.q.zero_rows_from(rows);
    ptx::fence_proxy_async();
    // SYNC place.barrier: the tails are zero
    ptx::named_barrier_sync(place.barrier, 128);
  }
  const float decay = factors.decay;
  ptx::wgmma_fence();
  tile::issue_recall(kD, left, from.k);
  left.store_turned(s.h[place.half][place.turn].address() + place.offset);
  r.load_turned(from.u.address() + place.offset);
  o.load_turned(from.d_o.address() + place.offset);
  ptx::wgmma_wait<0>();
  tile::pin(kD);
  tile::pin(left);
  D.scale(decay);
  complete_values(r, n, o, kD, factors.write, rows);
  tile::pin(n);
  tile::pin(o);
  ptx::wgmma_fence();
  tile::issue_update(D, n, from.w);
  tile::issue_update(D, o, from.q);
  r.store_turned(s.v_new[place.half][place.turn].address() + place.offset);
  send<C>(p, s, place, item, c, state, rows);
  ptx::wgmma_wait<0>();
  tile::pin(D);
  tile::pin(n);
  tile::pin(o);
}

}  // namespace sluice::cuda::chunk_h

#endif  // SLUICE_CUDA_KERNELS_CHUNK_H_BACK_CUH_
