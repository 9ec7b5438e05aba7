// Linear attention for few heads: 64 columns of V a CTA, and the chain of states as short as it
// gets.
//
// Math      that of kernel.cuh
// Roles     warpgroup 0 as there. Warpgroup 3, state: S^T in registers, S += .. and nothing else;
//           every S goes rounded to shared memory. Warpgroups 1 and 2, outputs, chunks by turns:
//           P = Q K^T, O = Q S + P V, with tokens as rows
// Pipeline  loader --k--> state, outputs   --q--> outputs      value warp --v--> state, outputs
//           gate --G, factors--> state, outputs      state --S--> outputs --o tile--> copy engine
// Memory    SharedMemoryPlan, 208 KB at K = 128
// Floor     a chunk's smem traffic: about 1,200 cycles at K = 128; the state's chain is 700
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_CUH_
#define SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_CUH_

#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/linear_attention/relay_outputs.cuh"
#include "cuda/kernels/linear_attention/relay_state.cuh"
#include "cuda/kernels/linear_attention/service.cuh"
#include "cuda/ptx/cluster.cuh"

namespace sluice::cuda::linear_attention {

/// Launch as linear_attention_kernel.
template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    linear_relay_kernel(const __grid_constant__ ChunkForwardParams p) {
  auto& s = *reinterpret_cast<SharedMemoryPlan<C>*>(ptx::dynamic_memory());
  if (threadIdx.x == 0) {
    s.k_ring.init(1, 8);
    s.q_ring.init(1, 4);
    s.v_ring.init(1, 8);
    s.gate_ring.init(1, 8);
    s.state_ring.init(4, 4);
    s.work_ring.init(1, C::kWorkReaders);
    ptx::fence_mbarrier_init();
    if (p.T > 0) {
      for (const CUtensorMap* map : {&p.k, &p.q, &p.v, &p.o}) ptx::prefetch_tensor_map(map);
    }
  }
  __syncthreads();
  ptx::wait_for_dependencies();
  if (!chunk_forward::takes_pass<C>(p)) return;
  const uint32_t warpgroup = threadIdx.x >> 7;
  if (warpgroup == 0) {
    ptx::decrease_registers<C::kServiceRegisters>();
    serve<C>(p, s);
  } else if (warpgroup < 3) {
    ptx::increase_registers<C::kOutputRegisters>();
    outputs_role<C>(p, s, static_cast<int>(warpgroup) - 1);
  } else {
    ptx::increase_registers<C::kStateRegisters>();
    relay_state_role<C>(p, s);
  }
}

/// The instance of a RelayConfig.
template <class C>
chunk_forward::Instance make_relay_instance() noexcept {
  return {reinterpret_cast<const void*>(&linear_relay_kernel<C>), sizeof(SharedMemoryPlan<C>),
          C::kThreads};
}

}  // namespace sluice::cuda::linear_attention

#endif  // SLUICE_CUDA_KERNELS_LINEAR_ATTENTION_RELAY_CUH_
