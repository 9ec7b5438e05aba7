// Runs chunk_forward and recurrent_step token by token, right for every option: the generic kernel.
//
// Math      S <- alpha S (key-wise gates: diag(alpha) S); delta = beta (v - S^T k) (simple GLA: v);
//           S <- S + k delta^T; o = scale S^T q. All in float32; o is read from the unrounded
//           state.
// Roles     one CTA of 128 threads per (sequence, value head, slice of 64, 32 or 16 columns of V);
//           eight lanes share a column, each thread keeps up to 64 elements of S in registers.
// Pipeline  buffer a block of tokens -> barrier -> tokens one by one -> barrier -> write o
// Memory    static shared memory: 12 to 21 KB, q, k, v, o of a block in float32; dynamic: 2 to 10
//           KB where gates are key-wise, their decays.
// Floor     docs/kernels/generic.md
// Rejected  docs/kernels/generic.md; right comes first here, fast kernels have rooms of their own
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GENERIC_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_GENERIC_KERNEL_CUH_

#include "cuda/kernels/generic/state.cuh"

namespace sluice::cuda::generic {

/// Zero outputs of a padded sequence.
template <class C>
__device__ __forceinline__ void zero_outputs(const GenericParams& p, const Item& item) {
  for (int64_t done = 0; done < item.tokens; done += C::kBlock) {
    const int count = static_cast<int>(min(item.tokens - done, int64_t{C::kBlock}));
    store_outputs<C>(p, item, item.row + done, count, nullptr);
  }
}

template <class C, bool kKeys>
__device__ __forceinline__ void run_item(const GenericParams& p, const Item& item,
                                         TokenBuffer<C>& s) {
  const bool passing = p.write_per_token || p.checkpoints.pool.data != nullptr;
  State<C> state;
  load_state(p, item, state);
  for (int64_t done = 0; done < item.tokens; done += C::kBlock) {
    const int count = static_cast<int>(min(item.tokens - done, int64_t{C::kBlock}));
    buffer_block<C, kKeys>(p, item, done, count, s);
    // SYNC block: every thread waits for all of the buffered tokens
    __syncthreads();
    for (int t = 0; t < count; ++t) {
      advance<kKeys>(p, s, t, state);
      if (passing) store_passing(p, item, done + t + 1, state);
    }
    // SYNC block: o is complete, and the buffered tokens have been read
    __syncthreads();
    store_outputs<C>(p, item, item.row + done, count, &s);
  }
  if (item.write >= 0) store_state(p, item, p.final.pool, item.write, state);
}

/// @tparam kKeys whether gates are key-wise. PERF one instance for both costs scalar gates 7 % where
///         loads of key-wise ones wait together, and registers for these.
/// @param p by value, in constant memory
/// @param items sequences x value heads x slices; any grid covers them
template <class C, bool kKeys>
__global__ void __launch_bounds__(kThreads, C::kResident)
    generic_kernel(const __grid_constant__ GenericParams p, int64_t items, int64_t slices) {
  __shared__ TokenBuffer<C> s;
  __shared__ Item item;
  for (int64_t index = blockIdx.x; index < items; index += gridDim.x) {
    // SYNC item: the previous item has been read by all
    __syncthreads();
    if (threadIdx.x == 0) item = item_of(p, index, slices);
    // SYNC item: all wait for the next one
    __syncthreads();
    if (item.padded) {
      zero_outputs<C>(p, item);
    } else {
      run_item<C, kKeys>(p, item, s);
    }
  }
}

}  // namespace sluice::cuda::generic

#endif  // SLUICE_CUDA_KERNELS_GENERIC_KERNEL_CUH_
