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

#include <type_traits>

#include "cuda/kernels/decode/conv.cuh"
#include "cuda/kernels/decode/norm.cuh"
#include "cuda/kernels/decode/step.cuh"

namespace sluice::cuda::decode {

/// A thread's first numbers of the delta rule alone, requested before anything is known of states.
template <class C>
struct TokenRequest {
  Requested rows;

  __device__ __forceinline__ TokenRequest(const DecodeParams& p, const Unit& unit,
                                          const ConvSequence&, const Stage& s) {
    request_rows<C>(p, unit, s, static_cast<int>(threadIdx.x), rows);
  }
  /// All of the thread's numbers to shared memory.
  __device__ __forceinline__ void settle(const DecodeParams& p, const Unit& unit,
                                         const ConvSequence&, const Stage& s) {
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    settle_rows<C>(p, unit, s, thread, rows);
    const int total = unit.seq.tokens * max(C::kK, s.columns);
    for (int i = thread + kTogether * threads; i < total; i += kTogether * threads) {
      request_rows<C>(p, unit, s, i, rows);
      settle_rows<C>(p, unit, s, i, rows);
    }
  }
};

/// The same of a layer: convolved tokens, and the norm's factors.
template <class C>
struct LayerRequest {
  ConvInputs channels[kChannelsTogether];
  NormInputs norm;

  __device__ __forceinline__ void request(const DecodeParams& p, const Unit& unit,
                                          const ConvSequence& conv, const Stage& s, int first) {
#pragma unroll
    for (int n = 0; n < kChannelsTogether; ++n) {
      const int at = first + n * static_cast<int>(blockDim.x);
      channels[n] = {};
      if (at < s.row) channels[n] = request_channel<C>(p, unit, conv, at);
    }
  }
  __device__ __forceinline__ LayerRequest(const DecodeParams& p, const Unit& unit,
                                          const ConvSequence& conv, const Stage& s) {
    request(p, unit, conv, s, static_cast<int>(threadIdx.x));
    norm = request_norm(p, unit, s, static_cast<int>(threadIdx.x));
  }
  __device__ __forceinline__ void settle(const DecodeParams& p, const Unit& unit,
                                         const ConvSequence& conv, const Stage& s) {
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    for (int first = thread; first < s.row; first += kChannelsTogether * threads) {
      if (first != thread) request(p, unit, conv, s, first);
#pragma unroll
      for (int n = 0; n < kChannelsTogether; ++n) {
        const int at = first + n * threads;
        if (at < s.row) settle_channel<C>(p, unit, s, at, channels[n]);
      }
    }
    settle_norm(p, unit, s, thread, norm);
    for (int i = thread + threads; i < unit.seq.tokens * s.columns; i += threads) {
      settle_norm(p, unit, s, i, request_norm(p, unit, s, i));
    }
  }
};

/// Fills the stage, and asks for the first tile's state on the way. PERF requests go out in the
/// order in which their addresses are known: slots, tokens and gates, states.
template <class C>
__device__ __forceinline__ void stage_all(const DecodeParams& p, Unit& unit, ConvSequence& conv,
                                          const Stage& s, int tile, const Lane<C>& lane,
                                          Tile<C>& state) {
  const int threads = static_cast<int>(blockDim.x);
  // The last threads have the least to do otherwise.
  const int entry = threads - 1 - static_cast<int>(threadIdx.x);
  const device::SlotEntries slots = device::request_slots(p.state, unit.seq.index);
  if (C::kLayer) conv = conv_sequence(p, unit.seq);
  const GateInputs gate = request_gate(p, unit, entry);
  using Request = std::conditional_t<C::kLayer, LayerRequest<C>, TokenRequest<C>>;
  Request request(p, unit, conv, s);
  device::find_slots(p.state, slots, &unit.seq);
  if (unit.seq.padded) return;
  if (tile < unit.last) load_tile(p, unit, tile, lane, state);
  settle_gate(p, unit, s, entry, gate);
  for (int i = entry + threads; i < unit.seq.tokens * p.r; i += threads) {
    settle_gate(p, unit, s, i, request_gate(p, unit, i));
  }
  stage_slots(p, unit, s);
  request.settle(p, unit, conv, s);
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

/// @param p by value, in constant memory. Launch with a grid of p.grid.ctas x H x N CTAs of
///          p.grid.threads threads and StageSizes::bytes() of dynamic shared memory; of a layer
///          with more than one CTA a unit, in clusters of p.grid.ctas.
template <class C>
__global__ void __launch_bounds__(kMaxThreads, C::kResident)
    decode_kernel(const __grid_constant__ DecodeParams p) {
  // SYNC grid: what earlier launches wrote is visible
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
  Unit unit = unit_of(p);
  const Stage s = make_stage<C>(p);
  const Lane<C> lane;
  const int warps = static_cast<int>(blockDim.x / 32);
  int tile = unit.first + static_cast<int>(threadIdx.x / 32);
  Tile<C> state;
  ConvSequence conv{};
  stage_all(p, unit, conv, s, tile, lane, state);
  if (unit.seq.padded) {
    write_zeros<C>(p, unit, s);
    return;
  }
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
