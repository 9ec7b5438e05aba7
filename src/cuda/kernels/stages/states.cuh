// chunk_h of 16-bit numbers by tensor cores: the chain of states.
//
// Math      h = S, v_new = u - w S, S <- exp(G_C) S + k^T diag(exp(G_C - G)) v_new
// Roles     a CTA of 256 threads has 64 columns of S of one (sequence, head); S is in registers in
//           float32: warp w has rows 16 (w % 4) + 64 b and columns 32 (w / 4) .. + 31
// Pipeline  tokens go by in blocks of 64, the next one on its way:
//           S rounded -> barrier -> h out, v_new = u - w S -> barrier -> S += k^T v_new
// Memory    tiles of 8 KB: two blocks of w, k (K / 64 each) and u, S (K / 64), v_new: 104 KB at K =
//           128
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_STATES_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_STATES_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/stages/carry.cuh"

namespace sluice::cuda::stages {

/// Shared memory, tiles first. kBlocks: K / 64.
template <int kBlocks>
struct StatesMemory {
  struct Block {
    uint8_t w[kBlocks][kTileBytes], k[kBlocks][kTileBytes], u[kTileBytes];
  };
  Block ring[2];
  uint8_t S[kBlocks][kTileBytes], v_new[kTileBytes];
  float G[kMostTokens];
};

/// What a CTA works on.
struct StatesWork {
  int64_t head, keys, column, before;  ///< column: the first of 64
  Chunk sequence;                      ///< all of its tokens as one chunk
};

template <int kBlocks>
__device__ __forceinline__ void request_block(const StageParams& p, const StatesWork& work,
                                              int row0, StatesMemory<kBlocks>& s, int turn) {
  auto& block = s.ring[turn];
#pragma unroll 1  // WHY: addresses of all tiles at once would spill
  for (int b = 0; b < kBlocks; ++b) {
    request_tile<kChainThreads>(ptx::shared_address(block.k[b]), p.k, work.sequence, work.keys,
                                row0, b * kColumns);
    if (p.w.data == nullptr) continue;
    request_tile<kChainThreads>(ptx::shared_address(block.w[b]), p.w, work.sequence, work.head,
                                row0, b * kColumns);
  }
  request_tile<kChainThreads>(ptx::shared_address(block.u), p.values, work.sequence, work.head,
                              row0, work.column);
  ptx::close_copies();
}

/// Writes S, rounded, to its chunk's place in h; zeros where a sequence is padded.
template <int kBlocks>
__device__ __forceinline__ void store_chunk_state(const StageParams& p, const StatesWork& work,
                                                  int64_t number, const StatesMemory<kBlocks>& s,
                                                  bool zeros) {
  Chunk chunk = work.sequence;
  chunk.number = number;
  auto* h =
      static_cast<uint16_t*>(p.h.data) + state_at(p, chunk, work.before, work.head) + work.column;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < kBlocks * 512; i += kChainThreads) {
    const int b = i / 512, row = i % 512 / 8, piece = i % 8;
    const uint32_t from =
        tile::swizzled_piece(static_cast<uint32_t>(row), static_cast<uint32_t>(piece));
    const uint4 words = zeros ? uint4{} : *reinterpret_cast<const uint4*>(s.S[b] + from);
    *reinterpret_cast<uint4*>(h + (b * 64 + row) * p.V + 8 * piece) = words;
  }
}

/// Outputs of a padded sequence.
template <int kBlocks>
__device__ __forceinline__ void zero_states(const StageParams& p, const StatesWork& work,
                                            const StatesMemory<kBlocks>& s) {
  const int tokens = work.sequence.tokens;
  if (p.h.data != nullptr) {
    for (int64_t c = 0; c * p.C < tokens; ++c) store_chunk_state<kBlocks>(p, work, c, s, true);
  }
  if (p.v_new.data == nullptr) return;
  auto* v_new = static_cast<uint16_t*>(p.v_new.data) +
                at(p.v_new, work.sequence.batch, work.sequence.row, work.head) + work.column;
  for (int64_t i = threadIdx.x; i < int64_t{tokens} * 8; i += kChainThreads) {
    *reinterpret_cast<uint4*>(v_new + i / 8 * p.v_new.token_stride + i % 8 * 8) = uint4{};
  }
}

/// v_new of the warp's 16 rows and 32 columns of a block: to global memory, and scaled by exp(G_C -
/// G_i) to s.v_new. G starts at the block.
template <class Io, int kBlocks>
__device__ __forceinline__ void correct_values(const StageParams& p, const StatesWork& work,
                                               int row0, StatesMemory<kBlocks>& s, int turn,
                                               const float* G, float last) {
  using P = tile::Packed<Io>;
  auto& block = s.ring[turn];
  const int row = 16 * (warp() % 4), column = 32 * (warp() / 4);
  const uint32_t u = ptx::shared_address(block.u);
  Part<4> part;
  clear<4>(part);
#pragma unroll 1
  for (int b = 0; b < kBlocks && p.w.data != nullptr; ++b) {
    multiply<Io, false, 4>(part, ptx::shared_address(block.w[b]), row, ptx::shared_address(s.S[b]),
                           column);
  }
  for_each_pair<4>(part, [&](int i, int j, float& x, float& y) {
    const uint32_t word = *reinterpret_cast<const uint32_t*>(
        block.u +
        tile::swizzled_element(static_cast<uint32_t>(row + i), static_cast<uint32_t>(column + j)));
    x = P::first(word) - x, y = P::second(word) - y;
  });
  if (p.v_new.data != nullptr) {
    put_part<Io, 4>(u, row, column, part);  // each number in its u's place, by the same thread
    store_rows<4>(block.u, row, column, p.v_new, work.sequence, work.head, row0 + row,
                  work.column + column);
  }
  for_each_pair<4>(part, [&](int i, int, float& x, float& y) {
    const float factor = decay(last - G[row + i]);
    x *= factor, y *= factor;
  });
  put_part<Io, 4>(ptx::shared_address(s.v_new), row, column, part);
}

/// All tokens of a sequence, 64 at a time.
template <class Io, int kBlocks>
__device__ __forceinline__ void walk_states(const StageParams& p, const StatesWork& work,
                                            StatesMemory<kBlocks>& s, StatePart<kBlocks, 4>& S) {
  const int tokens = work.sequence.tokens, column = 32 * (warp() / 4), C = p.C;
  const auto gates_from = [&](int row0) {
    Chunk chunk = work.sequence;
    chunk.row += row0;
    chunk.tokens = min(tokens - row0, C);
    return request_gates(p, chunk, work.head);
  };
  request_block<kBlocks>(p, work, 0, s, 0);
  LaneGates gates{};
  if (warp() == 0) gates = gates_from(0);
  for (int row0 = 0, turn = 0; row0 < tokens; row0 += kRows, turn ^= 1) {
    const int inside = row0 % C;  // the chunk's
    if (inside == 0) {
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        put_part<Io, 4>(ptx::shared_address(s.S[b]), 16 * (warp() % 4), column, S[b]);
      }
      if (warp() == 0) put_sums(p, gates, s.G);
    }
    ptx::wait_for_copies<0>();
    __syncthreads();  // SYNC: tokens, S and G are there, nobody reads the other turn's tokens
    if (row0 + kRows < tokens) request_block<kBlocks>(p, work, row0 + kRows, s, turn ^ 1);
    const bool next = inside + kRows == C && row0 + kRows < tokens;
    if (warp() == 0 && next) gates = gates_from(row0 + kRows);
    const float last = s.G[kMostTokens - 1];
    if (inside == 0) {
      if (p.h.data != nullptr) store_chunk_state<kBlocks>(p, work, row0 / C, s, false);
      scale_carried<kBlocks, 4>(S, decay(last));
    }
    correct_values<Io, kBlocks>(p, work, row0, s, turn, s.G + inside, last);
    __syncthreads();  // SYNC: v_new is there, nobody reads S or G
    add_tokens<Io, false, kBlocks, 4>(S, ptx::shared_address(s.ring[turn].k[0]),
                                      ptx::shared_address(s.v_new), column, nullptr, 0.0f);
  }
}

/// Items are sequences x heads x 64 columns of V.
template <class Io, int kBlocks>
__global__ void __launch_bounds__(kChainThreads, 1)
    states_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<StatesMemory<kBlocks>*>(dynamic_shared);
  const int64_t slices = p.V / kColumns;
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    StatesWork work{};
    work.head = item / slices % p.HV;
    work.keys = key_head(p, work.head);
    work.column = item % slices * kColumns;
    const int64_t seq = item / slices / p.HV;
    work.sequence.tokens = static_cast<int>(tokens_of(p, seq, &work.sequence));
    if (p.h.data != nullptr) work.before = chunks_before(p, seq);
    const device::Sequence slots = slots_of(p, seq);
    if (slots.padded) {
      zero_states<kBlocks>(p, work, s);
      continue;
    }
    const int64_t column = work.column + 32 * (warp() / 4);
    StatePart<kBlocks, 4> S;
    load_carried<kBlocks, 4>(p, slots.read, work.head, column, S);
    if (work.sequence.tokens > 0) walk_states<Io, kBlocks>(p, work, s, S);
    store_carried<kBlocks, 4>(p, slots.write, work.head, column, S);
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_STATES_CUH_
