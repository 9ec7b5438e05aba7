// Prepares chunks and solves their triangles by tensor cores.
//
// Math      M_ij = exp(G_i - G_j) k_i . k_j below the diagonal, B = (I + M diag(beta))^-1 M: with
//           R = v - diag(exp G) k S of the state S that enters, e = R - B diag(beta) R. Of the same B
//           B (I + A) = M, A = diag(beta) M; in blocks of 16 tokens, from a row's last block on,
//           B_rc = (M_rc - sum over c < l <= r of B_rl A_lc) (I + A_cc)^-1
// Roles     a CTA of 128 threads has one (chunk, key head), and of its value heads every
//           gridDim.y-th, which share k k^T; a warp has 16 rows of tokens, of M and of B
// Pipeline  q, k and numbers of tokens -> k k^T -> of each value head A and (I + A_cc)^-1 -> B
// Memory    SolveShared, 33 KB: six CTAs hide each other's waits
// Numbers   NUM: operands are sums of two bfloat16 numbers, three of the four products of which are
//           made: 2^-16 of a term, and float32's range, so that no strength is too small
// Floor     docs/kernels/backward.md
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_SOLVE_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_SOLVE_TILES_CUH_

#include "cuda/kernels/backward/prepare_tiles.cuh"
#include "cuda/kernels/backward/ready_chunks.cuh"
#include "cuda/kernels/backward/segments.cuh"
#include "cuda/kernels/backward/two_part_blocks.cuh"

namespace sluice::cuda::backward {

// ------------------------------------------------------------------------------------- M -----

/// k k^T below the diagonal and on it, the lanes' numbers of it.
template <class Io>
__device__ __forceinline__ void multiply_keys(SolveShared<Io>& s, int halves) {
  const int own = tile::warp();
#pragma unroll 1
  for (int c = 0; c <= own; ++c) {
    BlockNumbers sum = {};
    for (int half = 0; half < halves; ++half) {
      const uint32_t k = ptx::shared_address(s.k.block(half));
#pragma unroll
      for (int term = 0; term < 64; term += 16) {
        uint32_t a[4], b[4];
        tile::load_left(a, k, 16 * own, term);
        tile::load_right_turned(b, k, term, 16 * c);
        tile::mma<Io>(sum[0], a, b);
        tile::mma<Io>(sum[1], a, b + 2);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      s.products().of(own, c)[j][tile::lane()] =
          make_float4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
    }
  }
}

/// Numbers of the lane's two rows of a head.
struct RowNumbers {
  float G[2], minus_beta[2];

  __device__ __forceinline__ explicit RowNumbers(const SolveNumbers& of) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 16 * tile::warp() + tile::lane_row() + 8 * i;
      G[i] = of.G[row], minus_beta[i] = -of.beta[row];
    }
  }
};

/// M of a block left of the diagonal. PERF factors of rows and columns, both at most 1, which meet at
/// the last token of the block above.
__device__ __forceinline__ void put_decays(const SolveNumbers& of, const RowNumbers& rows,
                                           const float4 (&products)[2][32], int column,
                                           BlockNumbers& M) {
  const float meet = of.G[16 * tile::warp() - 1];
  const float upper = decay(rows.G[0] - meet), lower = decay(rows.G[1] - meet);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float2 G = *reinterpret_cast<const float2*>(&of.G[column + 8 * j + tile::lane_column()]);
    const float first = decay(meet - G.x), second = decay(meet - G.y);
    const float4 x = products[j][tile::lane()];
    M[j][0] = x.x * (first * upper), M[j][1] = x.y * (second * upper);
    M[j][2] = x.z * (first * lower), M[j][3] = x.w * (second * lower);
  }
}
/// The same of the warp's block on the diagonal.
__device__ __forceinline__ void put_diagonal_decays(const SolveNumbers& of, const RowNumbers& rows,
                                                    const float4 (&products)[2][32],
                                                    BlockNumbers& M) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int column = 8 * j + tile::lane_column(), i = tile::lane_row();
    const float2 G = *reinterpret_cast<const float2*>(&of.G[16 * tile::warp() + column]);
    const float4 x = products[j][tile::lane()];
    // WHY a choice: above the diagonal the exponential may be infinite.
    M[j][0] = i > column ? x.x * decay(rows.G[0] - G.x) : 0.0f;
    M[j][1] = i > column + 1 ? x.y * decay(rows.G[0] - G.y) : 0.0f;
    M[j][2] = i + 8 > column ? x.z * decay(rows.G[1] - G.x) : 0.0f;
    M[j][3] = i + 8 > column + 1 ? x.w * decay(rows.G[1] - G.y) : 0.0f;
  }
}

__device__ __forceinline__ void scale_rows(const BlockNumbers& from, const float (&factors)[2],
                                           BlockNumbers& to) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[j][i] = from[j][i] * factors[i / 2];
  }
}

// ------------------------------------------------------------------------------- inverse -----

/// (I + A)^-1 of the warp's block on the diagonal, of which -A is given: by X (I + A) = I, a lane a
/// row.
__device__ __forceinline__ void invert_diagonal(float (&minus_A)[16][kDiagonalRow],
                                                const TwoPartTiles& to) {
  const int own = tile::lane() % 16;
  float x[16];
#pragma unroll
  for (int j = 0; j < 16; ++j) x[j] = j == own ? 1.0f : 0.0f;
#pragma unroll
  for (int l = 15; l > 0; --l) {
#pragma unroll
    for (int j = 0; j < l; j += 4) {
      const float4 a = *reinterpret_cast<const float4*>(&minus_A[l][j]);
      const float row[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int m = 0; m < 4 && j + m < l; ++m) x[j + m] = fmaf(x[l], row[m], x[j + m]);
    }
  }
  if (tile::lane() >= 16) return;
  using Pack = tile::Packed<__nv_bfloat16>;
  const auto row = static_cast<uint32_t>(16 * tile::warp() + own),
             piece = static_cast<uint32_t>(2 * tile::warp());
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    uint32_t high[4], low[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const float first = x[8 * half + 2 * i], second = x[8 * half + 2 * i + 1];
      high[i] = Pack::pack(first, second);
      low[i] = Pack::pack(first - Pack::first(high[i]), second - Pack::second(high[i]));
    }
    ptx::store_shared_16(to.high.base + tile::swizzled_piece(row, piece + half), high);
    ptx::store_shared_16(to.high.base + kTile + tile::swizzled_piece(row, piece + half), low);
  }
}

// ------------------------------------------------------------------------------------- B -----

/// Blocks of the warp's 16 rows of B, to memory: a lane has four columns of each.
struct CorrectionRows {
  uint16_t* first;
  int64_t step;  ///< to the row 8 further down
  int rows;      ///< of the lane's two, those inside the chunk

  __device__ __forceinline__ CorrectionRows(const TokenRows& to, const Chunk& chunk, int64_t head,
                                            int own) {
    const int lane = tile::lane(), row = 16 * own + tile::lane_row();
    first = static_cast<uint16_t*>(to.data) + at(to, chunk.batch, chunk.row + row, head) +
            lane % 2 * 8 + lane % 4 / 2 * 4;
    step = 8 * to.token_stride;
    rows = (chunk.tokens > row) + (chunk.tokens > row + 8);
  }
  /// `x` as a left operand has it. Whole warps.
  __device__ __forceinline__ void put(int column, const uint32_t (&x)[4]) const {
    const bool odd = (tile::lane() & 1) != 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Neighbours' pairs of the first 8 columns go to the even lane, of the others to the odd one.
      const uint32_t other = __shfl_xor_sync(~0u, odd ? x[i] : x[i + 2], 1);
      const uint2 four = odd ? make_uint2(other, x[i + 2]) : make_uint2(x[i], other);
      if (i < rows) *reinterpret_cast<uint2*>(first + i * step + column) = four;
    }
  }
};

/// A block of B, rounded to the io type.
template <class Io>
__device__ __forceinline__ void put_block(const CorrectionRows& to, int column,
                                          const BlockNumbers& x) {
  using Pack = tile::Packed<Io>;
  const uint32_t words[4] = {Pack::pack(x[0][0], x[0][1]), Pack::pack(x[0][2], x[0][3]),
                             Pack::pack(x[1][0], x[1][1]), Pack::pack(x[1][2], x[1][3])};
  to.put(column, words);
}

/// The warp's rows of -A, and the inverse on the diagonal.
template <class Io>
__device__ __forceinline__ void put_blocks(SolveShared<Io>& s, const SolveNumbers& numbers,
                                           const TwoPartTiles& tiles) {
  const int own = tile::warp();
  const RowNumbers rows(numbers);
  BlockNumbers M, scaled;
#pragma unroll 1
  for (int c = 0; c < own; ++c) {
    put_decays(numbers, rows, s.products().of(own, c), 16 * c, M);
    scale_rows(M, rows.minus_beta, scaled);
    tiles.put(own, c, TwoPartBlock(scaled));
  }
  put_diagonal_decays(numbers, rows, s.products().of(own, own), M);
  scale_rows(M, rows.minus_beta, scaled);
  auto& diagonal = s.products().diagonal[own];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    float* const to = &diagonal[tile::lane_row()][8 * j + tile::lane_column()];
    *reinterpret_cast<float2*>(to) = make_float2(scaled[j][0], scaled[j][1]);
    *reinterpret_cast<float2*>(to + 8 * kDiagonalRow) = make_float2(scaled[j][2], scaled[j][3]);
  }
  __syncwarp();
  invert_diagonal(diagonal, tiles);
}

/// The warp's rows of B of a value head, to memory. PERF M is made once more: to keep it, and what
/// there is of B, would take registers that leave fewer CTAs room.
template <class Io>
__device__ __forceinline__ void solve_rows(SolveShared<Io>& s, const SolveNumbers& numbers,
                                           const TwoPartTiles& tiles, const CorrectionRows& to) {
  const int own = tile::warp();
  const RowNumbers rows(numbers);
  BlockNumbers M, x = {};
  put_diagonal_decays(numbers, rows, s.products().of(own, own), M);
  tiles.multiply(x, TwoPartBlock(M), own, own);
  put_block<Io>(to, 16 * own, x);
  const TwoPartBlock last(x);
#pragma unroll 1
  for (int c = own - 1; c >= 0; --c) {
    put_decays(numbers, rows, s.products().of(own, c), 16 * c, M);
    tiles.multiply(M, last, own, c);
#pragma unroll 1
    for (int l = own - 1; l > c; --l) tiles.multiply(M, tiles.left(l, own), l, c);
    const TwoPartBlock before(M);
#pragma unroll
    for (auto& tile : x) tile[0] = tile[1] = tile[2] = tile[3] = 0.0f;
    tiles.multiply(x, before, c, c);
    put_block<Io>(to, 16 * c, x);
    if (c == 0) break;
    tiles.put(c, own, TwoPartBlock(x));
    __syncwarp();
  }
#pragma unroll 1
  for (int c = own + 1; c < 4; ++c) to.put(16 * c, {});
}

/// B of a value head, whose numbers are there. All threads.
template <class Io>
__device__ __forceinline__ void solve_head(const BackwardParams& b, SolveShared<Io>& s,
                                           const SolveNumbers& numbers, const Chunk& chunk,
                                           int head) {
  const TwoPartTiles tiles{BlockTile(s.parts())};
  put_blocks(s, numbers, tiles);
  __syncthreads();  // SYNC: A and the inverses are there
  solve_rows(s, numbers, tiles, CorrectionRows(b.B, chunk, head, tile::warp()));
  __syncthreads();  // SYNC: nobody reads A, inverses and numbers
}

// --------------------------------------------------------------------------------- items -----

/// q and k by their l2 norm to memory, but where another CTA does; k stays in its tile.
template <class Io>
__device__ __forceinline__ void prepare_rows(const BackwardParams& b, SolveShared<Io>& s,
                                             const Chunk& chunk, int keys) {
  const bool stores = blockIdx.y == 0;
  ptx::wait_for_copies<1>();
  normalise<Io>(b, s.k.bytes, b.k_normal, chunk, keys, b.stage.H + keys, stores);
  ptx::wait_for_copies<0>();
  if (stores) normalise<Io>(b, s.q.bytes, b.q_normal, chunk, keys, keys, true);
}

template <class Io, Solve kSolve>
__device__ __forceinline__ void solve_item(const BackwardParams& b, SolveShared<Io>& s,
                                           const Chunk& chunk, int keys) {
  constexpr bool kPrepared = kSolve == Solve::kSolve || kSolve == Solve::kWindow;
  const int r = static_cast<int>(b.stage.r), step = static_cast<int>(gridDim.y),
            first = static_cast<int>(blockIdx.y);
  const auto token_of = [&](int turn) {
    const auto thread = static_cast<int>(threadIdx.x);
    const int own = turn + thread / kTokens * step, token = thread % kTokens;
    return PairToken{value_head(b.stage, keys, own < r ? own : turn), token,
                     own < r && token < chunk.tokens};
  };
  // Sums are made by a warp, behind a barrier; another one is to come.
  const auto put_numbers = [&](int turn) {
    if constexpr (kPrepared) {
      token_of(turn).load(b.stage, chunk, s.numbers);
    } else {
      token_of(turn).make(b, chunk, s.numbers);
      __syncthreads();  // SYNC: gates are there
      if (tile::warp() == 0) sum_gates(s.numbers[tile::lane() / 16].G);
    }
  };
  if constexpr (kPrepared) {
    for (int half = 0; half < static_cast<int>(b.stage.K) / 64; ++half) {
      device::request_tile<kSolveThreads>(ptx::shared_address(s.k.block(half)), b.stage.k, chunk,
                                          keys, 0, int64_t{64} * half);
    }
    ptx::close_copies();
    put_numbers(first);
    ptx::wait_for_copies<0>();
  } else {
    LaneRows::request(s.k.bytes, b.raw_k, chunk, keys);
    LaneRows::request(s.q.bytes, b.raw_q, chunk, keys);
    put_numbers(first);
    prepare_rows(b, s, chunk, keys);
  }
  __syncthreads();  // SYNC: k and the first heads' numbers are there, and nobody reads q
  if constexpr (kSolve != Solve::kPrepare) {
    multiply_keys(s, static_cast<int>(b.stage.K) / 64);
    __syncthreads();  // SYNC: nobody reads k
  }
#pragma unroll 1
  for (int turn = first; turn < r; turn += 2 * step) {
    if (turn > first) {
      put_numbers(turn);
      __syncthreads();  // SYNC: numbers are there
    }
    if constexpr (!kPrepared) token_of(turn).store_sum(b, chunk, s.numbers);
    if constexpr (kSolve == Solve::kPrepare) {
      __syncthreads();  // SYNC: nobody reads numbers
    } else {
#pragma unroll 1
      for (int i = 0; i < 2 && turn + i * step < r; ++i) {
        solve_head(b, s, s.numbers[i], chunk, value_head(b.stage, keys, turn + i * step));
      }
    }
  }
}

/// Items are slots x key heads.
template <class Io, Solve kSolve>
__global__ void __launch_bounds__(kSolveThreads, kSolveCtas)
    solve_tiles_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  auto& s = *reinterpret_cast<SolveShared<Io>*>(ptx::dynamic_memory());
  // PERF the next kernel comes when this one has ended: both chains beside each other want the GPU's
  // own order of CTAs, which multiprocessors that become free one by one would shuffle.
  ptx::wait_for_dependencies();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    constexpr bool kWindow = kSolve == Solve::kWindow;
    const int64_t first = kWindow ? first_slot(b) : 0;
    const Chunk chunk = device::chunk_of(b.stage, first + item / b.stage.H);
    if (chunk.tokens == 0 || (kWindow && !is_inside(b.window, chunk))) continue;
    solve_item<Io, kSolve>(b, s, chunk, static_cast<int>(item % b.stage.H));
  }
  // WHY last: registers are left here.
  if constexpr (kSolve != Solve::kPrepare) clear_counts<kSolveThreads>(b);
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_SOLVE_TILES_CUH_
