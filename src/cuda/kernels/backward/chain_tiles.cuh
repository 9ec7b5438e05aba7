// Computes gradients of states by tensor cores, from the last chunk to the first, and of v_new.
//
// Math      dN += diag(exp(G_C - G)) k D', D = exp(G_C) D' + q^T diag(scale exp G) d_o - w^T dN
// Roles     a CTA of 256 threads has 16 kTiles (64 or 32) columns of D of one (sequence, head), in
//           registers in float32, as chunk_h has S (stages/states.cuh)
// Pipeline  64 tokens a step, the kRing - 1 before them on their way: D rounded -> barrier -> dh
//           out, dN -> barrier -> dN out, D += q^T d_o - w^T dN
// Memory    tiles of 8 KB: kRing blocks of k, w, q (2 each), dN and d_o; D (2)
// Floor     docs/kernels/backward.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_

#include "cuda/device/row_copies.cuh"
#include "cuda/kernels/backward/tiles.cuh"

namespace sluice::cuda::backward {

using device::RowCopies;

template <int kRing>
struct ChainTiles {
  struct Block {
    RowTiles k, w, q;
    uint8_t dN[kTileBytes], d_o[kTileBytes];
  };
  Block ring[kRing];
  RowTiles D;
  float G[device::kMostTokens];
};
static_assert(sizeof(ChainTiles<device::kWideRing>) <= chain_tile_bytes(false));
static_assert(sizeof(ChainTiles<device::kNarrowRing>) <= chain_tile_bytes(true));

/// What a CTA works on.
struct TileChainWork {
  int64_t head, column;  ///< column: the first of the CTA's
  int64_t seq, before;   ///< before: chunks of the sequences before
  Chunk last;            ///< the last chunk of the sequence
  int chunks;
};

template <int kTiles>
using Gradient = device::StatePart<kWidths, kTiles>;

/// Calls use(element of a pool's slot, number of D) for every number of a lane.
template <int kTiles, class Use>
__device__ __forceinline__ void for_each_element(const StageParams& p, const TileChainWork& work,
                                                 Gradient<kTiles>& D, const Use& use) {
  const int64_t column = work.column + 8 * kTiles * (tile::warp() / 4);
  device::for_each_state_number<kWidths, kTiles>(D, [&](int k, int c, float& x) {
    use(work.head * p.K * p.V + k * p.row_step + (column + c) * p.column_step, x);
  });
}

/// The rows that a CTA reads and writes, the last 64 tokens first.
template <int kColumns>
struct ChainRows {
  RowCopies<64> k, w, q;
  RowCopies<kColumns> d_o, from, to;  ///< from, to: dN, read ahead of what is written
  __device__ __forceinline__ ChainRows(const BackwardParams& b, const TileChainWork& work)
      : k(b.stage.k, work.last, device::key_head(b.stage, work.head), 0),
        w(b.stage.w, work.last, work.head, 0),
        q(b.stage.q, work.last, device::key_head(b.stage, work.head), 0),
        d_o(b.d_o, work.last, work.head, work.column),
        from(b.dN, work.last, work.head, work.column),
        to(b.dN, work.last, work.head, work.column) {}

  /// Requests chunk `number`, of which `tokens` exist, and goes to the one before.
  template <class Block>
  __device__ __forceinline__ void request(const BackwardParams& b, Block& block, int number,
                                          int tokens) {
    if (number >= 0) {
      k.template request<kWidths>(block.k.at(0), tokens);
      if (b.delta_rule) w.template request<kWidths>(block.w.at(0), tokens);
      q.template request<kWidths>(block.q.at(0), tokens);
      from.request(ptx::shared_address(block.dN), tokens);
      d_o.request(ptx::shared_address(block.d_o), tokens);
      k.retreat(), w.retreat(), q.retreat(), from.retreat(), d_o.retreat();
    }
    ptx::close_copies();  // of nothing before the first, so that there is one a step
  }
};

/// D, rounded, of chunk `number` to dh.
template <int kColumns>
__device__ __forceinline__ void store_gradient(const BackwardParams& b, const TileChainWork& work,
                                               const RowTiles& D, int number) {
  using Map = device::PieceMap<kColumns>;
  Chunk chunk = work.last;
  chunk.number = number;
  auto* const to = static_cast<uint16_t*>(b.dh.data) +
                   device::state_at(b.stage, chunk, work.before, work.head) + work.column +
                   Map::row() * b.stage.V + 8 * Map::piece();
#pragma unroll
  for (int i = 0; i < kWidths * Map::kEach; ++i) {
    *reinterpret_cast<uint4*>(to + i * Map::kRowsApart * b.stage.V) =
        *reinterpret_cast<const uint4*>(D.tile[i / Map::kEach] + Map::place() +
                                        static_cast<uint32_t>(i % Map::kEach) * Map::kTileStep);
  }
}

/// A thread's sum of gates of a chunk, that of token t; those past the end are the last one's.
__device__ __forceinline__ float request_sum(const StageParams& p, const TileChainWork& work,
                                             int number) {
  const auto token = static_cast<int>(threadIdx.x);
  if (p.g_cumsum.data == nullptr || token >= device::kMostTokens || number < 0) return 0.0f;
  Chunk chunk = work.last;
  const int back = work.chunks - 1 - number;
  chunk.row -= int64_t{kTokens} * back;
  if (back > 0) chunk.tokens = kTokens;
  return device::token_number(p.g_cumsum, chunk, work.head, min(token, chunk.tokens - 1));
}

/// dN of the warp's 16 rows and 8 kTiles columns, rounded, in the place of what is inside the
/// chunk; d_o gets scale exp(G), rounded again.
template <class Io, int kTiles, int kRing>
__device__ __forceinline__ void complete_values(const BackwardParams& b, ChainTiles<kRing>& s,
                                                int turn) {
  auto& block = s.ring[turn];
  const int row = 16 * (tile::warp() % 4), column = 8 * kTiles * (tile::warp() / 4);
  WarpAccumulator<kTiles> part;
  part.clear();
#pragma unroll
  for (int w = 0; w < kWidths; ++w) {
    product<Io, false, false, kTiles>(part, block.k.at(w), row, s.D.at(w), column);
  }
  const float* const G = s.G + row + tile::lane_row();
  const float last = s.G[device::kMostTokens - 1];
  part.scale_rows(decay(last - G[0]), decay(last - G[8]));
  const float low = b.stage.scale * decay(G[0]), high = b.stage.scale * decay(G[8]);
  const uint32_t d_o = ptx::shared_address(block.d_o);
  part.for_each_pair([&](int i, int j, float& x, float& y) {
    const float2 inside = pair_at<Io>(block.dN, row + i, column + j);
    x += inside.x, y += inside.y;
    const float2 given = pair_at<Io>(block.d_o, row + i, column + j);
    const float factor = i >= 8 ? high : low;
    ptx::store_shared_4(tile::pair_address(d_o, row + i, column + j),
                        tile::Packed<Io>::pack(given.x * factor, given.y * factor));
  });
  tile::put_part<Io>(ptx::shared_address(block.dN), row, column, part);
}

/// D += q^T d_o - w^T dN of a block.
template <class Io, int kTiles, class Block>
__device__ __forceinline__ void add_chunk(bool delta_rule, Gradient<kTiles>& D,
                                          const Block& block) {
  const int row = 16 * (tile::warp() % 4), column = 8 * kTiles * (tile::warp() / 4);
  const uint32_t dN = ptx::shared_address(block.dN), d_o = ptx::shared_address(block.d_o);
#pragma unroll
  for (int term = 0; term < 64; term += 16) {
#pragma unroll
    for (int w = 0; w < kWidths; ++w) {
      uint32_t a[4];
      tile::load_left_turned(a, block.q.at(w), row, term);
      tile::multiply_step<Io, false, kTiles>(D[w], a, d_o, term, column);
      if (!delta_rule) continue;
      tile::load_left_turned(a, block.w.at(w), row, term);
#pragma unroll
      for (uint32_t& pair : a) pair ^= 0x80008000u;  // both numbers change their sign
      tile::multiply_step<Io, false, kTiles>(D[w], a, dN, term, column);
    }
  }
}

/// All chunks of a sequence.
template <class Io, int kTiles, int kRing>
__device__ __forceinline__ void walk_back(const BackwardParams& b, const TileChainWork& work,
                                          ChainTiles<kRing>& s, Gradient<kTiles>& D) {
  constexpr int kColumns = 16 * kTiles, kAhead = kRing - 1;
  const int column = 8 * kTiles * (tile::warp() / 4), last = work.chunks - 1;
  const auto tokens = [&](int number) { return number == last ? work.last.tokens : kTokens; };
  ChainRows<kColumns> rows(b, work);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) rows.request(b, s.ring[i], last - i, tokens(last - i));
  float sum = request_sum(b.stage, work, last);
  for (int number = last, turn = 0; number >= 0; --number, turn = (turn + 1) % kRing) {
#pragma unroll
    for (int w = 0; w < kWidths; ++w) {
      tile::put_part<Io>(s.D.at(w), 16 * (tile::warp() % 4), column, D[w]);
    }
    if (threadIdx.x < device::kMostTokens) s.G[threadIdx.x] = sum;
    sum = request_sum(b.stage, work, number - 1);
    ptx::wait_for_copies<kAhead - 1>();
    __syncthreads();  // SYNC: tokens, D and G are there, nobody reads the last turn's tokens
    rows.request(b, s.ring[(turn + kAhead) % kRing], number - kAhead, tokens(number - kAhead));
    store_gradient<kColumns>(b, work, s.D, number);
    device::scale_carried<kWidths, kTiles>(D, decay(s.G[device::kMostTokens - 1]));
    complete_values<Io, kTiles>(b, s, turn);
    __syncthreads();  // SYNC: dN and d_o are there, nobody reads D or G
    rows.to.store(s.ring[turn].dN, tokens(number));
    rows.to.retreat();
    add_chunk<Io, kTiles>(b.delta_rule, D, s.ring[turn]);
  }
}

/// Items are sequences x heads x 16 kTiles columns of V.
template <class Io, int kTiles>
__global__ void __launch_bounds__(kThreads, 1)
    chain_tiles_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  constexpr int kRing = kTiles == 4 ? device::kWideRing : device::kNarrowRing;
  auto& s = *reinterpret_cast<ChainTiles<kRing>*>(dynamic_shared);
  const StageParams& p = b.stage;
  const int64_t slices = p.V / (16 * kTiles);
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    TileChainWork work{};
    work.head = item / slices % p.HV;
    work.column = item % slices * (16 * kTiles);
    work.seq = item / slices / p.HV;
    const int64_t tokens = device::tokens_of(p, work.seq, &work.last);
    work.before = device::chunks_before(p, work.seq);
    work.chunks = static_cast<int>((tokens + kTokens - 1) / kTokens);
    work.last.row += int64_t{kTokens} * (work.chunks - 1);
    work.last.tokens = static_cast<int>(tokens - int64_t{kTokens} * (work.chunks - 1));
    Gradient<kTiles> D;
    const auto& given = b.d_final.pool;
    for_each_element<kTiles>(p, work, D, [&](int64_t element, float& x) {
      x = given.data == nullptr
              ? 0.0f
              : device::load_number(given.data, work.seq * given.slot_stride + element,
                                    given.number);
    });
    if (work.chunks > 0) walk_back<Io, kTiles>(b, work, s, D);
    const auto& out = b.dinitial.pool;
    if (out.data != nullptr) {
      for_each_element<kTiles>(p, work, D, [&](int64_t element, float& x) {
        device::store_number(out.data, work.seq * out.slot_stride + element, out.number, x);
      });
    }
    __syncthreads();
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_TILES_CUH_
