// Copies boxes of rank-5 tensors in bulk, by the copy engine (PTX ISA 9.7.9.27).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_TMA_CUH_
#define SLUICE_CUDA_PTX_TMA_CUH_

#include <cuda.h>

#include "cuda/ptx/barrier.cuh"

namespace sluice::cuda::ptx {

/// Coordinates of a box, innermost dimension first.
struct BoxOrigin {
  int32_t c0, c1, c2, c3, c4;
};

/// Fetches the descriptor ahead of its first use.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

/// Global to shared memory; completes on `barrier` with the box's bytes.
__device__ __forceinline__ void tma_load(void* destination, const CUtensorMap* map, BoxOrigin at,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];\n" ::"r"(shared_address(destination)),
      "l"(map), "r"(shared_address(barrier)), "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3),
      "r"(at.c4)
      : "memory");
}

/// `bytes` (a multiple of 16) in a row from global to shared memory; completes on `barrier`.
__device__ __forceinline__ void bulk_load(void* destination, const void* source, uint32_t bytes,
                                          uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::
          "r"(shared_address(destination)),
      "l"(source), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

/// bulk_load() of data that nobody will ask for again soon: stream.cuh.
__device__ __forceinline__ void bulk_load_stream(void* destination, const void* source,
                                                 uint32_t bytes, uint64_t* barrier,
                                                 uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;\n" ::"r"(shared_address(destination)),
      "l"(source), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

/// Shared to global memory, as part of this thread's current bulk group.
__device__ __forceinline__ void tma_store(const CUtensorMap* map, const void* source,
                                          BoxOrigin at) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group"
      " [%0, {%2, %3, %4, %5, %6}], [%1];\n" ::"l"(map),
      "r"(shared_address(source)), "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4)
      : "memory");
}

/// Brings `bytes` (a multiple of 16) at a 16-byte aligned global address into the L2.
__device__ __forceinline__ void prefetch_l2(const void* address, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(address), "r"(bytes)
               : "memory");
}

/// Brings a box of a tensor into the L2.
__device__ __forceinline__ void tma_prefetch(const CUtensorMap* map, BoxOrigin at) {
  asm volatile(
      "cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];\n" ::"l"(map),
      "r"(at.c0), "r"(at.c1), "r"(at.c2), "r"(at.c3), "r"(at.c4)
      : "memory");
}

/// `bytes` (a multiple of 16) in a row from shared to global memory, as part of this thread's current
/// bulk group.
__device__ __forceinline__ void bulk_store(void* destination, const void* source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n" ::"l"(destination),
               "r"(shared_address(source)), "r"(bytes)
               : "memory");
}

/// Closes this thread's bulk group.
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

/// Waits until the sources of all of this thread's bulk groups have been read.
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

/// Waits until all but the last kPending of this thread's bulk groups are in memory.
template <int kPending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_TMA_CUH_
