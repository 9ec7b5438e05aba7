// Steps a whole layer by one token of every sequence, K = V = 128, [K,V], tokens of 16 bits: what
// models decode with.
//
// Math      conv(4) + SiLU of q, k, v -> the delta rule -> o rsqrt(mean(o^2) + eps) weight act(z),
//           in kernel.cuh's order of sums: the same bits. Rows' own gates as in step.cuh.
// Roles     a CTA has a value head, a warp 16 rows of it, a lane four columns of them. The r CTAs
//           of a (sequence, key head) are a cluster, and each convolves its q and k.
// Pipeline  read the slot as it may be -> ask the L2 for states -> wait for earlier launches ->
//           request slots, pairs of channels, gates, the state and z at once -> convolution, while
//           the state comes -> barrier -> sums -> barrier -> update -> store -> one warp: norm
//           -> convolution states
// Memory    LayerShared, 12 KiB; registers: 64 of the state a thread, 32 of 16 bits.
// Floor     state read and written once: 128 KiB per (sequence, value head) in float32.
// WHY the cluster: all of its CTAs read the old convolution states of q and k, and each replaces a
// share of them once all have arrived (conv.cuh). The norm needs none.
// PERF parameters, addresses and instructions as in step.cuh.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_CUH_

#include "cuda/kernels/decode/single/layer_gates.cuh"
#include "cuda/kernels/decode/single/layer_parts.cuh"
#include "cuda/kernels/decode/single/step.cuh"

namespace sluice::cuda::decode {

/// Shared memory of a CTA, 16-byte aligned.
template <class C>
struct LayerShared : HeadAlphas<C> {
  float with_k[C::kWarps][kSingleSize], with_q[C::kWarps][kSingleSize];  ///< sums of warps
  float rows[3][kSingleSize];                                            ///< q, k, v, convolved
  float normed[kSingleSize];   ///< what the normalised o is multiplied by
  uint4 conv[2 * kHeadPairs];  ///< of q and k, new states, each its thread's
  Gates gates;
  uint32_t zero;  ///< SingleTile::reconvert()
};

/// The lane's rows of k and q, in shared memory.
struct LayerToken {
  const float *q, *k, *alpha;  ///< alpha: null unless rows have gates of their own
  __device__ __forceinline__ void block_of_k(int block, float (&x)[4]) const {
    read_four(k + 4 * block, x);
  }
  __device__ __forceinline__ void block_of_q(int block, float (&x)[4]) const {
    read_four(q + 4 * block, x);
  }
  __device__ __forceinline__ void block_of_alpha(int block, float (&x)[4]) const {
    read_four(alpha + 4 * block, x);
  }
};

/// One CTA's step. What is not said otherwise: threads below kPairs have a pair of channels each,
/// the last warp but one has z and the outputs, the last one the gates.
template <class C>
struct SingleLayer {
  using Io = typename C::Io;
  static constexpr int kBytes = sizeof(typename C::State);
  static constexpr uint32_t kNormWarp = C::kWarps - 2, kGateWarp = C::kWarps - 1;
  static_assert(32 * kNormWarp >= kPairs);

  const typename C::Params& p;
  const LayerPlace<C> at;
  LayerShared<C>& shared;
  const uint64_t offset;  ///< of the head's state in a slot
  SingleTile<C> tile;
  SingleEntries slots;
  PairInputs pair{};
  GateInputs gate{};
  HeadGates<C> gates_of_rows;
  LayerNormInputs norm{};

  __device__ __forceinline__ explicit SingleLayer(const typename C::Params& params)
      : p(params),
        at(params),
        shared(*reinterpret_cast<LayerShared<C>*>(ptx::dynamic_memory())),
        offset(((uint64_t{at.head} * kSingleSize + at.row) * kSingleSize + at.column) * kBytes) {}

  __device__ __forceinline__ const char* state(int slot) const {
    return moved(p.initial.data + offset, static_cast<uint32_t>(slot), p.initial.slot_bytes);
  }

  __device__ __forceinline__ void prefetch(int slot) const {
    prefetch_single<C>(at.lane, state(slot));
    if (threadIdx.x < kPairs) prefetch_pair(p, LayerPair(p, at, threadIdx.x), slot);
  }

  /// All that the step needs, of a slot. PERF what is needed first goes first: a state's requests
  /// take a multiprocessor a thousand cycles.
  __device__ __forceinline__ void request(int slot) {
    if (threadIdx.x < kPairs) request_pair(p, LayerPair(p, at, threadIdx.x), slot, pair);
    // PERF addresses that one warp needs are not computed by all, ahead of the loop: registers
    LayerPlace<C> here = at;
    asm volatile("" : "+r"(here.sequence), "+r"(here.head));
    if (at.warp == kGateWarp) gate = request_gates(p, here);
    gates_of_rows.request(p, here);
    if (at.warp == kNormWarp) request_norm(p, here, norm);
    tile.request(state(slot), load_policy(p));
  }

  /// The sequence starts from zeros.
  __device__ __forceinline__ void clear() {
    tile.clear();
#pragma unroll
    for (uint32_t& word : pair.words) word = 0;
  }

  /// Whether the thread replaces the state of its pair of q and k: the cluster shares them out.
  __device__ __forceinline__ bool owns_pair() const {
    return threadIdx.x < 2 * kHeadPairs && threadIdx.x * gridDim.x / (2 * kHeadPairs) == blockIdx.x;
  }

  /// The thread's pair convolved to shared memory, its new state to where it may go by now.
  __device__ __forceinline__ void settle_pair() {
    const uint32_t index = threadIdx.x;
    const uint4 words = convolve_pair<Io>(p, pair, &shared.rows[0][2 * index]);
    if (slots.write < 0) return;
    if (index >= 2 * kHeadPairs || gridDim.x == 1) {
      LayerPair(p, at, index).new_state(p, static_cast<uint32_t>(slots.write)).store(p.L, words);
    } else if (owns_pair()) {
      shared.conv[index] = words;
    }
  }

  /// The token, convolved, and its gates to shared memory.
  __device__ __forceinline__ void settle() {
    if (threadIdx.x < kPairs) settle_pair();
    if (at.warp == kNormWarp) settle_norm<Io>(p, norm, &shared.normed[at.column]);
    gates_of_rows.settle(p, at, &shared);
    if (at.warp == kGateWarp && at.lane == 0) {
      shared.gates = gates_of(p, gate);
      shared.zero = 0;
    }
  }

  /// All but the gates.
  __device__ __forceinline__ TokenFactors factors() const {
    float k[4], q[4], sums[3] = {};
    read_four(&shared.rows[1][at.column], k);
    read_four(&shared.rows[0][at.column], q);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[0] = fmaf(k[i], k[i], sums[0]);
      sums[1] = fmaf(q[i], q[i], sums[1]);
      sums[2] = fmaf(k[i], q[i], sums[2]);
    }
    ptx::sum_over_lanes<0, 5>(sums);
    return factors_from(p, 0.0f, 0.0f, {sums[0], sums[1], sums[2]});
  }

  /// The delta rule, the new state and the outputs.
  __device__ __forceinline__ void advance() {
    LayerToken token{&shared.rows[0][at.row], &shared.rows[1][at.row], nullptr};
    if constexpr (C::kKeyGates) token.alpha = &shared.alpha[at.row];
    TokenFactors f = factors();
    float u[4], w[4], v[4], delta[4];
    sum_blocks<C, 0, C::kRows / 4>(tile, token, u, w);
    write_four(&shared.with_k[at.warp][at.column], u);
    write_four(&shared.with_q[at.warp][at.column], w);
    // SYNC CTA: the warps' sums are complete
    __syncthreads();
    f.alpha = shared.gates.alpha, f.beta = shared.gates.beta;
    sum_warps<C::kWarps>(&shared.with_k[0][at.column], C::kFirstBit + 2, u);
    read_four(&shared.rows[2][at.column], v);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      f.correct(u[i], &v[i]);
      delta[i] = v[i] * f.k;
    }
    tile.reconvert(*static_cast<volatile uint32_t*>(&shared.zero));
    update_rows<C>(tile, token, f.alpha, delta);
    if (slots.write >= 0) {
      char* const out = p.final.data + offset;
      tile.store(out + uint64_t{static_cast<uint32_t>(slots.write)} * p.final.slot_bytes,
                 ptx::evict_first());
    }
    if (at.warp != kNormWarp) return;
    sum_warps<C::kWarps>(&shared.with_q[0][at.column], C::kFirstBit + 2, w);
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = f.output(w[i], v[i]);
    write_normed<Io>(p, at, &shared.normed[at.column], w);
  }

  __device__ __forceinline__ void write_zeros() const {
    constexpr float kZeros[4] = {};
    if (at.warp == kNormWarp) write_outputs<Io>(p, at, kZeros, kZeros);
  }

  /// New convolution states of the CTA's share of q and k.
  __device__ __forceinline__ void replace_shared_pairs() const {
    if (slots.write < 0 || !owns_pair()) return;
    // SYNC cluster: every CTA of the unit has read the old ones
    ptx::cluster_wait();
    const LayerPair where(p, at, threadIdx.x);
    const uint4 words = shared.conv[threadIdx.x];
    where.new_state(p, static_cast<uint32_t>(slots.write)).store(p.L, words);
  }
};

/// One CTA's value head; the r CTAs of a key head are a cluster.
template <class C>
__device__ __forceinline__ void run_single_layer(const typename C::Params& p) {
  SingleLayer<C> layer(p);
  const uint32_t sequence = layer.at.sequence;
  // The slot as it may be ahead of the wait: what is read of another one is not used.
  int slot = min(max(peek_single(p.read_slots, sequence), 0), p.initial.slots - 1);
  layer.prefetch(slot);
  // A second time only where the slot was another one.
  for (;;) {
    // SYNC grid: what earlier launches wrote is visible
    ptx::wait_for_dependencies();
    ptx::launch_dependents();
    layer.request(slot);
    layer.slots = find_entries(p, sequence);
    if (layer.slots.read == slot || layer.slots.read < 0) break;
    slot = layer.slots.read;
  }
  if (layer.slots.padded) {
    layer.write_zeros();
    return;
  }
  if (layer.slots.read < 0) layer.clear();
  layer.settle();
  // SYNC cluster: this thread has read, and used, its columns of the convolution states
  if (gridDim.x > 1) ptx::cluster_arrive_relaxed();
  // SYNC CTA: the token is complete
  __syncthreads();
  layer.advance();
  if (gridDim.x > 1) layer.replace_shared_pairs();
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_CUH_
