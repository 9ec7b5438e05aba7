// Runs linear attention (simple GLA). docs/kernels/linear_attention.md has the account of its
// time and what was tried.
//
// Math      docs/math.md, chunk form. Per chunk of 64 tokens, S the state entering it:
//           P = scale Gamma * tril(Qc Kc^T),  O = scale diag(e^G) Qc S + P Vc
//           S' = e^{G_C} S + Kc^T diag(e^{G_C - G}) Vc
// Roles     persistent grid; work items, segments and their planner are those of device/.
//           Warpgroup 0: loader, gate warp, value warp. Warpgroup 1: P, chunks ahead. The others:
//           64 columns of V each, S^T in registers
// Pipeline  (arrows are mbarrier rings; each ring has a full and an empty barrier per slot)
//           loader --k,q--> scores, state      value warp --v--> state      scores --P--> state
//           gate --G, factors--> scores, state      state --o tile--> copy engine
// Memory    SharedMemoryPlan, 208 KB; registers 40 (service), 88 (scores), 192 or 240 (state)
// Floor     docs/kernels/linear_attention.md: at K = V = 128 98304 FLOP per token and head, 1 us
//           per chunk and head on one SM of an H200; 64 KB, 1.9 us on one SM of 132
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_KERNEL_CUH_

#include "cuda/device/instance.h"
#include "cuda/kernels/linear_attention/scores.cuh"
#include "cuda/kernels/linear_attention/service.cuh"
#include "cuda/kernels/linear_attention/state.cuh"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::linear_attention {

/// Initialises all barriers; one thread.
template <class C>
__device__ __forceinline__ void init_barriers(SharedMemoryPlan<C>& s) {
  s.k_ring.init(1, C::kScoreWarps + C::kStateWarps);
  s.q_ring.init(1, C::kScoreWarps + C::kStateWarps);
  s.v_ring.init(1, C::kStateWarps);
  s.p_ring.init(4, C::kStateWarps);
  s.gate_ring.init(1, C::kScoreWarps + C::kStateWarps);
  s.work_ring.init(1, C::kWorkReaders);
  ptx::fence_mbarrier_init();
}

/// See the head of this file. Launch with Config::kThreads threads, sizeof(SharedMemoryPlan) bytes
/// of dynamic shared memory (1024-byte aligned) and at most as many CTAs as are resident at once.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    linear_attention_kernel(const __grid_constant__ PrefillParams p) {
  auto& s = *reinterpret_cast<SharedMemoryPlan<C>*>(ptx::dynamic_memory());
  if constexpr (!C::kOutput) {
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
  if constexpr (C::kOutput) {
    // Nobody writes the blocks above the diagonal, but products read them.
    tile::zero<C::kThreads>(s.P);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  ptx::wait_for_dependencies();
  if (C::kOutput && !device::takes_pass<C>(p)) return;
  const int warpgroup = tile::warpgroup();
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    serve<C>(p, s);
  } else if (warpgroup == 1) {
    ptx::decrease_registers<C::kScoreRegisters>();
    if constexpr (C::kOutput) scores_role<C>(p, s);
  } else {
    ptx::increase_registers<C::kStateRegisters>();
    state_role<C>(p, s, warpgroup - 2);
  }
}

/// The instance of a Config.
template <class C>
device::Instance make_instance() noexcept {
  return {device::address_of(linear_attention_kernel<C>), sizeof(SharedMemoryPlan<C>), C::kThreads};
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_KERNEL_CUH_
