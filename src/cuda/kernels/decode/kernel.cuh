// Steps 1 to 16 tokens of every sequence in one launch, the delta rule alone or a whole layer: the
// decode kernel for any case. docs/kernels/decode.md has its byte account.
//
// Math      S <- alpha S + k (beta (v - alpha S^T k))^T, o = scale S^T q, in float32, in one sweep
//           over the old state: u = S^T k, w = S^T q, delta = beta (v - alpha u),
//           o = scale (alpha w + (k.q) delta), S <- alpha S + k delta^T.
// Roles     unit = (sequence, key head), cut into tiles of 128, 64 or 32 columns of its value
//           heads.
//           A CTA has some or all tiles of a unit, one at a time, in registers; of a layer, the
//           CTAs of a unit are a cluster.
// Pipeline  ask the L2 for the state -> wait for earlier launches -> request slots, tokens, then
//           the state of the first tile -> tokens to shared memory -> barrier -> per tile and
//           token: sums of a warp -> barrier -> update -> store the state -> (layer) norm, conv
//           states
// Memory    dynamic shared memory: TokenBufferSizes, 18 KiB at T = 1; registers: 64 of state a thread.
// Floor     state read and written once: 128 KiB per (sequence, value head) in float32.
// Rejected  docs/kernels/decode.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_KERNEL_CUH_

#include <type_traits>

#include "cuda/kernels/decode/conv_pairs.cuh"
#include "cuda/kernels/decode/norm.cuh"
#include "cuda/kernels/decode/step.cuh"

namespace sluice::cuda::decode {

/// A warp's first row of the delta rule alone, requested before anything is known of states.
template <class C>
struct TokenRequest {
  RowRequest<C> row;

  template <class Params>
  __device__ __forceinline__ TokenRequest(const Params& p, const Unit& unit, const TokenBuffer&) {
    request_row(p, unit, static_cast<int>(threadIdx.x / 32), row);
  }
  template <class Params>
  __device__ __forceinline__ void request_states(const Params&, const Unit&, const TokenBuffer&,
                                                 const device::SlotEntries&) {}
  /// All of the warp's rows to shared memory.
  template <class Params>
  __device__ __forceinline__ void settle(const Params& p, const Unit& unit, const TokenBuffer& s) {
    int item = static_cast<int>(threadIdx.x / 32);
    settle_row(p, unit, s, item, row);
    for (item += C::kWarps; item < C::kParts * unit.seq.tokens; item += C::kWarps) {
      request_row(p, unit, item, row);
      settle_row(p, unit, s, item, row);
    }
  }
};

/// The same of a layer: convolved tokens, and the norm's factors.
template <class C>
struct LayerRequest {
  PairInputs pair{};
  NormInputs norm;
  int write = -1;  ///< slot of the conv state
  template <class Params>
  __device__ __forceinline__ LayerRequest(const Params& p, const Unit& unit, const TokenBuffer& s) {
    const int at = 2 * static_cast<int>(threadIdx.x);
    if (p.by_pairs() && at < s.row) request_pair<C>(p, unit, at, pair);
    norm = request_norm(p, unit, s, static_cast<int>(threadIdx.x));
  }
  template <class Params>
  __device__ __forceinline__ void request_states(const Params& p, const Unit& unit,
                                                 const TokenBuffer& s,
                                                 const device::SlotEntries& entries) {
    if (!p.by_pairs()) return;
    const int first = 2 * static_cast<int>(threadIdx.x);
    const ConvSlots slots = conv_slots(p, entries);
    write = slots.write;
    // PERF rows longer than the CTA: here, where registers do not hold a state yet
#pragma unroll 1
    for (int at = first + 2 * C::kThreads; at < s.row; at += 2 * C::kThreads) {
      PairInputs more{};
      request_pair<C>(p, unit, at, more);
      request_pair_state<C>(p, unit, slots.read, at, more);
      settle_pair<C>(p, unit, s, write, at, more);
    }
    if (first < s.row) request_pair_state<C>(p, unit, slots.read, first, pair);
  }
  template <class Params>
  __device__ __forceinline__ void settle(const Params& p, const Unit& unit, const TokenBuffer& s) {
    const int thread = static_cast<int>(threadIdx.x);
    settle_norm(p, unit, s, thread, norm);
    for (int i = thread + C::kThreads; i < unit.seq.tokens * s.columns; i += C::kThreads) {
      settle_norm(p, unit, s, i, request_norm(p, unit, s, i));
    }
    if (!p.by_pairs()) {
      convolve_channels<C>(p, unit, s);
      return;
    }
    if (2 * thread < s.row) settle_pair<C>(p, unit, s, write, 2 * thread, pair);
  }
};

/// Fills the token buffer, and asks for the first tile's state on the way. PERF requests go out in the
/// order in which their addresses are known: slots, tokens and gates, states.
template <class C, class Params>
__device__ __forceinline__ void fill_token_buffer(const Params& p, Unit& unit, const TokenBuffer& s,
                                                  const Lane<C>& lane, Tile<C>& state) {
  // The last threads have the least to do otherwise.
  const int entry = C::kThreads - 1 - static_cast<int>(threadIdx.x);
  const device::SlotEntries slots = device::request_slots(p.state, unit.seq.index);
  const GateInputs gate = request_gate(p, unit, entry);
  using Request = std::conditional_t<C::kLayer, LayerRequest<C>, TokenRequest<C>>;
  Request request(p, unit, s);
  device::find_slots(p.state, slots, &unit.seq);
  if (unit.seq.padded) return;
  request.request_states(p, unit, s, slots);
  if (unit.first < unit.last) load_tile(p, unit, unit.first, lane, state);
  settle_gate(p, unit, s, entry, gate);
  for (int i = entry + C::kThreads; i < unit.seq.tokens * p.r; i += C::kThreads) {
    settle_gate(p, unit, s, i, request_gate(p, unit, i));
  }
  buffer_slots(p, unit, s);
  request.settle(p, unit, s);
}

/// The part of a layer behind the delta rule: outputs first, then conv states.
template <class C, class Params>
__device__ __forceinline__ void finish_layer(const Params& p, const Unit& unit,
                                             const TokenBuffer& s) {
  const bool alone = p.ctas() == 1;
  if (alone) {
    // SYNC CTA: o and the sums of squares of all tiles are complete
    __syncthreads();
  } else {
    if (!hands_over(p, unit)) hand_over();
    // SYNC cluster 2: o and the sums of squares of all CTAs of the unit are complete
    ptx::cluster_wait();
  }
  write_rows(p, unit, s);
  // SYNC cluster 3: this thread has read what it needs of other CTAs
  if (!alone) ptx::cluster_arrive_relaxed();
  if (!p.by_pairs()) {
    update_channels<C>(p, unit, s);
  } else if (!alone) {
    store_shared_pairs<C>(p, unit, s);
  }
  // SYNC cluster 3: nobody reads this CTA's sums any more, so it may end
  if (!alone) ptx::cluster_wait();
}

/// Asks the L2 for what the CTA reads ahead of griddepcontrol.wait. DecodeParams::prefetch promises
/// plain slots.
template <class C, class Params>
__device__ __forceinline__ void prefetch_all(const Params& p, const Unit& unit) {
  const int64_t slot = peek_slot(p, unit.seq.index);
  prefetch_tiles<C>(p, unit, slot, unit.first, unit.last);
  if constexpr (C::kLayer) {
    if (!p.by_pairs() || slot < 0) return;
    const int row = 2 * C::kK + (p.tiles() << p.column_bits());
#pragma unroll 1
    for (int at = 2 * static_cast<int>(threadIdx.x); at < row; at += 2 * C::kThreads) {
      prefetch_pair<C>(p, unit, slot, at);
    }
  }
}

/// All tiles of the CTA; the first one's state is requested.
template <class C, class Form, class Params>
__device__ __forceinline__ void run_tiles(const Params& p, const Unit& unit, const TokenBuffer& s,
                                          const Lane<C>& lane, Tile<C>& state) {
#pragma unroll 1
  for (int tile = unit.first; tile < unit.last; ++tile) {
    if constexpr (!C::kPacked) unpack_tile(p, state);
    run_tile<C, Form>(p, s, unit, tile, lane, state);
    if (tile + 1 == unit.last) break;
    state.clear();
    Unit again = unit;
    // PERF found again, not kept over the tile before: registers
    if (C::kLayer) {
      device::find_slots(p.state, device::request_slots(p.state, unit.seq.index), &again.seq);
    }
    load_tile(p, again, tile + 1, lane, state);
  }
}

/// @param p by value, in constant memory. Launch with a grid of p.ctas() x H x N CTAs of
///          C::kThreads threads and TokenBufferSizes::bytes() of dynamic shared memory; of a layer
///          with more than one CTA a unit, in clusters of p.ctas().
template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kResident)
    decode_kernel(const __grid_constant__ DecodeParams p) {
  Unit unit = unit_of(p);
  if (p.prefetch) prefetch_all<C>(p, unit);
  // SYNC grid: what earlier launches wrote is visible
  ptx::wait_for_dependencies();
  ptx::launch_dependents();
  device::find_rows(p.rows, &unit.seq);
  const TokenBuffer s = make_token_buffer<C>(p);
  const Lane<C> lane(p.column_bits());
  Tile<C> state;
  state.clear();
  fill_token_buffer(p, unit, s, lane, state);
  if (unit.seq.padded) {
    write_zeros<C>(p, unit, s);
    return;
  }
  // SYNC cluster 1: this thread has read, and used, its columns of the conv states
  if (C::kLayer && p.ctas() > 1) ptx::cluster_arrive_relaxed();
  // SYNC CTA: the buffer is complete, and v columns (alone in a unit: all) of conv states are read
  __syncthreads();
  if constexpr (!C::kPacked) {
    run_tiles<C, InFloat32>(p, unit, s, lane, state);
  } else if (p.state.final.pool.number == Number::kBfloat16) {
    run_tiles<C, In16Bits<__nv_bfloat16>>(p, unit, s, lane, state);
  } else {
    run_tiles<C, In16Bits<__half>>(p, unit, s, lane, state);
  }
  if (C::kLayer) finish_layer<C>(p, unit, s);
}

template <class C>
const void* instance() noexcept {
  return reinterpret_cast<const void*>(&decode_kernel<C>);
}

template <int kK, bool kVk>
const void* instance_of(AnyForm form) noexcept {
  if (form == AnyForm::kLayer) return instance<Config<kK, kVk, true>>();
  if (form == AnyForm::kKeyGates) return instance<Config<kK, kVk, false, false, true>>();
  if constexpr (!kVk) {
    if (form == AnyForm::kPacked) return instance<Config<kK, kVk, false, true>>();
  }
  return instance<Config<kK, kVk, false>>();
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_KERNEL_CUH_
