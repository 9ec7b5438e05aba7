// A chunk of the chain of gradients, the mirror of chunk_h's.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_H_BACK_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_H_BACK_CUH_

#include "cuda/kernels/chunk_h/items.cuh"

namespace sluice::cuda::chunk_h {

/// dN^T in the place of what is inside the chunk, rounded, n = -dN^T and
/// d_o^T with scale exp(G), whose columns past the end are zero.
template <class C>
__device__ __forceinline__ void complete_values(uint32_t (&r)[16], uint32_t (&n)[16],
                                                uint32_t (&o)[16], const float (&kD)[32],
                                                const float* factors, int rows) {
  using Pack = tile::Packed<typename C::Io>;
  const int lane2 = static_cast<int>(threadIdx.x & 3u) * 2;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 f = *reinterpret_cast<const float2*>(&factors[8 * j + lane2]),
                 g = *reinterpret_cast<const float2*>(&factors[64 + 8 * j + lane2]);
    const int left = rows - (8 * j + lane2);
    const uint32_t kept = left >= 2 ? ~0u : left == 1 ? 0xFFFFu : 0u;
#pragma unroll
    for (int at = 2 * j; at < 2 * j + 2; ++at) {
      r[at] = Pack::pack(fmaf(f.x, kD[2 * at], Pack::first(r[at])),
                         fmaf(f.y, kD[2 * at + 1], Pack::second(r[at])));
      n[at] = (r[at] ^ 0x80008000u) & kept;  // both numbers change their sign
      o[at] = Pack::pack(g.x * Pack::first(o[at]), g.y * Pack::second(o[at])) & kept;
    }
  }
}

/// One chunk, whose operands are at the cursor: u and v_new are dN, h is dh. D becomes the gradient
/// of the state that enters it.
template <class C>
__device__ __forceinline__ void run_chunk_back(const StatesParams& p, SharedMemoryPlan<C>& s,
                                               const Place& place, const Item& item, int c,
                                               int64_t state, int stage, float (&D)[C::kK / 2]) {
  Stage<C>& from = s.stage[stage];
  const Factors& factors = s.factors[stage];
  const int rows = min(item.sequence.tokens - c * C::kChunk, C::kChunk);
  uint32_t left[C::kK / 4], r[16], n[16], o[16];
  float kD[32];
  tile::pack_all<C>(left, D);
  if (rows < C::kChunk) {
    // Rows past the end are another sequence's, and may be NaN.
    tile::zero_tail<C>(from.w, rows);
    tile::zero_tail<C>(from.q, rows);
    ptx::fence_proxy_async();
    // SYNC place.barrier: the tails are zero
    ptx::named_barrier_sync(place.barrier, 128);
  }
  const float decay = factors.decay;
  ptx::wgmma_fence();
  tile::issue_recall<C>(kD, left, tile::k_major(ptx::shared_address(from.k)));
  park<C::kK / 16>(s.h[place.half][place.turn], place, left);
  load_values(r, ptx::shared_address(from.u) + place.offset);
  load_values(o, ptx::shared_address(from.d_o) + place.offset);
  ptx::wgmma_wait<0>();
  ptx::pin(kD);
  ptx::pin(left);
#pragma unroll
  for (float& x : D) x *= decay;
  complete_values<C>(r, n, o, kD, factors.write, rows);
  ptx::pin(n);
  ptx::pin(o);
  ptx::wgmma_fence();
  tile::issue_update<C>(D, n, tile::mn_major(ptx::shared_address(from.w), C::kHalfTileBytes));
  tile::issue_update<C>(D, o, tile::mn_major(ptx::shared_address(from.q), C::kHalfTileBytes));
  park<4>(s.v_new[place.half][place.turn], place, r);
  send<C>(p, s, place, item, c, state, rows);
  ptx::wgmma_wait<0>();
  ptx::pin(D);
  ptx::pin(n);
  ptx::pin(o);
}

}  // namespace sluice::cuda::chunk_h

#endif  // SLUICE_CUDA_KERNELS_CHUNK_H_BACK_CUH_
