// Runs a prefill in one launch. docs/kernels/prefill.md has its times and what was tried.
//
// Math    docs/math.md, chunk form. Per chunk of 64 tokens, S the state entering it:
//         A = stril(diag(beta) (Gamma * Kc Kc^T)),  Tmat = (I + A)^-1 diag(beta)
//         R = Vc - diag(e^G) Kc S,  Nw = Tmat R,  P = scale Gamma * tril(Qc Kc^T)
//         O = scale diag(e^G) Qc S + P Nw,  S' = e^{G_C} S + Kc^T diag(e^{G_C - G}) Nw
// Roles   persistent grid, one work item = one (sequence, value head), or a segment of it, see
//         device/segments.hpp. Warpgroup 0: loader, gate
//         warp, two finish warps. Warpgroups 1, 2: 64 columns of V each, S^T in registers.
//         Warpgroup 3, aux: A, P and factors, two to three chunks ahead.
// Pipeline (arrows are mbarrier rings; each ring has a full and an empty barrier per slot)
//         loader --k,q--> aux, state      gate --G,beta--> aux, finish      gate --v--> state
//         aux --A--> finish --Tmat--> state      aux --factors--> state      aux --P--> state
//         state --o tile--> copy engine
// Memory  SharedMemoryPlan, 224 KB; registers 64 (service), 64 (aux), 192 (state) per thread.
// Floor   163,840 FLOP per token and head: 1.75 us per chunk and head on one SM of an H200.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KERNEL_CUH_

#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/inverse.cuh"
#include "cuda/kernels/chunk_forward/prepare.cuh"
#include "cuda/kernels/chunk_forward/service.cuh"
#include "cuda/kernels/chunk_forward/state.cuh"

namespace sluice::cuda::chunk_forward {

/// Initialises all barriers; one thread.
template <class C>
__device__ __forceinline__ void init_barriers(SharedMemoryPlan<C>& s) {
  constexpr uint32_t kTileReaders = kAuxWarps + C::kStateWarps;
  s.k_ring.init(1, kTileReaders);
  s.q_ring.init(1, kTileReaders);
  s.v_ring.init(1, C::kStateWarps);
  s.factor_ring.init(kAuxWarps, C::kStateWarps);
  s.tmat_ring.init(1, C::kStateWarps);
  s.p_ring.init(kAuxWarps, C::kStateWarps);
  s.gate_ring.init(1, kAuxWarps + 1);
  s.block_ring.init(kAuxWarps, 1);
  s.work_ring.init(1, C::kWorkReaders);
  ptx::fence_mbarrier_init();
}

/// Zeroes bytes that no role writes but products read: blocks above the diagonal of Tmat, P and the
/// inverse.
template <class C>
__device__ __forceinline__ void zero_upper_blocks(SharedMemoryPlan<C>& s) {
  tile::zero<C::kThreads>(s.Tmat);
  tile::zero<C::kThreads>(s.P);
  tile::zero<C::kThreads>(s.blocks);
  ptx::fence_proxy_async();
}

/// The roles of a CTA, all threads.
template <class C>
__device__ __forceinline__ void serve(const PrefillParams& p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<SharedMemoryPlan<C>*>(dynamic_shared);
  const int warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    const auto warp = static_cast<ServiceWarp>(tile::warp());
    if (warp == ServiceWarp::kLoad) {
      if (threadIdx.x == 0) device::load_role<C>(p, s);
    } else if (warp == ServiceWarp::kGate) {
      gate_role<C>(p, s);
    } else {
      finish_role<C>(s, warp == ServiceWarp::kFinishOdd);
    }
  } else if (warpgroup == 3) {
    ptx::decrease_registers<C::kAuxRegisters>();
    prepare_role<C>(p, s);
  } else if (warpgroup <= C::kStateGroups) {
    ptx::increase_registers<C::kStateRegisters>();
    state_role<C>(p, s, warpgroup - 1);
  }
}

/// See the head of this file. Launch with Config::kThreads threads, sizeof(SharedMemoryPlan) bytes
/// of dynamic shared memory (1024-byte aligned) and at most as many CTAs as are resident at once.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    chunk_forward_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<SharedMemoryPlan<C>*>(dynamic_shared);
  // A main pass whose first segments were computed beside the transition pass: by the same code, which
  // is in the caches then.
  const bool is_main = C::kOutput || p.first_ticket > 0;
  if (!is_main) {
    ptx::launch_dependents();
    ptx::wait_for_dependencies();
    if (device::SegmentView{p, device::kMayLead<C>}.transitions() == 0) return;
  }
  if (threadIdx.x == 0) {
    init_barriers<C>(s);
    if (p.T > 0) {
      ptx::prefetch_tensor_map(&p.k);
      ptx::prefetch_tensor_map(&p.q);
      ptx::prefetch_tensor_map(&p.v);
      ptx::prefetch_tensor_map(&p.o);
    }
  }
  zero_upper_blocks(s);
  __syncthreads();
  // The last round as a launch of its own begins while the one before it ends: it reads nothing of
  // that, and whatever came earlier is done.
  const bool is_tail = C::kOutput && p.segments.cut.halves_tail && p.first_ticket != 0;
  if (!is_tail) ptx::wait_for_dependencies();
  if (C::kOutput && p.segments.cut.halves_tail) ptx::launch_dependents();
  if (C::kOutput && !device::takes_pass<C>(p)) return;
  // PERF beside the transition pass, not in a launch of its own: that ran before it.
  if constexpr (!C::kOutput) {
    if (is_main || blockIdx.x < device::leading_ctas<C>(p)) return serve<typename C::Leading>(p);
  }
  serve<C>(p);
  // WHY: whoever waits for this launch waits for the one before it too.
  if (is_tail) ptx::wait_for_dependencies();
}

/// The instance of a Config.
template <class C>
Instance make_instance() noexcept {
  return {device::address_of(chunk_forward_kernel<C>), sizeof(SharedMemoryPlan<C>), C::kThreads};
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KERNEL_CUH_
