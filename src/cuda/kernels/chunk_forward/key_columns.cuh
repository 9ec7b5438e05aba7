// Prepares key-wise gates, first part: decays of single tokens, and what scales the rows of a chunk.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_

#include "cuda/device/gate.cuh"
#include "cuda/device/token_gates.cuh"
#include "cuda/kernels/chunk_forward/key_config.h"
#include "cuda/ptx/lanes.cuh"
#include "cuda/tile/block_tile.cuh"
#include "cuda/tile/warp_products.cuh"

namespace sluice::cuda::chunk_forward {

using device::GateForm, device::Number, device::RawGate, device::TokenRows;
using tile::BlockTile;

/// Numbers of four neighbouring channels.
struct Four {
  float x[4];
};
__device__ __forceinline__ Four operator*(const Four& a, const Four& b) {
  return {{a.x[0] * b.x[0], a.x[1] * b.x[1], a.x[2] * b.x[2], a.x[3] * b.x[3]}};
}

/// A lane's part of its warp's 16 tokens where a thread has columns: half of the tokens, and four of
/// each 64 channels.
struct ColumnPlace {
  int block;        ///< of 16 tokens
  int half;         ///< 0: the first eight tokens
  int channel;      ///< the first of the lane's four, of 64
  uint32_t offset;  ///< of these four at the first token, in a block of 64 columns of a tile

  __device__ __forceinline__ explicit ColumnPlace(int warp)
      : block(warp), half(tile::lane() / 16), channel(tile::lane() % 16 * 4) {
    const auto at = static_cast<uint32_t>(tile::lane() % 16);
    offset = static_cast<uint32_t>(16 * block + 8 * half) * tile::kRowBytes + at * 8;
  }
  /// Offset of token t's, whose number is that of its row in the swizzle's eight.
  __device__ __forceinline__ uint32_t at(int t) const {
    return (offset ^ static_cast<uint32_t>(t) << 4) + static_cast<uint32_t>(t) * tile::kRowBytes;
  }
  /// The lane's first token, of 64.
  __device__ __forceinline__ int token() const { return 16 * block + 8 * half; }
};

/// Four channels of a lane's eight tokens on their way, as the caller gives them. WHY words, and rows
/// past the end read too: whatever is done with a number waits for it where it is requested.
struct GateWords {
  uint4 x[8];

  /// The first token's at `at`, `pitch` bytes apart; of tokens past the end, those of the last one.
  /// @param rows of the lane's tokens in the sequence, which has tokens at or before the lane's
  __device__ __forceinline__ void request(const uint8_t* at, int64_t pitch, bool is_float32,
                                          int rows) {
    if (rows <= 0) at += (rows - 1) * pitch;
    if (is_float32) {
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        x[t] = __ldg(reinterpret_cast<const uint4*>(at));
        if (t + 1 < rows) at += pitch;
      }
    } else {
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        const uint2 two = __ldg(reinterpret_cast<const uint2*>(at));
        x[t] = make_uint4(two.x, two.y, 0, 0);
        if (t + 1 < rows) at += pitch;
      }
    }
  }
  /// The gates; `same` at and past `rows`.
  __device__ __forceinline__ void settle(Four (&out)[8], Number number, int rows,
                                         float same) const {
    using tile::Packed;
    const auto widen = [&]<class T>(T) {
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        out[t] = {{Packed<T>::first(x[t].x), Packed<T>::second(x[t].x), Packed<T>::first(x[t].y),
                   Packed<T>::second(x[t].y)}};
      }
    };
    if (number == Number::kFloat32) {
#pragma unroll
      for (int t = 0; t < 8; ++t) {
        out[t] = {{__uint_as_float(x[t].x), __uint_as_float(x[t].y), __uint_as_float(x[t].z),
                   __uint_as_float(x[t].w)}};
      }
    } else if (number == Number::kBfloat16) {
      widen(__nv_bfloat16());
    } else {
      widen(__half());
    }
    if (rows >= 8) return;
#pragma unroll
    for (int t = 0; t < 8; ++t) {
      if (t >= rows) out[t] = {{same, same, same, same}};
    }
  }
};

/// Bytes of a gate.
__device__ __forceinline__ int64_t gate_bytes(const TokenRows& gates) {
  return gates.number == Number::kFloat32 ? 4 : 2;
}
/// The gates of the item's first token.
__device__ __forceinline__ const uint8_t* gates_of(const TokenRows& gates, const WorkItem& item) {
  return static_cast<const uint8_t*>(gates.data) +
         (item.batch * gates.batch_stride + item.head * gates.head_stride +
          item.row * gates.token_stride) *
             gate_bytes(gates);
}

/// Turns raw gates into log gates; `head`, `channel`: the lane's. `scratch`: 4 KB of the warp's own.
__device__ __forceinline__ void activate_gates(const PrefillParams& p, int head, int channel,
                                               float4* scratch, int rows, Four (&gate)[8]) {
  const GateForm form = p.key.form;
  RawGate constants[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) constants[c] = device::load_key_gate(p, form, head, channel + c);
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    scratch[32 * t + tile::lane()] =
        make_float4(gate[t].x[0], gate[t].x[1], gate[t].x[2], gate[t].x[3]);
  }
  // PERF few copies of the activations: code that runs once is fetched from memory.
#pragma unroll 1
  for (int t = 0; t < 8; ++t) {
    float4& at = scratch[32 * t + tile::lane()];
    at = make_float4(device::raw_log_gate(form, constants[0], at.x),
                     device::raw_log_gate(form, constants[1], at.y),
                     device::raw_log_gate(form, constants[2], at.z),
                     device::raw_log_gate(form, constants[3], at.w));
  }
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const float4 at = scratch[32 * t + tile::lane()];
    gate[t] = {{at.x, at.y, at.z, at.w}};
    if (t >= rows) gate[t] = {};
  }
}

/// Gates of log or linear form to decays, in place, and the sum of log2 decays of each channel's 8
/// tokens. NUM: sums of logs, since errors of single exponentials would add up over a sequence; no
/// clamp, for e^-inf is 0, and so is e^-128.
__device__ __forceinline__ Four decay_tokens(bool linear, Four (&gate)[8]) {
  constexpr float kLog2e = 1.4426950408889634f;
  Four sum{};
  if (linear) {
    Four product = gate[0];
#pragma unroll
    for (int t = 1; t < 8; ++t) product = product * gate[t];
#pragma unroll
    for (int c = 0; c < 4; ++c) sum.x[c] = log2f(product.x[c]);
    return sum;
  }
#pragma unroll
  for (Four& g : gate) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float x = g.x[c] * kLog2e;
      sum.x[c] += x;
      g.x[c] = tile::exp2_fast(x);
    }
  }
  return sum;
}

/// Raises what is known of the lane's tokens' largest decays, as words: decays are not negative, so
/// that words order them, and NaN is above all. `first`: nothing is known yet.
__device__ __forceinline__ void raise_peaks(BlockNotes& notes, const Four (&decay)[8], bool first) {
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    uint32_t& peak = notes.peaks[t][tile::lane()];
    uint32_t word = first ? 0 : peak;
#pragma unroll
    for (float x : decay[t].x) word = max(word, __float_as_uint(x));
    peak = word;
  }
}

/// Neighbours' halves of x, as lanes that differ in bit `bit` share them out; the larger of the two.
template <int kCount>
__device__ __forceinline__ void fold_largest(uint32_t (&x)[8], int bit) {
  const bool second = (tile::lane() >> bit & 1) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const uint32_t kept = second ? x[kCount / 2 + i] : x[i],
                   sent = second ? x[i] : x[kCount / 2 + i];
    x[i] = max(kept, __shfl_xor_sync(~0u, sent, 1 << bit));
  }
}

/// Sum over the warp's 16 tokens of log2 of the largest decay; infinity where one is above 1 or NaN.
__device__ __forceinline__ float sum_peaks(const BlockNotes& notes) {
  uint32_t x[8];
#pragma unroll
  for (int t = 0; t < 8; ++t) x[t] = notes.peaks[t][tile::lane()];
  fold_largest<8>(x, 0);
  fold_largest<4>(x, 1);
  fold_largest<2>(x, 2);
  const float peak = __uint_as_float(max(x[0], __shfl_xor_sync(~0u, x[0], 8)));
  float sum[1] = {peak <= 1.0f ? log2f(peak) : __uint_as_float(0x7f800000u)};
  ptx::sum_over_lanes<0, 3>(sum);
  return sum[0] + __shfl_xor_sync(~0u, sum[0], 16);
}

/// A right operand: 16 rows x 16 columns of a tile, so that rows are its columns; two words for each
/// eight of them. The address is for block (0, 0) of a BlockTile of that tile.
__device__ __forceinline__ uint32_t right_block(const void* tile) {
  return tile::quad_address<false>(ptx::shared_address(tile), 0, 0);
}

/// Decays of channels over whole blocks of 16 tokens, from their logs; a thread a channel.
template <class C>
__device__ __forceinline__ void decay_blocks(KeyTables<C>& s, float* decay) {
  const int i = tile::thread_of_group();
  if (i >= C::kK) return;
  float total[4];
#pragma unroll
  for (int b = 0; b < 4; ++b) total[b] = s.notes[b].totals[i];
  const auto store = [&](auto& to, float x) {
    const float decay = tile::exp2_fast(x);
    if constexpr (std::is_same_v<std::decay_t<decltype(to[0])>, float>) {
      to[i] = decay;
    } else {
      to[i] = __float2half_rn(decay);
    }
  };
  store(s.before[0], total[0]);
  store(s.before[1], total[0] + total[1]);
  store(s.before[2], total[0] + total[1] + total[2]);
  store(s.after[0], total[3] + total[2] + total[1]);
  store(s.after[1], total[3] + total[2]);
  store(s.after[2], total[3]);
  store(s.between[0], total[1]);
  store(s.between[1], total[2]);
  decay[i] = tile::exp2_fast(total[0] + total[1] + total[2] + total[3]);
}

/// The number that the caller has for beta of token t of the item.
__device__ __forceinline__ float load_beta(const PrefillParams& p, const WorkItem& item, int t) {
  if (p.beta.data == nullptr || t >= item.rows(0)) return 0.0f;
  return device::load_number(device::scalar_address(p, p.beta, item) + t * p.beta.token_bytes, 0,
                             p.beta.number);
}

/// Fills in the norms of the block's 16 rows, 0 at and past `rows` of the chunk; and in the tables what
/// makes good for them where the operator does not normalise. One warp. PERF sums of squares as
/// diagonals of products.
template <class C>
__device__ __forceinline__ void measure_rows(const PrefillParams& p, const KeyTiles<C>& tiles,
                                             int block, int rows, KeyTables<C>& s) {
  using Io = typename C::Io;
  BlockNotes& notes = s.notes[block];
  // Of eight tokens: k times k, q times k, q times q.
  float sums[2][3][4] = {};
#pragma unroll
  for (int step = 0; step < C::kK / 16; ++step) {
    const auto load = [&]<bool kDown>(uint32_t(&to)[4], const typename C::KeyTile& of,
                                      std::bool_constant<kDown>) {
      const uint32_t first = ptx::shared_address(of.block(step / 4));
      ptx::ldmatrix_x4(
          to, (tile::quad_address<kDown>(first, 0, 0) + static_cast<uint32_t>(2048 * block)) ^
                  static_cast<uint32_t>(step % 4 * 32));
    };
    constexpr std::true_type kLeft;
    constexpr std::false_type kRight;
    uint32_t k[4], q[4], right_k[4], right_q[4];
    load(k, tiles.k, kLeft);
    load(q, tiles.q, kLeft);
    load(right_k, tiles.k, kRight);
    load(right_q, tiles.q, kRight);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      tile::mma<Io>(sums[half][0], k, right_k + 2 * half);
      tile::mma<Io>(sums[half][1], q, right_k + 2 * half);
      tile::mma<Io>(sums[half][2], q, right_q + 2 * half);
    }
  }
  // The lane that has the diagonal's numbers of a row and of the one 8 further down.
  const int odd = tile::lane_row() % 2;
  if (tile::lane() % 4 != tile::lane_row() / 2) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = tile::lane_row() + 8 * half;
    const bool there = 16 * block + row < rows;
    const auto norm = [&](float sum, int kind) {
      float norm, length = 1.0f;
      if constexpr (C::kL2Norm) {
        norm = rsqrtf(sum + p.l2norm_eps);
      } else {
        norm = sum == 0.0f ? 0.0f : rsqrtf(sum);
        length = sum * norm;
        s.lengths[kind][16 * block + row] = there ? length : 0.0f;
      }
      return there ? norm : 0.0f;
    };
    const auto pick = [&](const float(&of)[4]) {
      return odd != 0 ? of[2 * half + 1] : of[2 * half];
    };
    const float k = norm(pick(sums[half][0]), 0), q = norm(pick(sums[half][2]), 1);
    notes.norms.k[row] = k;
    notes.norms.q[row] = q;
    notes.own[row] = pick(sums[half][1]) * k * q;
  }
}

/// Zeroes the warp's rows of k and q at and past `rows` of the chunk: they belong to another sequence.
template <class C>
__device__ __forceinline__ void zero_tail(KeyTiles<C>& tiles, int block, int rows) {
  constexpr int kPieces = C::kK / 8;  // of 16 bytes, in a row
  for (int i = tile::lane(); i < 16 * kPieces; i += 32) {
    const int row = 16 * block + i / kPieces, piece = i % kPieces;
    if (row < rows) continue;
    const uint32_t at = static_cast<uint32_t>(row) * tile::kRowBytes + (piece % 8) * 16;
    *reinterpret_cast<uint4*>(tiles.k.block(piece / 8) + at) = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(tiles.q.block(piece / 8) + at) = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_COLUMNS_CUH_
