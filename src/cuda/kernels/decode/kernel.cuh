// The decode kernel: 1 to 16 tokens of every sequence in one launch, the delta rule alone or a
// whole layer step. docs/kernels/decode.md has its byte account.
//
// Math      S <- alpha S + k (beta (v - alpha S^T k))^T, o = scale S^T q, in float32, in one sweep
//           over the old state: u = S^T k, w = S^T q, delta = beta (v - alpha u),
//           o = scale (alpha w + (k.q) delta), S <- alpha S + k delta^T.
// Roles     unit = (sequence, key head), cut into tiles of 16 columns of its value heads. A warp
// has
//           a tile at a time, in registers; a CTA has some or all tiles of a unit. Of a layer, the
//           CTAs of a unit are a cluster.
// Pipeline  request tokens -> request the state of the first tile -> tokens to shared memory ->
//           barrier -> per tile: sweep, update, store the state -> (layer) norm and conv states
// Memory    dynamic shared memory: StageSizes, 1.3 KB at T = 1; registers: K/2 of state a lane.
// Floor     state read and written once: 128 KiB per (sequence, value head) in float32.
// Rejected  docs/kernels/decode.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_KERNEL_CUH_

#include "cuda/kernels/decode/conv.cuh"
#include "cuda/kernels/decode/norm.cuh"
#include "cuda/kernels/decode/step.cuh"

namespace sluice::cuda::decode {

/// Fills the stage of the delta rule alone; asks for the first tile's state on the way.
template <class C>
__device__ __forceinline__ void stage_tokens(const DecodeParams& p, const Unit& unit,
                                             const Stage& s, int tile, const Lane<C>& lane,
                                             Tile<C>& state) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int total = unit.seq.tokens * s.row;
  Requested requested;
  request_rows<C>(p, unit, s, thread, requested);
  if (tile < unit.last) load_tile(p, unit, tile, lane, state);
  settle_rows(unit, s, thread, requested);
  for (int i = thread + kTogether * threads; i < total; i += kTogether * threads) {
    request_rows<C>(p, unit, s, i, requested);
    settle_rows(unit, s, i, requested);
  }
}

/// The same of a layer: convolved tokens, and the norm's factors.
template <class C>
__device__ __forceinline__ void stage_layer(const DecodeParams& p, const Unit& unit,
                                            const ConvSequence& conv, const Stage& s, int tile,
                                            const Lane<C>& lane, Tile<C>& state) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int elements = unit.seq.tokens * s.columns;
  for (int first = thread; first < s.row; first += kChannelsTogether * threads) {
    ConvInputs requested[kChannelsTogether] = {};
#pragma unroll
    for (int n = 0; n < kChannelsTogether; ++n) {
      const int at = first + n * threads;
      if (at < s.row) requested[n] = request_channel<C>(p, unit, conv, at);
    }
    if (first == thread && tile < unit.last) load_tile(p, unit, tile, lane, state);
#pragma unroll
    for (int n = 0; n < kChannelsTogether; ++n) {
      const int at = first + n * threads;
      if (at < s.row) settle_channel<C>(p, unit, s, at, requested[n]);
    }
  }
  for (int i = thread; i < elements; i += threads) {
    settle_norm(p, s, i, request_norm(p, unit, s, i));
  }
}

/// Decays, write strengths and slots, by the last threads, which have the least to do otherwise.
__device__ __forceinline__ void stage_scalars(const DecodeParams& p, const Unit& unit,
                                              const Stage& s) {
  const int threads = static_cast<int>(blockDim.x);
  for (int i = threads - 1 - static_cast<int>(threadIdx.x); i < unit.seq.tokens * p.r;
       i += threads) {
    settle_gate(p, s, i, request_gate(p, unit, i));
  }
  stage_slots(p, unit, s);
}

/// The part of a layer behind the delta rule.
template <class C>
__device__ __forceinline__ void finish_layer(const DecodeParams& p, const Unit& unit,
                                             const ConvSequence& conv, const Stage& s) {
  if (p.grid.ctas == 1) {
    // SYNC CTA: o and partial sums of all tiles are complete
    __syncthreads();
    write_rows(p, unit, s);
    return;
  }
  // SYNC cluster 1: every CTA of the unit has read the q and k columns of the conv states
  ptx::cluster_wait();
  ptx::cluster_arrive();
  // SYNC cluster 2: o and partial sums of all CTAs of the unit are complete
  ptx::cluster_wait();
  write_rows(p, unit, s);
  ptx::cluster_arrive();
  const int channels = 2 * C::kK;
  update_states<C>(p, unit, conv, channels * unit.rank / p.grid.ctas,
                   channels * (unit.rank + 1) / p.grid.ctas);
  // SYNC cluster 3: nobody reads this CTA's partial sums any more, so it may end
  ptx::cluster_wait();
}

/// @param p by value, in constant memory. Launch with N H p.grid.ctas CTAs of p.grid.threads
///          threads and StageSizes::bytes() of dynamic shared memory; of a layer with more than one
///          CTA a unit, in clusters of p.grid.ctas.
template <class C>
__global__ void __launch_bounds__(kMaxThreads, C::kResident)
    decode_kernel(const __grid_constant__ DecodeParams p) {
  // SYNC grid: what earlier launches wrote is visible
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
  const Unit unit = unit_of(p);
  const Stage s = make_stage<C>(p);
  if (unit.seq.padded) {
    write_zeros<C>(p, unit, s);
    return;
  }
  const Lane<C> lane;
  const int warps = static_cast<int>(blockDim.x / 32);
  int tile = unit.first + static_cast<int>(threadIdx.x / 32);
  Tile<C> state;
  ConvSequence conv{};
  if (C::kLayer) {
    conv = conv_sequence(p, unit.seq);
    stage_layer(p, unit, conv, s, tile, lane, state);
  } else {
    stage_tokens(p, unit, s, tile, lane, state);
  }
  stage_scalars(p, unit, s);
  // SYNC cluster 1: this CTA has read its columns of the conv states
  if (C::kLayer && p.grid.ctas > 1) ptx::cluster_arrive();
  // SYNC CTA: the stage is complete, and v columns (alone in a unit: all) of conv states are read
  __syncthreads();
  if (C::kLayer) update_states<C>(p, unit, conv, p.grid.ctas > 1 ? 2 * C::kK : 0, s.row);
#pragma unroll 1
  for (; tile < unit.last; tile += warps) {
    unpack_tile(p, state);
    run_tile(p, s, unit, tile, lane, state);
    if (tile + warps < unit.last) load_tile(p, unit, tile + warps, lane, state);
  }
  if (C::kLayer) finish_layer<C>(p, unit, conv, s);
}

/// The instance of a Config.
template <class C>
const void* instance() noexcept {
  return reinterpret_cast<const void*>(&decode_kernel<C>);
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_KERNEL_CUH_
