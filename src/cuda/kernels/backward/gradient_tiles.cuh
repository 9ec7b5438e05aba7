// Computes gradients of a chunk's tokens from the states around it, on Hopper.
//
// Math      docs/math.md (17) in an order that needs neither q k^T nor k k^T. Of each value head
//             X = scale tril(exp(G_i - G_j) d_o_i . e_j beta_j)
//             Z = -stril(exp(G_i - G_j) dv_i . e_j beta_j)
//             dQ = scale diag(exp G) d_o S^T + X k      R = Z k - diag(exp G) dv S^T
//             P = diag(E beta) e D'^T + X^T q + Z^T k   dK = P + R
//             dG_i = q_i . dQ_i - k_i . P_i + k_i . R_i,  dbeta_i = e_i . dv_i / beta_i, for what
//           has no such quotient of what ValueStrength left
// Roles     a persistent CTA has one (chunk, key head) after the other, its value heads in order.
//           Warpgroup 0: loader; factors and gradients of gates; two warps that multiply S by D'
//           and bring small dv to what they are. Warpgroup 1: X, Z, dQ. Warpgroup 2: R, P, dK. dQ and dK are
//           summed over value heads in registers, go through the norm, and are stored once
// Pipeline  (arrows are mbarrier rings) d_o, e, dv (a head ahead), S, D', factors --> X, Z, dQ
//           --> R, P --> sums of gates
// Memory    GradientShared, 212 KB
// Floor     docs/kernels/backward.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_

#include "cuda/kernels/backward/gradient_items.cuh"
#include "cuda/kernels/backward/gradient_rows.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shared_products.cuh"

namespace sluice::cuda::backward {

using tile::Operand;

/// A group's places in the rings. WHY few cursors: registers are scarce.
template <class C>
struct ProductCursors {
  tile::RingCursor<C::kRowSlots> head;  ///< rows, factors, sums
  tile::RingCursor<1> state;            ///< S, D', X and Z
  tile::RingCursor<1> keys;

  static_assert(C::kFactorSlots == C::kRowSlots && C::kSumSlots == C::kRowSlots);
};

/// sum += x, of gradients that were multiplied by one over `back`.
template <class C>
__device__ __forceinline__ void add_back(float& sum, float x, float back) {
  sum = C::kScales ? fmaf(x, back, sum) : sum + x;
}

/// Diagonal elements of x. WHY by masks: an index that is no constant would take the numbers out of
/// registers.
__device__ __forceinline__ void put_diagonal(const Accumulator<64>& x, float* to) {
  uint32_t first = 0, second = 0;
  const int own = 4 * tile::warp_of_group() + tile::lane_row() % 2;
#pragma unroll
  for (int at = 0; at < 16; ++at) {
    first |= __float_as_uint(x.x[at / 2 * 4 + at % 2]) & (at == own ? ~0u : 0u);
    second |= __float_as_uint(x.x[at / 2 * 4 + at % 2 + 2]) & (at == own + 2 ? ~0u : 0u);
  }
  if (tile::lane_row() / 2 != tile::lane() % 4) return;
  to[tile::group_row()] = __uint_as_float(first);
  to[tile::group_row() + 8] = __uint_as_float(second);
}

/// Decays, write strengths and triangles of X and Z. Rows past the end are others', and may be NaN.
template <class C>
__device__ __forceinline__ void mask_squares(Accumulator<64>& x, Accumulator<64>& z,
                                             const GradientFactors& f, float scale, int rows) {
  const float own[2] = {f.G[tile::group_row()], f.G[tile::group_row() + 8]};
#pragma unroll
  for (int at = 0; at < x.kSize; ++at) {
    const int i = x.row(at), j = x.column(at);
    const float gamma = decay(own[at / 2 % 2] - f.G[j]) * f.beta[j];
    // WHY a choice: above the diagonal the exponential may be infinite.
    x.x[at] = i >= j && i < rows ? scale * gamma * x.x[at] : 0.0f;
    if constexpr (C::kDelta) z.x[at] = i > j && i < rows ? -gamma * z.x[at] : 0.0f;
  }
}

/// dQ of one value head, onto `sum`; X and Z for the other group.
template <class C>
__device__ __forceinline__ void run_queries(const GradientParams& p, GradientShared<C>& s,
                                            ProductCursors<C>& at, const GradientItem& item,
                                            bool is_first, Accumulator<128>& sum) {
  const GradientRows<C>& rows = s.rows[at.head.slot];
  Accumulator<64> x, z;
  Accumulator<128> dq;
  Operand<typename C::Io, 64> left;
  // SYNC sum_ring.empty: sums of the head before the last have been read
  at.head.acquire(s.sum_ring);
  // SYNC row_ring.full: d_o, e and dv are there
  at.head.wait(s.row_ring);
  ptx::wgmma_fence();
  tile::issue_product(x, rows.d_o, rows.e);
  if constexpr (C::kDelta) tile::issue_product(z, rows.dv, rows.e);
  ptx::wgmma_commit();
  // SYNC S_ring.full: S is there
  at.state.wait(s.S_ring);
  ptx::wgmma_fence();
  tile::issue_across(dq, rows.d_o, s.S);
  // SYNC factor_ring.full: factors are there
  at.head.wait(s.factor_ring);
  const GradientFactors& f = s.factors[at.head.slot];
  ptx::wgmma_wait<1>();
  tile::pin(x);
  if constexpr (C::kDelta) {
    tile::pin(z);
    put_diagonal(z, s.sums[at.head.slot].value);
  }
  mask_squares<C>(x, z, f, C::kScales ? f.score : p.all.stage.scale, item.tokens);
  left.pack(x);
  ptx::wgmma_wait<0>();
  tile::pin(dq);
  // SYNC row_ring.empty, S_ring.empty: this warp's reads are over
  at.head.release(s.row_ring);
  at.state.release(s.S_ring);
  // SYNC square_ring.empty: the other group is done with the head before
  at.state.acquire(s.square_ring);
  tile::put_rows(s.X, x);
  if constexpr (C::kDelta) {
    // PERF not with the other factors: here registers are left.
    z.scale_rows(f.undo[tile::group_row()], f.undo[tile::group_row() + 8]);
    tile::put_rows(s.Z, z);
  }
  ptx::fence_proxy_async();
  // SYNC square_ring.full: this warp's rows of X and Z are written
  at.state.commit(s.square_ring);
  const float back = f.back;
  dq.scale_rows(f.query[tile::group_row()], f.query[tile::group_row() + 8]);
  // SYNC ready_ring.full: q and k are there, their tails zero
  if (is_first) at.keys.wait(s.ready_ring);
  tile::pin(left);
  ptx::wgmma_fence();
  tile::issue_update(dq, left, s.k);
  ptx::wgmma_wait<0>();
  tile::pin(dq);
  tile::pin(left);
  // SYNC factor_ring.empty: this warp's reads are over
  at.head.release(s.factor_ring);
  if (p.all.g.data != nullptr) {
    put_row_sums(row_products(dq, s.q), s.sums[at.head.slot].query);
  }
  // SYNC sum_ring.full: this warp's sums are there
  at.head.commit(s.sum_ring);
#pragma unroll
  for (int i = 0; i < sum.kSize; ++i) add_back<C>(sum.x[i], dq.x[i], back);
}

/// R of one value head but for Z k, in b, and what P has of D', in c.
/// @return one over what gradients are multiplied by
template <class C>
__device__ __forceinline__ float read_states(GradientShared<C>& s, ProductCursors<C>& at,
                                             Accumulator<128>& b, Accumulator<128>& c) {
  const GradientRows<C>& rows = s.rows[at.head.slot];
  // SYNC row_ring.full, S_ring.full, D_ring.full: rows and states are there
  at.head.wait(s.row_ring);
  // WHY without a delta term too: a release that nobody waited for would count for the S before.
  at.state.wait(s.S_ring);
  if constexpr (C::kDelta) {
    ptx::wgmma_fence();
    tile::issue_across(b, rows.dv, s.S);
  }
  at.state.wait(s.D_ring);
  ptx::wgmma_fence();
  tile::issue_across(c, rows.e, s.D);
  // SYNC factor_ring.full: factors are there
  at.head.wait(s.factor_ring);
  const GradientFactors& f = s.factors[at.head.slot];
  const int row = tile::group_row();
  if constexpr (C::kDelta) {
    ptx::wgmma_wait<1>();
    tile::pin(b);
  }
  // SYNC S_ring.empty, row_ring.empty, D_ring.empty: this warp's reads are over
  at.state.release(s.S_ring);
  if constexpr (C::kDelta) b.scale_rows(f.recall[row], f.recall[row + 8]);
  ptx::wgmma_wait<0>();
  tile::pin(c);
  at.head.release(s.row_ring);
  at.state.release(s.D_ring);
  c.scale_rows(f.write[row], f.write[row + 8]);
  const float back = f.back;
  // SYNC factor_ring.empty: this warp's reads are over
  at.head.release(s.factor_ring);
  return back;
}

/// dK of one value head, onto `sum`.
template <class C>
__device__ __forceinline__ void run_keys(const GradientParams& p, GradientShared<C>& s,
                                         ProductCursors<C>& at, bool is_first,
                                         Accumulator<128>& sum) {
  const bool gates = p.all.g.data != nullptr;
  Accumulator<128> b, c;
  const float back = read_states(s, at, b, c);
  // SYNC ready_ring.full: q and k are there, their tails zero
  if (is_first) at.keys.wait(s.ready_ring);
  // SYNC sum_ring.empty: sums of the head before the last have been read
  at.head.acquire(s.sum_ring);
  GradientSums& sums = s.sums[at.head.slot];
  if (gates) put_row_sums(row_products(c, s.k), sums.leave);
  // SYNC square_ring.full: X and Z are there
  at.state.wait(s.square_ring);
  if constexpr (C::kDelta) tile::pin(b);
  tile::pin(c);
  ptx::wgmma_fence();
  if constexpr (C::kDelta) tile::issue_read<true>(b, s.Z, s.k);
  tile::issue_turned(c, s.X, s.q);
  if constexpr (C::kDelta) tile::issue_turned(c, s.Z, s.k);
  ptx::wgmma_wait<0>();
  if constexpr (C::kDelta) tile::pin(b);
  tile::pin(c);
  // SYNC square_ring.empty: this warp's reads are over
  at.state.release(s.square_ring);
  if (gates) put_row_sums(row_products(c, s.k), sums.key);
  if constexpr (C::kDelta) {
    if (gates) put_row_sums(row_products(b, s.k), sums.correction);
  }
  // SYNC sum_ring.full: this warp's sums are there
  at.head.commit(s.sum_ring);
#pragma unroll
  for (int i = 0; i < sum.kSize; ++i) {
    add_back<C>(sum.x[i], c.x[i], back);
    if constexpr (C::kDelta) add_back<C>(sum.x[i], b.x[i], back);
  }
}

/// Warpgroup 1 (queries) or 2 (keys).
template <class C, bool kQueries>
__device__ __forceinline__ void product_role(const GradientParams& p, GradientShared<C>& s) {
  const BackwardParams& b = p.all;
  ItemReader<C> items(s);
  ProductCursors<C> at;
  Accumulator<128> sum;
  for (GradientItem item = items.next(); item.tokens > 0; item = items.next()) {
    sum.clear();
    const float2 norms =
        request_norms(b, item, kQueries ? int64_t{item.key} : b.stage.H + item.key);
#pragma unroll 1
    for (int turn = 0; turn < b.stage.r; ++turn) {
      if constexpr (kQueries) {
        run_queries(p, s, at, item, turn == 0, sum);
      } else {
        run_keys(p, s, at, turn == 0, sum);
      }
      at.head.next();
      at.state.next();
    }
    uint32_t rows[32];
    for_each_pair(kQueries ? s.q : s.k, [&](uint32_t n, uint32_t pair) { rows[n] = pair; });
    // WHY a fence: an arrival keeps loads that are on their way before other warps' stores, but not
    // before the copy engine's, of another proxy; ptxas waits for none of them here.
    ptx::fence_proxy_async();
    // SYNC key_ring.empty: this warp is done with q and k. PERF early: those of the next item are
    // on their way while these gradients leave.
    at.keys.release(s.key_ring);
    finish_gradient<C>(b, kQueries ? b.dq : b.dk, item, sum, rows, norms);
    at.keys.next();
  }
}

template <class C>
__device__ __forceinline__ void init_barriers(GradientShared<C>& s) {
  s.row_ring.init(1, 10);
  s.key_ring.init(1, 8);
  s.ready_ring.init(2, 1);
  s.S_ring.init(1, 10);
  s.D_ring.init(1, 6);
  s.square_ring.init(4, 4);
  s.factor_ring.init(1, 10);
  s.sum_ring.init(10, 1);
  s.work_ring.init(1, C::kWorkReaders);
  ptx::fence_mbarrier_init();
}

/// See the head of this file. Items are slots x key heads.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    gradient_tiles_kernel(const __grid_constant__ GradientParams p, int64_t items) {
  auto& s = *reinterpret_cast<GradientShared<C>*>(ptx::dynamic_memory());
  if (threadIdx.x == 0) {
    init_barriers(s);
    for (const CUtensorMap* map : {&p.q, &p.k, &p.d_o, &p.e, &p.S, &p.D}) {
      ptx::prefetch_tensor_map(map);
    }
  }
  __syncthreads();
  // Beside the chains what they are to leave is waited for by item.
  if (p.all.ready == nullptr) ptx::wait_for_dependencies();
  ptx::launch_dependents();
  const int warp = tile::warp(), warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    if (warp == 0) {
      load_role<C>(p, s, items);
    } else if (warp == 1) {
      gate_role<C>(p, s);
    } else {
      key_role<C>(p, s, warp - 2);
    }
  } else if (warpgroup == 1) {
    ptx::increase_registers<C::kProductRegisters>();
    product_role<C, true>(p, s);
  } else {
    ptx::increase_registers<C::kProductRegisters>();
    product_role<C, false>(p, s);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GRADIENT_TILES_CUH_
