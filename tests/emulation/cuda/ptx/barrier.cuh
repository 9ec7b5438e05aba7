// Emulates src/cuda/ptx/barrier.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_BARRIER_CUH_
#define SLUICE_CUDA_PTX_BARRIER_CUH_

#include "emulator.hpp"

namespace sluice::cuda::ptx {

/// What an mbarrier's 64 bits hold here.
struct Mbarrier {
  uint16_t count, pending : 15, phase : 1;
  int32_t bytes;

  void settle() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = count & 0x7FFF;
  }
};
static_assert(sizeof(Mbarrier) == 8);
inline Mbarrier& mbarrier(uint64_t* word) {
  emulation::address_of(word);
  return *reinterpret_cast<Mbarrier*>(word);
}

inline uint32_t shared_address(const void* pointer) { return emulation::address_of(pointer); }
inline void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  const auto count = static_cast<uint16_t>(arrivals);
  mbarrier(barrier) = {count, static_cast<uint16_t>(count & 0x7FFF), 0, 0};
}
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(uint64_t* barrier) {
  Mbarrier& b = mbarrier(barrier);
  --b.pending;
  b.settle();
}
inline void mbarrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  mbarrier(barrier).bytes += static_cast<int32_t>(bytes);
  mbarrier_arrive(barrier);
}
inline uint32_t mbarrier_try(uint64_t* barrier, uint32_t parity) {
  return mbarrier(barrier).phase != parity;
}
inline void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  emulation::wait_until([=] { return mbarrier(barrier).phase != parity; });
}
inline void named_barrier_sync(uint32_t id, uint32_t threads) {
  emulation::named_barrier(id, threads, true);
}
inline void named_barrier_arrive(uint32_t id, uint32_t threads) {
  emulation::named_barrier(id, threads, false);
}
inline void role_barrier_sync(uint32_t id, uint32_t threads) { named_barrier_sync(id, threads); }
inline void fence_proxy_async() {}
inline void launch_dependents() {}
inline void wait_for_dependencies() {
  if (emulation::earlier_launches) emulation::earlier_launches();
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_BARRIER_CUH_
