// Emulates src/cuda/ptx/async_copy.cuh: a copy is done at once or, as often, when it is waited for.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_ASYNC_COPY_CUH_
#define SLUICE_CUDA_PTX_ASYNC_COPY_CUH_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

#include "emulator.hpp"

namespace sluice::cuda::ptx {

struct LateCopy {
  uint32_t to;
  const void* from;
};
/// Of one thread: closed groups, and an open one at the end.
struct LateCopies {
  std::deque<std::vector<LateCopy>> groups{1};
};
/// Of the CTA that runs; CTAs run one after the other.
inline LateCopies& late_copies() {
  static LateCopies all[1024];
  return all[emulation::thread.x];
}

inline void do_copy(const LateCopy& copy) {
  std::memcpy(emulation::shared_at(copy.to), copy.from, 16);
}

/// An address that is not aligned ends the program.
inline void copy_async_16(uint32_t to, const void* from, bool wanted) {
  static uint32_t count = 0;
  static const uint8_t zeros[16] = {};
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || to % 16 != 0) std::abort();
  const LateCopy copy{to, wanted ? from : zeros};
  count = count * 1664525u + 1013904223u;
  if (count >> 31 != 0) {
    do_copy(copy);
  } else {
    late_copies().groups.back().push_back(copy);
  }
}
inline void close_copies() { late_copies().groups.emplace_back(); }
template <int kPending>
inline void wait_for_copies() {
  auto& groups = late_copies().groups;
  while (groups.size() > kPending + 1) {
    for (const LateCopy& copy : groups.front()) do_copy(copy);
    groups.pop_front();
  }
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_ASYNC_COPY_CUH_
