// States tiles, shared memory and parameters of the kernels of chunk_backward by tensor cores.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_TILE_CONFIG_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_TILE_CONFIG_H_

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/params.h"
#include "cuda/tile/pipeline.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::backward {

/// 64 tokens of kColumns numbers, 64 tokens of as many tokens, a state [k][v].
template <class Io, int kColumns = 128>
using TokenTile = tile::SwizzledTile<Io, kTokens, kColumns>;
template <class Io>
using SquareTile = tile::SwizzledTile<Io, kTokens, kTokens>;
template <class Io>
using StateTile = tile::SwizzledTile<Io, 128, 128>;

// ----------------------------------------------------------------------------------- solve ----

inline constexpr int kSolveThreads = 128, kSolveCtas = 6;  ///< CTAs: at a time on a multiprocessor
/// What a kernel does of its items: rows and numbers of tokens, B, or one after the other.
/// kWindow: as kSolve, of a window's chunks.
enum class Solve { kPrepare, kSolve, kBoth, kWindow };

/// Floats of a row of a block on the diagonal. WHY 4 more: rows start in banks of their own.
inline constexpr int kDiagonalRow = 20;

/// Of a head's tokens.
struct alignas(16) SolveNumbers {
  float G[kTokens], beta[kTokens];
};

/// Of k k^T the blocks of 16 x 16 from the diagonal down, lanes' numbers by fours; -A of a head's
/// blocks on the diagonal.
struct SolveProducts {
  float4 blocks[10][2][32];
  float diagonal[4][16][kDiagonalRow];

  __device__ __forceinline__ const float4 (&of(int row, int column) const)[2][32] {
    return blocks[row * (row + 1) / 2 + column];
  }
  __device__ __forceinline__ float4 (&of(int row, int column))[2][32] {
    return blocks[row * (row + 1) / 2 + column];
  }
};

template <class Io>
struct SolveShared {
  TokenTile<Io> k, q;
  SolveNumbers numbers[2];  ///< of two heads
  /// TwoPartTiles of a head, where k was.
  __device__ __forceinline__ uint8_t* parts() { return k.bytes; }
  /// Where q was.
  __device__ __forceinline__ SolveProducts& products() {
    return *reinterpret_cast<SolveProducts*>(q.bytes);
  }
};
static_assert(sizeof(SolveProducts) <= sizeof(TokenTile<uint16_t>));
static_assert(kSolveCtas * (sizeof(SolveShared<uint16_t>) + 1024) <= tile::kSharedBytesSm90 + 1024);

// ---------------------------------------------------------------------------------- chains ----

/// What goes along a sequence: states of the delta rule, from its first chunk to the last; or
/// gradients of states, the other way round, with or without a delta term.
enum class Chain { kStates, kDelta, kLinear };

/// A chain: dtype, columns of V that an item has.
template <class Io_, int kV_, Chain kChain_>
struct ChainConfig {
  using Io = Io_;
  static constexpr int kV = kV_, kGroups = kV / 64;
  static constexpr Chain kChain = kChain_;
  static constexpr bool kBack = kChain != Chain::kStates, kDelta = kChain != Chain::kLinear;
  static constexpr bool kWindows = false;
  /// Whether gradients are multiplied by powers of two inside: scale_tiles.cuh.
  static constexpr bool kScales = kBack && std::is_same_v<Io, __half>;
  static constexpr int kSlots = !kBack ? 4 : kGroups == 1 ? 3 : 2;
  /// Warps that make factors, chunks by turns. WHY no more than slots: with a chunk of the round
  /// after next in hand, parities of the ring's barriers would say nothing.
  static constexpr int kGateWarps = 2;
  static constexpr int kOutSlots = kGroups == 1 ? 2 : 1;  ///< tiles of rows that leave
  static constexpr int kFirstGroup = kBack ? 2 : 1;       ///< of warpgroups with states
  static constexpr int kThreads = 128 * (kFirstGroup + kGroups);
  static constexpr int kServiceRegisters = kGroups == 1 ? 96 : kBack ? 64 : 72;
  static constexpr int kScoreRegisters = kGroups == 1 ? 112 : 80;
  static constexpr int kStateRegisters = kGroups == 1 ? 232 : kBack ? 184 : 216;
};

/// A chain of a window's chunks.
template <class Io, Chain kChain>
struct WindowChainConfig : ChainConfig<Io, 64, kChain> {
  static constexpr bool kWindows = true;
};

/// One chunk's operands: v of states, d_o of gradients, later times scale exp(G), 64 columns a
/// tile. B: of e = R - B diag(beta) R, [i][j].
template <class C, Chain = C::kChain>
struct ChainSlot {
  TokenTile<typename C::Io> k;
  TokenTile<typename C::Io, 64> rows[C::kGroups];
  SquareTile<typename C::Io> B;
};
template <class C>
struct ChainSlot<C, Chain::kLinear> {
  TokenTile<typename C::Io> k, q;
  TokenTile<typename C::Io, 64> rows[C::kGroups];
};
template <class C>
struct ChainSlot<C, Chain::kDelta> : ChainSlot<C, Chain::kLinear> {
  SquareTile<typename C::Io> B;
};

/// Numbers of a chunk's tokens: sums of gates; exp(G_C - G), of states with beta; scale exp(G);
/// -exp(G), of gradients with beta; -beta; what Y is multiplied by in dv's tile.
struct alignas(16) ChainFactors {
  float G[kTokens], write[kTokens], query[kTokens], recall[kTokens], mix[kTokens], value[kTokens];
  float decay;  ///< exp(G_C)
  float gain;   ///< what gradients are multiplied by
};

/// P of gradients, [i][j], chunks by turns; d_o^T P, numbers of lanes by fours.
template <class C, bool = C::kBack>
struct ChainScores {
  SquareTile<typename C::Io> P[2];
  float4 inner[C::kGroups][8][128];
};
template <class C>
struct ChainScores<C, false> {};

template <class C>
struct ChainShared : ChainScores<C> {
  ChainSlot<C> slots[C::kSlots];
  tile::SwizzledTile<typename C::Io, 128, 64> state[C::kGroups];  ///< S, or D'
  TokenTile<typename C::Io, 64> out[C::kGroups][C::kOutSlots];    ///< e, or dv; chunks by turns
  ChainFactors factors[C::kSlots];
  alignas(8) tile::RingBarriers<C::kSlots> ring;
  tile::RingBarriers<1> score_ring;  ///< inner, and rows with their factors
  tile::RingBarriers<1> state_ring;
  tile::RingBarriers<C::kOutSlots> out_ring;
};
static_assert(sizeof(ChainShared<ChainConfig<uint16_t, 128, Chain::kStates>>) <=
              tile::kSharedBytesSm90);
static_assert(sizeof(ChainShared<ChainConfig<uint16_t, 128, Chain::kDelta>>) <=
              tile::kSharedBytesSm90);
static_assert(sizeof(ChainShared<ChainConfig<uint16_t, 64, Chain::kDelta>>) <=
              tile::kSharedBytesSm90);

/// Maps of what is absent are not looked at.
struct ChainParams {
  CUtensorMap q, k;   ///< boxes of 64 tokens x 128 columns
  CUtensorMap rows;   ///< v of states, d_o of gradients: boxes of 64 tokens x 64 columns
  CUtensorMap B;      ///< likewise
  CUtensorMap out;    ///< e of states, dv of gradients: likewise
  CUtensorMap state;  ///< boxes of 128 rows x 64 columns; chunks count as batch
  BackwardParams all;
  int32_t states_per_batch;  ///< states between those of neighbouring batch entries
  int32_t items;             ///< sequences, or what segments have to be computed, x heads x slices
  int32_t first_cta, ctas;   ///< those of the launch that have them, one after the other
  ChainPass pass;
};

/// Whether dv is brought from the chain's rows to the caller's by a launch of its own: of the delta rule,
/// of q's type, where the copy engine cannot write it. PERF the chain would store it number by number.
inline bool has_value_rows(const BackwardParams& p) noexcept {
  return p.delta_rule && p.dv.data != nullptr && p.dv.data != p.dv_tile.data &&
         p.dv.number == p.d_o.number;
}
/// The caller's dv, where a chain stores it number by number: other types, and simple GLA's.
inline TokenRows values_of_chain(const BackwardParams& p) noexcept {
  return p.dv.data == p.dv_tile.data || has_value_rows(p) ? TokenRows{} : p.dv;
}

/// Deals a chain's items, of 128 columns of V or 64, to at most that many CTAs of a launch.
inline void deal_items(bool wide, bool states, int first_cta, int64_t most,
                       ChainParams* p) noexcept {
  const StageParams& s = p->all.stage;
  p->items = static_cast<int32_t>(
      chain_items(p->all.cut, p->pass, states, s.N, s.HV, s.V / (wide ? 128 : 64)));
  p->first_cta = first_cta;
  p->ctas = static_cast<int32_t>(p->items < most ? p->items : most);
}

/// Both chains of the delta rule, neither of which reads what the other writes.
struct BothChainsParams {
  ChainParams gradients, states;
};

// ------------------------------------------------------------------------------- gradients ----

/// Gradients of chunks: dtype, and whether the rule has a delta term.
template <class Io_, bool kDelta_>
struct GradientConfig {
  using Io = Io_;
  static constexpr bool kDelta = kDelta_, kScales = std::is_same_v<Io, __half>;
  static constexpr bool kWindows = false;
  static constexpr int kRowSlots = 2, kFactorSlots = 2, kSumSlots = 2, kWorkSlots = 4;
  static constexpr int kThreads = 384;
  static constexpr int kServiceRegisters = 56, kProductRegisters = 224;
  static constexpr uint32_t kWorkReaders = 11;  ///< warps but the loader
};

/// Those of a window's chunks.
template <class Io>
struct WindowGradientConfig : GradientConfig<Io, true> {
  static constexpr bool kWindows = true;
};

/// A chunk and a key head. tokens = 0: no more work.
struct GradientItem {
  int32_t sequence, batch, row, tokens;
  int32_t key, number;  ///< number: among all chunks, which S and D' are counted by without windows
};

/// Operands of one value head. e: with simple GLA v.
template <class C, bool = C::kDelta>
struct GradientRows {
  TokenTile<typename C::Io> d_o, e;
};
template <class C>
struct GradientRows<C, true> : GradientRows<C, false> {
  TokenTile<typename C::Io> dv;
};

/// Numbers of a head's tokens: sums of gates; beta; scale exp(G), -exp(G), beta exp(G_C - G);
/// of dv what ValueStrength has to undo, which -exp(G) does, and what it stored.
struct alignas(16) GradientFactors {
  float G[kTokens], beta[kTokens], query[kTokens], recall[kTokens], write[kTokens], undo[kTokens],
      stored[kTokens];
  float score;  ///< scale, times what gradients are multiplied by
  float back;   ///< one over that
};
/// Rows of products of a head: q . dQ, k . P, k . R, k . (what P has of D'), e . dv, and <S, D'>,
/// which two warps share.
struct GradientSums {
  float query[kTokens], key[kTokens], correction[kTokens], leave[kTokens], value[kTokens],
      product[2];
};

template <class C>
struct GradientShared {
  TokenTile<typename C::Io> q, k;  ///< what comes, then what leaves
  GradientRows<C> rows[C::kRowSlots];
  StateTile<typename C::Io> S, D;
  SquareTile<typename C::Io> X, Z;  ///< [i][j]
  GradientFactors factors[C::kFactorSlots];
  GradientSums sums[C::kSumSlots];
  GradientItem work[C::kWorkSlots];
  alignas(8) tile::RingBarriers<C::kRowSlots> row_ring;
  tile::RingBarriers<1> key_ring, S_ring, D_ring, square_ring;
  tile::RingBarriers<1> ready_ring;  ///< no row of q and k is another sequence's; never empty
  tile::RingBarriers<C::kFactorSlots> factor_ring;
  tile::RingBarriers<C::kSumSlots> sum_ring;
  tile::RingBarriers<C::kWorkSlots> work_ring;
};
static_assert(sizeof(GradientShared<GradientConfig<uint16_t, true>>) <= tile::kSharedBytesSm90);

struct GradientParams {
  CUtensorMap q, k, d_o, e, dv;  ///< boxes of 64 tokens x 128 columns
  CUtensorMap S, D;              ///< boxes of 128 rows x 128 columns; chunks count as batch
  BackwardParams all;
  int32_t states_per_batch;
};

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_TILE_CONFIG_H_
