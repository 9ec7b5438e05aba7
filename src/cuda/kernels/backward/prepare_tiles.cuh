// Prepares a chunk for tensor cores: q and k of a key head by their l2 norm, where both come as rows
// of 256 aligned bytes, and numbers of its value heads' tokens. Any other rows: prepare.cuh.
//
// Roles     half a warp has a row of q or k, 16 bytes a lane; a thread a token of a value head
// Memory    tiles of q and k, where all of a chunk's rows are on their way at once. PERF the latency
//           of memory is what such a kernel waits for
// Floor     bytes of q and k, twice
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_TILES_CUH_

#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/tile_numbers.cuh"

namespace sluice::cuda::backward {

// ------------------------------------------------------------------------------------ rows ----

/// 16 bytes of each of eight rows: a warp has 16 neighbours, half a warp every second one.
struct LaneRows {
  static constexpr int kCount = 8;

  __device__ __forceinline__ static int row(int i) {
    return 16 * tile::warp() + 2 * i + tile::lane() / 16;
  }
  __device__ __forceinline__ static int column() { return tile::lane() % 16 * 8; }
  /// Where they lie in a tile. WHY by exclusive or: rows differ in bits that the first row leaves to
  /// the swizzle.
  __device__ __forceinline__ static uint32_t place(int i) {
    const uint32_t first = static_cast<uint32_t>(column() / 64) * tile::kTile +
                           tile::swizzled_piece(static_cast<uint32_t>(row(0)),
                                                static_cast<uint32_t>(column() % 64 / 8));
    const auto step = static_cast<uint32_t>(2 * i);
    return (first ^ (step % 8 << 4)) + step * tile::kRowBytes;
  }
  /// Which of the lane's rows a sum of squares is of.
  __device__ __forceinline__ static int own() { return tile::lane() % 16 / 2; }

  /// Asks for the rows in a tile; those past the chunk's end are zeros there.
  __device__ __forceinline__ static void request(uint8_t* tile, const TokenRows& from,
                                                 const Chunk& chunk, int64_t head) {
    const uint32_t to = ptx::shared_address(tile);
    const auto* rows = static_cast<const uint16_t*>(from.data) +
                       at(from, chunk.batch, chunk.row + row(0), head) + column();
#pragma unroll
    for (int i = 0; i < kCount; ++i, rows += 2 * from.token_stride) {
      ptx::copy_async_16(to + place(i), rows, row(i) < chunk.tokens);
    }
    ptx::close_copies();
  }
};

/// The sum of squares of own(). PERF eight sums over 16 lanes in eight exchanges: in each, half of the
/// sums that are left go to the other lane.
template <class Io>
__device__ __forceinline__ float sum_of_squares(const uint8_t* tile) {
  using Pack = tile::Packed<Io>;
  float sums[LaneRows::kCount];
#pragma unroll
  for (int i = 0; i < LaneRows::kCount; ++i) {
    const uint4 x = *reinterpret_cast<const uint4*>(tile + LaneRows::place(i));
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
    // NUM two sums, in the order of prepare.cuh's lanes: bits do not depend on where rows lie.
    float halves[2] = {};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      float& sum = halves[word / 2];
      sum = fmaf(Pack::first(words[word]), Pack::first(words[word]), sum);
      sum = fmaf(Pack::second(words[word]), Pack::second(words[word]), sum);
    }
    sums[i] = halves[0] + halves[1];
  }
#pragma unroll
  for (int step = 8; step > 1; step /= 2) {
    const bool upper = (tile::lane() & step) != 0;
#pragma unroll
    for (int i = 0; i < step / 2; ++i) {
      const float kept = upper ? sums[i + step / 2] : sums[i];
      sums[i] = kept + __shfl_xor_sync(~0u, upper ? sums[i] : sums[i + step / 2], step);
    }
  }
  return sums[0] + __shfl_xor_sync(~0u, sums[0], 1);
}

/// Rows times one over their norms, in their tile, and if `stores` to memory; norms by number.
template <class Io>
__device__ __forceinline__ void normalise(const BackwardParams& b, uint8_t* tile,
                                          const TokenRows& to, const Chunk& chunk, int64_t head,
                                          int64_t norm, bool stores) {
  using Pack = tile::Packed<Io>;
  const float own = 1.0f / sqrtf(sum_of_squares<Io>(tile) + b.l2norm_eps);
  auto* rows = static_cast<uint16_t*>(to.data) +
               at(to, chunk.batch, chunk.row + LaneRows::row(0), head) + LaneRows::column();
  __syncwarp();  // PERF rows are loaded once more: kept in registers they would leave CTAs no room
#pragma unroll
  for (int i = 0; i < LaneRows::kCount; ++i, rows += 2 * to.token_stride) {
    const float factor = __shfl_sync(~0u, own, (tile::lane() & 16) + 2 * i);
    auto& x = *reinterpret_cast<uint4*>(tile + LaneRows::place(i));
    uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (uint32_t& word : words) {
      word = Pack::pack(factor * Pack::first(word), factor * Pack::second(word));
    }
    x = {words[0], words[1], words[2], words[3]};
    if (stores && LaneRows::row(i) < chunk.tokens) *reinterpret_cast<uint4*>(rows) = x;
  }
  const int row = LaneRows::row(LaneRows::own());
  if (!stores || tile::lane() % 2 != 0 || row >= chunk.tokens) return;
  put_float(b.norms, chunk.batch, chunk.row + row, norm, own);
}

// --------------------------------------------------------------------------------- numbers ----

/// The sums of a chunk's gates, in place. NUM in chunk_cumsum's order: four tokens a lane, half a warp
/// a head. Whole warps, whose halves may have two heads.
__device__ __forceinline__ void sum_gates(float* G) {
  auto& four = *reinterpret_cast<float4*>(G + 4 * (tile::lane() % 16));
  float4 sums = four;
  tile::sum_half_warp(sums);
  four = sums;
}

/// A thread's token of one of two value heads of a CTA of 128 threads.
struct PairToken {
  int head, token;
  bool exists;  ///< inside the chunk, and of a head that there is

  /// Past the chunk's end the last one's, and for a head that there is not the other's.
  __device__ __forceinline__ int known(const Chunk& chunk) const {
    return min(token, chunk.tokens - 1);
  }
  __device__ __forceinline__ static SolveNumbers& place(SolveNumbers (&numbers)[2]) {
    return numbers[threadIdx.x / kTokens];
  }

  /// Clamped gate and write strength from what the caller gave, to their place and to memory.
  __device__ __forceinline__ void make(const BackwardParams& b, const Chunk& chunk,
                                       SolveNumbers (&numbers)[2]) const {
    float g = 0.0f, beta = 1.0f;
    const int64_t row = chunk.row + known(chunk);
    if (b.g.data != nullptr) {
      g = device::log_gate(b.gate_form, device::load_raw_gate(b, head),
                           number_at(b.raw_gate, chunk.batch, row, head));
      if (exists) put_float(b.g, chunk.batch, row, head, g);
    }
    if (b.beta.data != nullptr) {
      const bool given = b.raw_beta.data != nullptr;
      beta = given ? number_at(b.raw_beta, chunk.batch, row, head) : 0.0f;
      beta = device::write_strength(b.beta_form, b.beta_factor, beta);
      if (exists) put_float(b.beta, chunk.batch, row, head, beta);
    }
    place(numbers).G[token] = token < chunk.tokens ? g : 0.0f;
    place(numbers).beta[token] = beta;
  }
  /// Sums of gates and write strengths as kernels before have left them, to their place.
  __device__ __forceinline__ void load(const StageParams& p, const Chunk& chunk,
                                       SolveNumbers (&numbers)[2]) const {
    const bool sums = p.g_cumsum.data != nullptr, strengths = p.beta.data != nullptr;
    place(numbers).G[token] =
        sums ? device::token_number(p.g_cumsum, chunk, head, known(chunk)) : 0.0f;
    place(numbers).beta[token] =
        strengths ? device::token_number(p.beta, chunk, head, known(chunk)) : 1.0f;
  }
  /// Sums of gates to memory.
  __device__ __forceinline__ void store_sum(const BackwardParams& b, const Chunk& chunk,
                                            SolveNumbers (&numbers)[2]) const {
    if (!exists || b.g.data == nullptr) return;
    put_float(b.stage.g_cumsum, chunk.batch, chunk.row + token, head, place(numbers).G[token]);
  }
};

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_TILES_CUH_
