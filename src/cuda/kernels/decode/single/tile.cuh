// Gives a thread of the single-token kernel its place, its slots, and its rows of a token and of a
// state.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_TILE_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_TILE_CUH_

#include <type_traits>

#include "cuda/kernels/decode/single/params.h"
#include "cuda/kernels/decode/tile.cuh"
#include "cuda/kernels/decode/tokens.cuh"

namespace sluice::cuda::decode {

/// One instance: dtypes of states and tokens, and how a launch goes about its heads. A tile is a
/// whole head, of float32 half a head where registers hold it; of kNarrow, and of [V,K], 16 columns,
/// a warp.
/// @tparam kKeyGates_ each row of the state has a gate of its own
/// @tparam kVk_ states are [V,K], else [K,V]
/// @tparam kPacked_ tokens are packed
template <class State_, class Io_, SingleCut kCut_, bool kKeyGates_ = false, bool kVk_ = false,
          bool kPacked_ = false>
struct SingleConfig {
  using State = State_;
  using Io = Io_;
  static constexpr SingleCut kCut = kCut_;
  static constexpr bool kKeyGates = kKeyGates_, kVk = kVk_, kPacked = kPacked_;
  using Step = std::conditional_t<kKeyGates, SingleKeyParams, SingleParams>;
  using Params =
      std::conditional_t<kCut == SingleCut::kLayer,
                         std::conditional_t<kKeyGates, SingleKeyLayerParams, SingleLayerParams>,
                         std::conditional_t<kPacked, SinglePacked<Step>, Step>>;
  static constexpr bool kWide = sizeof(State) == 4;  ///< states are float32
  static constexpr bool kHalves = kWide && (kCut == SingleCut::kWide || kCut == SingleCut::kMany);
  using Form = std::conditional_t<kWide, InFloat32, In16Bits<State>>;
  static constexpr bool kNarrow = kCut == SingleCut::kNarrow;
  static constexpr int kColumns = kNarrow || kVk ? 16 : (kHalves ? 64 : 128);
  static constexpr int kWarps = kVk ? 1 : kColumns / 16;
  /// Of a CTA, of one head: they share the decays of its rows.
  static constexpr int kTiles = kNarrow && (kKeyGates || !kWide) ? 4 : (kVk && !kNarrow ? 8 : 1);
  static constexpr int kTilesOfHead = kSingleSize / kColumns;
  static constexpr int kThreads = 32 * kWarps * kTiles;
  static constexpr int kResident = kPacked ? 16 * 32 / kThreads : single_resident(kCut, kWide);
  /// Three CTAs a multiprocessor hold 16-bit states in 80 registers a thread.
  static constexpr bool kReconverts = !kWide && kResident == 3;
  /// There, with decays of rows beside them, rows of k and q are in shared memory.
  static constexpr bool kSharesRows = kCut == SingleCut::kMany && kKeyGates && !kWide;
  static constexpr int kWords = sizeof(State);              ///< of four numbers of a state
  static constexpr int kRowLanes = kVk ? 1 : kColumns / 4;  ///< lanes with the same rows
  static constexpr int kFirstBit = kRowLanes == 32   ? 5
                                   : kRowLanes == 16 ? 4
                                   : kRowLanes == 4  ? 2
                                                     : 0;                 ///< log2 of it
  static constexpr int kRows = kSingleSize / kWarps / (32 / kRowLanes);  ///< of a lane
  static constexpr int kWarpRows = kRows * (32 / kRowLanes);
  /// Of four numbers that a lane has, one for each row of [K,V], one for each column of [V,K].
  static constexpr int kLaneVectors = kVk ? kColumns : kRows;
  static constexpr int kVectorBytes = kSingleSize * sizeof(State);  ///< from one to the next
  static_assert(1 << kFirstBit == kRowLanes && kRows >= 4 && kLaneVectors <= kVectors);
  static_assert(kWarps == 1 || kTiles == 1);
};

/// What a thread has to do. PERF unsigned: addresses need no extension of signs.
template <class C>
struct SinglePlace {
  uint32_t sequence, group, member;  ///< value head `member` of r of a group
  uint32_t head, key_head;
  uint32_t warp, lane;      ///< warp of the tile
  uint32_t row, column;     ///< the first ones, of the head
  uint32_t packed_row = 0;  ///< find_token()

  __device__ __forceinline__ explicit SinglePlace(const SingleParams& p) {
    const uint32_t warps = threadIdx.x / 32, tile = blockIdx.x * C::kTiles + warps / C::kWarps;
    warp = warps % C::kWarps;
    lane = threadIdx.x % 32;
    sequence = blockIdx.z;
    group = blockIdx.y;
    member = tile / C::kTilesOfHead;
    head = group * p.r + member;
    key_head = p.head_map_cyclic ? head % p.H : group;
    row = (warp * (32 / C::kRowLanes) + lane / C::kRowLanes) * C::kRows;
    column = tile % C::kTilesOfHead * C::kColumns + 4 * (lane % C::kRowLanes);
  }
  /// Head `index` of all sequences', which the CTA has whole.
  __device__ __forceinline__ SinglePlace(const SingleParams& p, uint32_t index) {
    static_assert(C::kTilesOfHead == C::kTiles);
    const uint32_t warps = threadIdx.x / 32;
    warp = C::kVk ? 0 : warps;
    lane = threadIdx.x % 32;
    sequence = index / (p.r * p.H);
    head = index % (p.r * p.H);
    group = head / p.r;
    member = head % p.r;
    key_head = p.head_map_cyclic ? head % p.H : group;
    row = C::kVk ? 4 * lane : warp * C::kRows;
    column = C::kVk ? warps * C::kColumns : 4 * lane;
  }
  /// Its first number among those of a head's state.
  __device__ __forceinline__ uint32_t origin() const {
    return C::kVk ? column * kSingleSize + row : row * kSingleSize + column;
  }
  /// The column whose sums a lane of [V,K] has.
  __device__ __forceinline__ uint32_t own_column() const { return column + lane % C::kColumns; }
  /// Whether the lane writes o: of [V,K] its own column, else four columns, which warps share out.
  __device__ __forceinline__ bool writes_o() const {
    return C::kVk ? lane < C::kColumns : lane < C::kRowLanes && lane % C::kWarps == warp;
  }
  /// The row that the sequence's token has in a batch of tokens.
  __device__ __forceinline__ uint32_t token() const { return C::kPacked ? packed_row : sequence; }
  /// Column of the tile.
  __device__ __forceinline__ uint32_t local() const { return column % C::kColumns; }
};

/// data + a b, one instruction.
__device__ __forceinline__ const char* moved(const char* data, uint32_t a, uint32_t b) {
  return data + uint64_t{a} * b;
}

/// How the L2 treats old states.
template <class Params>
__device__ __forceinline__ uint64_t load_policy(const Params& p) {
  return p.keeps ? ptx::evict_last() : ptx::evict_first();
}

/// The slots of a sequence.
struct SingleEntries {
  int read, write;  ///< -1: zeros, none
  bool padded;
};

/// A sequence's entry, clamped to 32 bits, as it is: final behind griddepcontrol.wait.
__device__ __forceinline__ int peek_single(const SingleSlots& table, uint32_t sequence) {
  if (table.data == nullptr) return static_cast<int>(sequence);
  const char* const at = moved(table.data, sequence, table.sequence_bytes);
  if (!table.is_64bit) return ptx::peek_32(at);
  return static_cast<int>(min(max(ptx::peek_64(at), int64_t{INT32_MIN}), int64_t{INT32_MAX}));
}

/// Finds the row of a sequence's token among packed ones; false where it has none. Offsets are clamped
/// to the tokens, and a sequence's further tokens left out, as max_tokens = 1 says.
template <class C>
__device__ __forceinline__ bool find_token(const typename C::Params& p, SinglePlace<C>* at) {
  const auto most = static_cast<int>(p.tokens);
  const int first = min(max(peek_single(p.offsets, at->sequence), 0), most),
            next = min(max(peek_single(p.offsets, at->sequence + 1), 0), most);
  at->packed_row = static_cast<uint32_t>(min(first, most - 1));
  return next > first;
}

/// The rules of sluice.h, as device::find_slots() has them of 64-bit slots. PERF not one text for
/// both widths: that gave other machine code in either.
template <class Params>
__device__ __forceinline__ SingleEntries find_entries(const Params& p, uint32_t sequence) {
  const int read = peek_single(p.read_slots, sequence);
  const int write = peek_single(p.write_slots, sequence);
  bool starts = p.has_initial;
  if (p.has_initial_state != nullptr) {
    starts = starts && p.has_initial_state[uint64_t{sequence} * p.has_initial_stride] != 0;
  }
  SingleEntries out{-1, -1, false};
  out.padded = p.read_slots.data != nullptr &&
               (read < p.pad_below || (p.has_initial && read >= p.initial.slots));
  if (starts && !out.padded) out.read = read;
  const bool kept = p.write_slots.data == nullptr || write >= p.pad_below;
  if (p.has_final && kept && write < p.final.slots) out.write = write;
  return out;
}

/// kWords neighbouring words that the kernel does not write, at an address of that alignment.
template <int kWords>
__device__ __forceinline__ void request_words(const char* address, uint32_t (&words)[kWords]) {
  if constexpr (kWords == 2) {
    const uint2 x = __ldg(reinterpret_cast<const uint2*>(address));
    words[0] = x.x, words[1] = x.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(address) + i / 4);
      words[i] = x.x, words[i + 1] = x.y, words[i + 2] = x.z, words[i + 3] = x.w;
    }
  }
}

__device__ __forceinline__ const char* single_row(const SingleRows& rows, uint32_t sequence,
                                                  uint32_t head) {
  return moved(moved(rows.data, sequence, rows.sequence_bytes), head, rows.head_bytes);
}

/// A lane's decays of its rows, in shared memory, where rows have gates of their own.
template <class C, bool kKeyGates = C::kKeyGates>
struct TokenAlphas {
  const float* alpha;

  __device__ __forceinline__ void block_of_alpha(int block, float (&x)[4]) const {
    const float4 four = *reinterpret_cast<const float4*>(alpha + 4 * block);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  }
};
template <class C>
struct TokenAlphas<C, false> {};

/// A lane's part of a token: its rows of k and q, its columns of v, two numbers a word; of [V,K] one
/// number of v.
template <class C, bool kSharesRows = C::kSharesRows>
struct SingleToken : TokenAlphas<C> {
  using Io = tile::Packed<typename C::Io>;
  uint32_t k[C::kRows / 2], q[C::kRows / 2], v[2];

  __device__ __forceinline__ void request(const SingleParams& p, const SinglePlace<C>& at) {
    request_words(single_row(p.k, at.token(), at.key_head) + 2 * at.row, k);
    request_words(single_row(p.q, at.token(), at.key_head) + 2 * at.row, q);
    const char* const values = single_row(p.v, at.token(), at.head);
    if constexpr (C::kVk) {
      v[0] = __ldg(reinterpret_cast<const uint16_t*>(values) + at.own_column());
    } else {
      request_words(values + 2 * at.column, v);
    }
  }
  /// Number i of some words. PERF as Tile::forget_converted().
  template <int kWords>
  static __device__ __forceinline__ float number(uint32_t (&words)[kWords], int i) {
    if (kWords > 4) asm volatile("" : "+r"(words[i / 2]));
    return i % 2 == 0 ? Io::first(words[i / 2]) : Io::second(words[i / 2]);
  }
  /// SingleTile::reconvert(), of k.
  __device__ __forceinline__ void reconvert(uint32_t zero) {
#pragma unroll
    for (uint32_t& word : k) word ^= zero;
  }
  __device__ __forceinline__ float k_of(int row) { return number(k, row); }
  __device__ __forceinline__ float q_of(int row) { return number(q, row); }
  __device__ __forceinline__ void block_of_k(int block, float (&x)[4]) {
#pragma unroll
    for (int m = 0; m < 4; ++m) x[m] = number(k, 4 * block + m);
  }
  __device__ __forceinline__ void block_of_q(int block, float (&x)[4]) {
#pragma unroll
    for (int m = 0; m < 4; ++m) x[m] = number(q, 4 * block + m);
  }
};

/// The same where a warp's lanes have the same rows: a lane converts one of them for all.
template <class C>
struct SingleToken<C, true> : TokenAlphas<C> {
  using Io = tile::Packed<typename C::Io>;
  static_assert(C::kRows == C::kWarpRows && C::kRows <= 32);
  uint32_t row;  ///< of k and of q, as they lie in memory
  uint32_t v[2];

  __device__ __forceinline__ void request(const SingleParams& p, const SinglePlace<C>& at) {
    const uint32_t byte = 2 * (at.row + at.lane % C::kRows);
    const auto number = [&](const SingleRows& rows) -> uint32_t {
      const char* const head = single_row(rows, at.sequence, at.key_head);
      return __ldg(reinterpret_cast<const uint16_t*>(head + byte));
    };
    row = number(p.k) | number(p.q) << 16;
    request_words(single_row(p.v, at.sequence, at.head) + 2 * at.column, v);
  }
  /// The lane's row of k and q, behind its decay.
  __device__ __forceinline__ void share(float* alpha) const {
    alpha[C::kRows] = Io::first(row);
    alpha[2 * C::kRows] = Io::second(row);
  }
  static __device__ __forceinline__ float number(const uint32_t (&words)[2], int i) {
    return i % 2 == 0 ? Io::first(words[i / 2]) : Io::second(words[i / 2]);
  }
  __device__ __forceinline__ void reconvert(uint32_t) {}
  __device__ __forceinline__ float k_of(int row) const { return this->alpha[C::kRows + row]; }
  __device__ __forceinline__ float q_of(int row) const { return this->alpha[2 * C::kRows + row]; }
  __device__ __forceinline__ void block_of_k(int block, float (&x)[4]) const {
    this->block_of_alpha(block + C::kRows / 4, x);
  }
  __device__ __forceinline__ void block_of_q(int block, float (&x)[4]) const {
    this->block_of_alpha(block + C::kRows / 2, x);
  }
};

/// A lane's part of the state.
template <class C>
struct SingleTile {
  uint32_t words[C::kLaneVectors][C::kWords];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < C::kLaneVectors; ++m) {
#pragma unroll
      for (int i = 0; i < C::kWords; ++i) words[m][i] = 0;
    }
  }
  __device__ __forceinline__ void request(const char* at, uint64_t policy) {
#pragma unroll
    for (int m = 0; m < C::kLaneVectors; ++m) {
      if constexpr (C::kWide) {
        ptx::load_stream_16(words[m], at + m * C::kVectorBytes, policy);
      } else {
        ptx::load_stream_8(words[m], at + m * C::kVectorBytes, policy);
      }
    }
  }
  __device__ __forceinline__ void store(char* at, uint64_t policy) const {
#pragma unroll
    for (int m = 0; m < C::kLaneVectors; ++m) {
      if constexpr (C::kWide) {
        ptx::store_stream_16(at + m * C::kVectorBytes, words[m], policy);
      } else {
        ptx::store_stream_8(at + m * C::kVectorBytes, words[m], policy);
      }
    }
  }
  /// Vector m of the lane's.
  __device__ __forceinline__ void get(int m, float (&x)[4]) {
    forget_converted(m);
    C::Form::get(words[m], x);
  }
  __device__ __forceinline__ void set(int m, const float (&x)[4]) { C::Form::set(words[m], x); }
  /// What has been converted has to be converted again behind this. PERF numbers stay 16 bits over
  /// a barrier: registers.
  /// @param zero 0, which ptxas cannot know, and which was read behind that barrier
  __device__ __forceinline__ void reconvert(uint32_t zero) {
    if constexpr (C::kReconverts) {
#pragma unroll
      for (int m = 0; m < C::kLaneVectors; ++m) words[m][0] ^= zero, words[m][1] ^= zero;
    }
  }
  /// Tile::forget_converted().
  __device__ __forceinline__ void forget_converted(int m) {
    if constexpr (!C::kWide) asm volatile("" : "+r"(words[m][0]), "+r"(words[m][1]));
  }
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_TILE_CUH_
