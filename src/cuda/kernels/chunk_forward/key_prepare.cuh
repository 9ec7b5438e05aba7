// Prepares a prefill with key-wise gates: all that a chunk of a head needs besides the state
// and v, chunk by chunk at once.
//
// Math    with G, gates summed over the chunk, a vector per token:
//         M_ij = sum_l k_il k_jl e^{G_il - G_jl}, j < i, P likewise of q and k with j <= i (key_levels.cuh)
//         Tmat = (I + diag(beta) M)^-1 diag(beta), q~ = scale e^G q, k~ = e^G k, k^ = e^{G_C - G} k
// Roles   one CTA a chunk and head; warps (block of 16 tokens, half of the channels). Both warps of a
//         block sum up: one M, the other P. One warp inverts while others send the tiles.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_PREPARE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_PREPARE_CUH_

#include "cuda/kernels/chunk_forward/inverse.cuh"
#include "cuda/kernels/chunk_forward/key_columns.cuh"
#include "cuda/kernels/chunk_forward/key_levels.cuh"
#include "cuda/kernels/chunk_forward/key_records.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::chunk_forward {

/// Leaves numbers to the other warp of the pair.
__device__ __forceinline__ void send_sums(float (&to)[kExchanged][32], int block,
                                          const PairSums& sums) {
  const int lane = tile::lane();
#pragma unroll
  for (int i = 0; i < 6; ++i) to[i][lane] = sums.diagonal.x[i];
#pragma unroll
  for (int column = 0; column < 3; ++column) {
    if (column >= block) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) to[6 + 8 * column + i][lane] = sums.left[column][i];
  }
}

__device__ __forceinline__ void receive_sums(const float (&from)[kExchanged][32], int block,
                                             PairSums& sums) {
  const int lane = tile::lane();
#pragma unroll
  for (int i = 0; i < 6; ++i) sums.diagonal.x[i] += from[i][lane];
#pragma unroll
  for (int column = 0; column < 3; ++column) {
    if (column >= block) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) sums.left[column][i] += from[6 + 8 * column + i][lane];
  }
}

/// Scales a 16x16 block by a factor a row and one a column.
__device__ __forceinline__ void scale_sums(float (&x)[8], const float (&row)[2],
                                           const float* columns) {
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const float2 c = *reinterpret_cast<const float2*>(&columns[8 * t + tile::lane_column()]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      x[4 * t + 2 * i] *= row[i] * c.x;
      x[4 * t + 2 * i + 1] *= row[i] * c.y;
    }
  }
}

/// The diagonal block with its part above the diagonal.
__device__ __forceinline__ void fill_diagonal(float (&x)[8], const DiagonalNumbers& numbers) {
  x[0] = numbers.x[0], x[1] = numbers.x[1];
  x[2] = numbers.x[4], x[3] = numbers.x[5];
  x[4] = x[5] = 0.0f;
  x[6] = numbers.x[2], x[7] = numbers.x[3];
}

template <class T>
__device__ __forceinline__ void pack_sums(uint32_t (&out)[4], const float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = tile::Packed<T>::pack(x[2 * i], x[2 * i + 1]);
}

/// A 16x16 block of A to `blocks` in fp16, and what that leaves of it to the mirrored place.
template <class Io>
__device__ __forceinline__ void store_rounded(const BlockTile& blocks, int row, int column,
                                              float (&a)[8]) {
  uint32_t packed[4];
  pack_sums<__half>(packed, a);
  ptx::stmatrix_x4(blocks.block(row, column), packed);
  if constexpr (kSplitA<Io>) {
#pragma unroll
    for (float& x : a) x = fp16_rest(x);
    pack_sums<__half>(packed, a);
    ptx::stmatrix_x4(blocks.block(column, row), packed);
  }
}

/// Rows of block `block` of A = diag(beta) M for the inverse (see prepare.cuh, store_a), and zeros
/// where Tmat has no block.
template <class C>
__device__ __forceinline__ void store_keys(KeyPrepareMemory<C>& s, int block, PairSums& sums) {
  using Io = typename C::Io;
  const int lane_row = tile::lane_row(), lane_column = tile::lane_column();
  const int row = 16 * block + lane_row;
  const BlockTile blocks(s.blocks.bytes), tmat(s.Tmat.bytes);
  const uint32_t none[4] = {};
#pragma unroll
  for (int column = 0; column < 4; ++column) {
    if (column >= block) ptx::stmatrix_x4(tmat.block(block, column), none);
  }
  const float factor[2] = {s.beta[row] * s.lengths[0][row],
                           s.beta[row + 8] * s.lengths[0][row + 8]};
#pragma unroll
  for (int column = 0; column < 3; ++column) {
    if (column >= block) continue;
    scale_sums(sums.left[column], factor, &s.lengths[0][16 * column]);
    store_rounded<Io>(blocks, block, column, sums.left[column]);
  }
  float a[8];
  fill_diagonal(a, sums.diagonal);
  scale_sums(a, factor, &s.lengths[0][16 * block]);
  DiagonalBlock* const diagonal = &s.diagonal[2 * block];
  *reinterpret_cast<float2*>(&diagonal[0].row[lane_row][lane_column]) = make_float2(a[0], a[1]);
  *reinterpret_cast<float2*>(&diagonal[1].row[lane_row][lane_column]) = make_float2(a[6], a[7]);
  const auto at = [&](int r, int c) {
    return blocks.base +
           tile::swizzled_element(static_cast<uint32_t>(16 * block + r + lane_row),
                                  static_cast<uint32_t>(16 * block + c + lane_column));
  };
  ptx::store_shared_4(at(8, 0), tile::Packed<__half>::pack(a[2], a[3]));
  const uint32_t rest =
      kSplitA<Io> ? tile::Packed<__half>::pack(fp16_rest(a[2]), fp16_rest(a[3])) : 0;
  ptx::store_shared_4(at(0, 8), rest);
}

/// Inverts the diagonal block of 16 tokens, by the warp that has stored it: both 8x8 blocks by
/// substitution, which are then merged. As substitute_diagonal() and merge_diagonals() do with all
/// four. PERF four warps at once, in place of one while all others wait.
template <class C>
__device__ __forceinline__ void invert_block(KeyPrepareMemory<C>& s, int block) {
  using Io = typename C::Io;
  const BlockTile blocks(s.blocks.bytes), tmat(s.Tmat.bytes);
  const int lane = tile::lane(), row = lane & 7;
  // Lanes 16 .. 31 do what lanes 0 .. 15 do.
  const DiagonalBlock& a = s.diagonal[2 * block + (lane >> 3 & 1)];
  float inverse[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) inverse[j] = j == row ? 1.0f : 0.0f;
  substitute_step<7>(inverse, a);
  substitute_step<6>(inverse, a);
  substitute_step<5>(inverse, a);
  substitute_step<4>(inverse, a);
  substitute_step<3>(inverse, a);
  substitute_step<2>(inverse, a);
  substitute_step<1>(inverse, a);
  store_inverted_row<Io>(inverse, blocks, tmat, static_cast<uint32_t>(16 * block + (lane & 15)),
                         s.beta);
  __syncwarp();
  const uint32_t upper = blocks.base + tile::swizzled_piece(static_cast<uint32_t>(16 * block + row),
                                                            static_cast<uint32_t>(2 * block));
  const uint32_t lower = upper + 8 * tile::kRowBytes;
  // Of four 8x8 blocks at a time: X_22; A_21, X_11 and what rounding left of A_21.
  uint32_t x22[4], others[4];
  ptx::ldmatrix_x4(x22, lower ^ 16);
  ptx::ldmatrix_x4_trans(others, lane < 8 ? lower : lane < 16 ? upper : upper ^ 16);
  float left[4] = {}, x[4] = {};
  ptx::mma_f16_k8(left, x22[0], others[0]);
  if constexpr (kSplitA<Io>) ptx::mma_f16_k8(left, x22[0], others[2]);
  ptx::mma_f16_k8(x, tile::Packed<__half>::pack(left[0], left[1]), others[1]);
  __syncwarp();  // all lanes have read A_21, which is overwritten
  const int column = 16 * block + tile::lane_column();
  const uint32_t at = tile::swizzled_element(
      static_cast<uint32_t>(16 * block + 8 + tile::lane_row()), static_cast<uint32_t>(column));
  const float2 f = *reinterpret_cast<const float2*>(&s.beta[column]);
  ptx::store_shared_4(blocks.base + at, tile::Packed<__half>::pack(-x[0], -x[1]));
  ptx::store_shared_4(tmat.base + at, tile::Packed<Io>::pack(-x[0] * f.x, -x[1] * f.y));
  if constexpr (kSplitA<Io>) {
    ptx::store_shared_4((blocks.base + at - 8 * tile::kRowBytes) ^ 16, 0);
  }
}

/// Rows of block `block` of P.
template <class C>
__device__ __forceinline__ void store_queries(const PrefillParams& p, KeyPrepareMemory<C>& s,
                                              int block, PairSums& sums) {
  using Io = typename C::Io;
  const int row = 16 * block + tile::lane_row();
  const BlockTile tile(s.P.bytes);
  const float factor[2] = {p.scale * s.lengths[1][row], p.scale * s.lengths[1][row + 8]};
  uint32_t packed[4] = {};
#pragma unroll
  for (int column = 1; column < 4; ++column) {
    if (column > block) ptx::stmatrix_x4(tile.block(block, column), packed);
  }
#pragma unroll
  for (int column = 0; column < 3; ++column) {
    if (column >= block) continue;
    scale_sums(sums.left[column], factor, &s.lengths[0][16 * column]);
    pack_sums<Io>(packed, sums.left[column]);
    ptx::stmatrix_x4(tile.block(block, column), packed);
  }
  float x[8];
  fill_diagonal(x, sums.diagonal);
  scale_sums(x, factor, &s.lengths[0][16 * block]);
  pack_sums<Io>(packed, x);
  ptx::stmatrix_x4(tile.block(block, block), packed);
}

/// What this warp's lanes scale their two rows by.
template <class C>
__device__ __forceinline__ LaneRows lane_rows(const KeyPrepareMemory<C>& s, int block) {
  LaneRows out;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 16 * block + tile::lane_row() + 8 * i;
    out.k_norm[i] = s.norms[0][row];
    out.q_norm[i] = s.norms[1][row];
    out.k_length[i] = s.lengths[0][row];
    out.q_length[i] = s.lengths[1][row];
  }
  return out;
}

/// M and P, and the scaled tiles. On entry sums, norms and tiles are there for all.
template <class C>
__device__ __forceinline__ void multiply_chunk(const PrefillParams& p, KeyPrepareMemory<C>& s) {
  const int warp = __shfl_sync(~0u, tile::warp(), 0), block = warp % 4, half = warp / 4;
  const LaneRows lanes = lane_rows(s, block);
  const HalfTiles<C> tiles(s, half);
  const BlockTile faded = HalfTiles<C>::faded(s, half);
  DiagonalSums sum;
#pragma unroll C::kUnrolled
  for (int i = 0; i < C::kSteps; ++i) add_step<C>(s, tiles, faded, block, i, lanes, sum);
#pragma unroll
  for (float& own : sum.own) {
    own += __shfl_xor_sync(~0u, own, 1);
    own += __shfl_xor_sync(~0u, own, 2);
  }
  PairSums keys{diagonal_numbers(sum, 0), {}}, queries{diagonal_numbers(sum, 2), {}};
  // SYNC: all warps' decayed keys are there
  __syncthreads();
#pragma unroll C::kUnrolled
  for (int i = 0; i < C::kSteps; ++i) {
    finish_step<C>(s, tiles, faded, block, i, p.scale, lanes, keys, queries);
  }
  // SYNC: sums and decayed keys have been read, whose place is taken
  __syncthreads();
  // WHY two calls: a reference to one of two would put both into memory.
  if (half == 0) {
    send_sums(s.exchange[block][0], block, queries);
  } else {
    send_sums(s.exchange[block][1], block, keys);
  }
  // SYNC: the other warp's numbers are there
  __syncthreads();
  if (half == 0) {
    receive_sums(s.exchange[block][1], block, keys);
    store_keys<C>(s, block, keys);
    __syncwarp();
    invert_block<C>(s, block);
  } else {
    receive_sums(s.exchange[block][0], block, queries);
    store_queries<C>(p, s, block, queries);
  }
  ptx::fence_proxy_async();
  __syncthreads();
}

/// The rest of Tmat, by one warp.
template <class C>
__device__ __forceinline__ void invert_keys(KeyPrepareMemory<C>& s) {
  using Io = typename C::Io;
  const BlockTile blocks(s.blocks.bytes), tmat(s.Tmat.bytes);
  merge_pairs<Io>(blocks, tmat, s.beta);
  __syncwarp();
  merge_halves<Io>(blocks, tmat, s.beta);
  ptx::fence_proxy_async();
  __syncwarp();
}

/// Sends the chunk's parts to its record; each thread that sends waits until they have been read.
template <class C>
__device__ __forceinline__ void store_record(const PrefillParams& p, KeyPrepareMemory<C>& s,
                                             KeyRecord<C::kK>& to) {
  const auto send = [](auto& part, const void* from) {
    ptx::bulk_store(&part, from, sizeof(part));
  };
  if (threadIdx.x < 32) {
    if (!p.key.delta) return;
    invert_keys<C>(s);
    if (threadIdx.x == 0) {
      send(to.Tmat, s.Tmat.bytes);
      ptx::bulk_commit();
      ptx::bulk_wait_read();
    }
  } else if (threadIdx.x == 32) {
    send(to.q, s.q.bytes);
    send(to.k, s.k.bytes);
    send(to.k_late, s.k_late.bytes);
    send(to.P, s.P.bytes);
    send(to.decay, s.decay);
    ptx::bulk_commit();
    ptx::bulk_wait_read();
  }
}

/// Brings gates and keys of the CTA that may follow on this multiprocessor into the L2; one warp.
template <class C>
__device__ __forceinline__ void fetch_ahead(const PrefillParams& p) {
  const uint32_t ahead = blockIdx.x + 2 * static_cast<uint32_t>(p.segments.cut.multiprocessors);
  if (ahead >= gridDim.x) return;
  const auto heads = static_cast<uint32_t>(p.HV);
  const auto head = static_cast<int>(ahead % heads);
  const WorkItem item = chunk_of_record(p, ahead / heads, head);
  if (item.tokens <= 0 || item.padded) return;
  const TokenRows& gate = p.key.gate;
  const uint32_t size = gate.number == Number::kFloat32 ? 4 : 2;
  for (int row = tile::lane(); row < item.rows(0); row += 32) {
    const int64_t at = item.batch * gate.batch_stride + item.head * gate.head_stride +
                       (int64_t{item.row} + row) * gate.token_stride;
    ptx::prefetch_l2(static_cast<const char*>(gate.data) + at * size, C::kK * size);
  }
  if (!tile::is_first_lane()) return;
  const ptx::BoxOrigin at{0, item.row, 0, device::key_head(p, head), item.batch};
  ptx::tma_prefetch(&p.k, at);
  ptx::tma_prefetch(&p.q, at);
}

/// One CTA a record and head (blockIdx.x = record HV + head), sizeof(KeyPrepareMemory) bytes of
/// dynamic shared memory.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 2)
    key_prepare_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<KeyPrepareMemory<C>*>(dynamic_shared);
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  const auto heads = static_cast<uint32_t>(p.HV);
  const auto head = static_cast<int>(blockIdx.x % heads);
  const int64_t record = blockIdx.x / heads;
  const WorkItem item = chunk_of_record(p, record, head);
  if (item.tokens <= 0 || item.padded) return;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&s.loaded, 1);
    ptx::fence_mbarrier_init();
    const ptx::BoxOrigin at{0, item.row, 0, device::key_head(p, head), item.batch};
    ptx::mbarrier_arrive_expect(&s.loaded, 2 * C::KeyTile::kBytes);
    ptx::tma_load(s.k.bytes, &p.k, at, &s.loaded);
    ptx::tma_load(s.q.bytes, &p.q, at, &s.loaded);
  }
  load_betas(p, item, s);
  sum_gates<C>(p, item, s);
  if (tile::warp() == C::kThreads / 32 - 1) fetch_ahead<C>(p);
  // SYNC: all threads see the barrier's start
  __syncthreads();
  tile::wait_phase(&s.loaded, 0);
  if (item.rows(0) < 64) {
    zero_tail<C>(item.rows(0), s);
    __syncthreads();
  }
  scale_rows<C>(p, item.rows(0), s);
  decay_blocks<C>(s);
  if (p.may_forget_keys() && tile::warp() == 0) {
    store_peak(s, p.key.peaks + record * p.HV + head);
  }
  __syncthreads();
  multiply_chunk<C>(p, s);
  store_record<C>(p, s, *record_at<C::kK>(p, record, head));
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_PREPARE_CUH_
