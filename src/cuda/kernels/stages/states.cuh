// Runs chunk_h of 16-bit numbers by tensor cores: the chain of states.
//
// Math      h = S, v_new = u - w S, S <- exp(G_C) S + k^T diag(exp(G_C - G)) v_new; key-wise gates,
//           k scaled before: S <- diag(exp(G_C)) S + k^T v_new
// Roles     a CTA of 256 threads has 16 kTiles (64 or 32) columns of S of one (sequence, head); S
//           is in registers in float32: warp w has rows 16 (w % 4) + 64 b and 8 kTiles columns,
//           those from 8 kTiles (w / 4) on
// Pipeline  tokens go by in blocks of 64, the next kRing - 1 on their way, gates a chunk earlier:
//           S rounded -> barrier -> h out, v_new = u - w S -> barrier -> v_new out, S += k^T v_new
// Memory    tiles of 8 KB: kRing blocks of w, k (K / 64 each) and u, S (K / 64), v_new. Two blocks
//           are 105 KB at K = 128, so that two CTAs share a multiprocessor; a CTA of 32 columns,
//           whose steps are shorter than the latency of memory, has three and a multiprocessor for
//           itself
// Floor     docs/kernels/stages.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_STATES_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_STATES_CUH_

#include "cuda/device/carried_state.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/device/row_copies.cuh"
#include "cuda/kernels/stages/config.h"

namespace sluice::cuda::stages {

using device::add_tokens, device::at, device::Chunk, device::chunks_before, device::decay;
using device::key_head, device::kLaneTokens, device::kMostTokens, device::LaneGates;
using device::load_carried, device::PieceMap, device::put_sums, device::RowCopies;
using device::scale_carried, device::slots_of, device::StageParams, device::state_at;
using device::StatePart, device::store_carried, device::token_number, device::TokenRows;
using device::tokens_of;
using tile::lane, tile::lane_row, tile::multiply, tile::WarpAccumulator;
using tile::put_part, tile::warp;

/// Shared memory, tiles first. kBlocks: K / 64.
template <int kBlocks, int kRing>
struct StatesMemory {
  struct Block {
    uint8_t w[kBlocks][kTileBytes], k[kBlocks][kTileBytes], u[kTileBytes];
  };
  Block ring[kRing];
  uint8_t S[kBlocks][kTileBytes], v_new[kTileBytes];
  float G[kMostTokens];
  float gates[kMostTokens];  ///< what the next chunk's G comes from
};

/// What a CTA works on.
struct StatesWork {
  int64_t head, keys, column, before;  ///< column: the first of the CTA's
  Chunk sequence;                      ///< all of its tokens as one chunk
};

/// The states that enter chunks, of a CTA's columns, one after the other.
template <int kBlocks, int kColumns>
class StateCopies {
 public:
  using Map = PieceMap<kColumns>;
  __device__ __forceinline__ StateCopies(const StageParams& p, const StatesWork& work)
      : p_(p), room_(p.h.room - work.before) {
    Chunk chunk = work.sequence;
    chunk.number = 0;
    place_ = static_cast<uint16_t*>(p.h.data) + state_at(p, chunk, work.before, work.head) +
             work.column + Map::row() * p.V + 8 * Map::piece();
  }
  /// Stores S, rounded, or zeros, as the next chunk's.
  __device__ __forceinline__ void store(const uint8_t (&S)[kBlocks][kTileBytes], bool zeros) {
    if (--room_ < 0) return;
#pragma unroll
    for (int i = 0; i < kBlocks * Map::kEach; ++i) {
      const uint8_t* const from =
          S[i / Map::kEach] + Map::place() + static_cast<uint32_t>(i % Map::kEach) * Map::kTileStep;
      *reinterpret_cast<uint4*>(place_ + i * Map::kRowsApart * p_.V) =
          zeros ? uint4{} : *reinterpret_cast<const uint4*>(from);
    }
    place_ += p_.h.chunk_stride;
  }

 private:
  const StageParams& p_;
  uint16_t* place_;
  int64_t room_;
};

/// Outputs of a padded sequence.
template <int kBlocks, int kColumns, int kRing>
__device__ __forceinline__ void zero_states(const StageParams& p, const StatesWork& work,
                                            const StatesMemory<kBlocks, kRing>& s) {
  const int tokens = work.sequence.tokens;
  if (p.h.data != nullptr) {
    StateCopies<kBlocks, kColumns> h(p, work);
    for (int64_t c = 0; c * p.C < tokens; ++c) h.store(s.S, true);
  }
  if (p.v_new.data == nullptr) return;
  auto* v_new = static_cast<uint16_t*>(p.v_new.data) +
                at(p.v_new, work.sequence.batch, work.sequence.row, work.head) + work.column;
  constexpr int kPieces = kColumns / 8;
  for (int64_t i = threadIdx.x; i < int64_t{tokens} * kPieces; i += kChainThreads) {
    *reinterpret_cast<uint4*>(v_new + i / kPieces * p.v_new.token_stride + i % kPieces * 8) =
        uint4{};
  }
}

/// v_new of the warp's 16 rows and 8 kTiles columns of a block: to u's place where it is wanted,
/// and scaled by exp(G_C - G_i) to s.v_new. G starts at the block.
template <class Io, int kTiles, int kBlocks, int kRing>
__device__ __forceinline__ void correct_values(const StageParams& p,
                                               StatesMemory<kBlocks, kRing>& s, int turn,
                                               const float* G, float last) {
  using P = tile::Packed<Io>;
  auto& block = s.ring[turn];
  const int row = 16 * (warp() % 4), column = 8 * kTiles * (warp() / 4);
  const uint32_t u = ptx::shared_address(block.u);
  WarpAccumulator<kTiles> part;
  part.clear();
  if (p.w.data != nullptr) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      multiply<Io, false, kTiles>(part, ptx::shared_address(block.w[b]), row,
                                  ptx::shared_address(s.S[b]), column);
    }
  }
  part.for_each_pair([&](int i, int j, float& x, float& y) {
    const uint32_t word = *reinterpret_cast<const uint32_t*>(
        block.u +
        tile::swizzled_element(static_cast<uint32_t>(row + i), static_cast<uint32_t>(column + j)));
    x = P::first(word) - x, y = P::second(word) - y;
  });
  // Each number in its u's place, by the same thread.
  if (p.v_new.data != nullptr) put_part<Io>(u, row, column, part);
  part.scale_rows(decay(last - G[row + lane_row()]), decay(last - G[row + lane_row() + 8]));
  put_part<Io>(ptx::shared_address(s.v_new), row, column, part);
}

/// The rows that a CTA reads and writes, 64 tokens at a time.
template <int kColumns>
struct StatesRows {
  RowCopies<64> k, w;
  RowCopies<kColumns> u, v_new;
  __device__ __forceinline__ StatesRows(const StageParams& p, const StatesWork& work)
      : k(p.k, work.sequence, work.keys, 0),
        w(p.w, work.sequence, work.head, 0),
        u(p.values, work.sequence, work.head, work.column),
        v_new(p.v_new, work.sequence, work.head, work.column) {}

  /// Requests the next 64 tokens, of which `left` exist.
  template <int kBlocks, class Block>
  __device__ __forceinline__ void request(const StageParams& p, Block& block, int left) {
    if (left > 0) {
      k.template request<kBlocks>(ptx::shared_address(block.k[0]), left);
      if (p.w.data != nullptr) w.template request<kBlocks>(ptx::shared_address(block.w[0]), left);
      u.request(ptx::shared_address(block.u), left);
      k.advance(), w.advance(), u.advance();
    }
    ptx::close_copies();  // of nothing past the end, so that there is one a step
  }
};

/// A thread's gate of a chunk, or its sum where sums are given, on its way: that of token t.
__device__ __forceinline__ float request_gate(const StageParams& p, const Chunk& chunk,
                                              int64_t head) {
  const TokenRows& rows = p.g_cumsum.data != nullptr ? p.g_cumsum : p.gate;
  const auto token = static_cast<int>(threadIdx.x);
  if (rows.data == nullptr || token >= kMostTokens) return 0.0f;
  if (token < chunk.tokens) return token_number(rows, chunk, head, token);
  return p.g_cumsum.data != nullptr ? token_number(rows, chunk, head, chunk.tokens - 1) : 0.0f;
}
template <int kBlocks, int kRing>
__device__ __forceinline__ void put_gates(StatesMemory<kBlocks, kRing>& s, float gate) {
  if (threadIdx.x < kMostTokens) s.gates[threadIdx.x] = gate;
}
template <int kBlocks, int kRing>
__device__ __forceinline__ LaneGates lane_gates(const StatesMemory<kBlocks, kRing>& s) {
  const float4 x = *reinterpret_cast<const float4*>(s.gates + lane() * kLaneTokens);
  return {{x.x, x.y, x.z, x.w}};
}

/// exp(G_C) of the lane's rows of S, key-wise: of the chunk that begins at token row0.
template <int kBlocks>
__device__ __forceinline__ void load_row_decays(const StageParams& p, const StatesWork& work,
                                                int row0, float (&decays)[kBlocks][2]) {
  const int64_t end = min(row0 + p.C, work.sequence.tokens) - 1;
  const float* const G = static_cast<const float*>(p.g_cumsum.data) +
                         at(p.g_cumsum, work.sequence.batch, work.sequence.row + end, work.head);
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i) {
    decays[i / 2][i % 2] =
        decay(__ldg(G + i / 2 * 64 + 16 * (warp() % 4) + lane_row() + i % 2 * 8));
  }
}
template <int kBlocks, int kTiles>
__device__ __forceinline__ void scale_rows(StatePart<kBlocks, kTiles>& S,
                                           const float (&decays)[kBlocks][2]) {
#pragma unroll
  for (int b = 0; b < kBlocks; ++b) S[b].scale_rows(decays[b][0], decays[b][1]);
}

/// All tokens of a sequence, 64 at a time. kKeyWise: gates are, and k is scaled already
/// (scale_keys.cuh).
template <class Io, int kTiles, bool kKeyWise, int kBlocks, int kRing>
__device__ __forceinline__ void walk_states(const StageParams& p, const StatesWork& work,
                                            StatesMemory<kBlocks, kRing>& s,
                                            StatePart<kBlocks, kTiles>& S) {
  constexpr int kColumns = 16 * kTiles, kAhead = kRing - 1;
  const int tokens = work.sequence.tokens, column = 8 * kTiles * (warp() / 4), C = p.C;
  const auto gate_from = [&](int row0) {
    if (kKeyWise) return 0.0f;
    Chunk chunk = work.sequence;
    chunk.row += row0;
    chunk.tokens = min(tokens - row0, C);
    return chunk.tokens > 0 ? request_gate(p, chunk, work.head) : 0.0f;
  };
  StatesRows<kColumns> rows(p, work);
  StateCopies<kBlocks, kColumns> h(p, work);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    rows.template request<kBlocks>(p, s.ring[i], tokens - i * kRows);
  }
  put_gates(s, gate_from(0));
  float gate = gate_from(C);
  __syncthreads();
  for (int row0 = 0, turn = 0; row0 < tokens; row0 += kRows, turn = (turn + 1) % kRing) {
    const int inside = row0 % C, left = tokens - row0;  // inside: the chunk's
    [[maybe_unused]] float row_decays[kBlocks][2];
    if (inside == 0) {
      if constexpr (kKeyWise) load_row_decays(p, work, row0, row_decays);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        put_part<Io>(ptx::shared_address(s.S[b]), 16 * (warp() % 4), column, S[b]);
      }
      if (warp() == 0) put_sums(p, lane_gates(s), s.G);
    }
    ptx::wait_for_copies<kAhead - 1>();
    __syncthreads();  // SYNC: tokens, S and G are there, nobody reads the last turn's tokens
    rows.template request<kBlocks>(p, s.ring[(turn + kAhead) % kRing], left - kAhead * kRows);
    const float last = s.G[kMostTokens - 1];
    if (inside == 0) {
      if (p.h.data != nullptr) h.store(s.S, false);
      if constexpr (kKeyWise) {
        scale_rows<kBlocks, kTiles>(S, row_decays);
      } else {
        scale_carried<kBlocks, kTiles>(S, decay(last));
      }
    }
    correct_values<Io, kTiles>(p, s, turn, s.G + inside, last);
    if (inside + kRows == C) {
      put_gates(s, gate);
      gate = gate_from(row0 + kRows + C);
    }
    __syncthreads();  // SYNC: v_new and gates are there, nobody reads S or G
    if (p.v_new.data != nullptr) rows.v_new.store(s.ring[turn].u, left), rows.v_new.advance();
    add_tokens<Io, false, kBlocks, kTiles>(S, ptx::shared_address(s.ring[turn].k[0]),
                                           ptx::shared_address(s.v_new), column, nullptr, 0.0f);
  }
}

/// CTAs that share a multiprocessor. GPUs before Hopper have no room for two, and no registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kWideStates = 1;
#else
inline constexpr int kWideStates = 2;
#endif

/// Items are sequences x heads x 16 kTiles columns of V.
template <class Io, int kBlocks, int kTiles, bool kKeyWise = false>
__global__ void __launch_bounds__(kChainThreads, kTiles == 4 && kBlocks == 2 ? kWideStates : 1)
    states_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  constexpr int kColumns = 16 * kTiles, kRing = kColumns == 64 ? kWideRing : kNarrowRing;
  auto& s = *reinterpret_cast<StatesMemory<kBlocks, kRing>*>(dynamic_shared);
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
      zero_states<kBlocks, kColumns>(p, work, s);
      continue;
    }
    const int64_t column = work.column + 8 * kTiles * (warp() / 4);
    StatePart<kBlocks, kTiles> S;
    load_carried<kBlocks, kTiles>(p, slots.read, work.head, column, S);
    if (work.sequence.tokens > 0) walk_states<Io, kTiles, kKeyWise>(p, work, s, S);
    // WHY again: registers that nobody had in between.
    store_carried<kBlocks, kTiles>(p, slots_of(p, seq).write, work.head, column, S);
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_STATES_CUH_
