// Emulates src/cuda/ptx/async_copy.cuh: a copy is done at once or, as often, when it is waited for.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_ASYNC_COPY_CUH_
#define SLUICE_CUDA_PTX_ASYNC_COPY_CUH_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <utility>
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

/// Those of copy_async(), of CTAs that run together.
using OwnCopies = std::vector<std::function<void()>>;
inline OwnCopies& own_copies() {
  static std::map<std::pair<const void*, unsigned>, OwnCopies> all;
  return all[{emulation::own_shared(), emulation::thread.x}];
}
template <int kBytes>
void copy_async(void* to, const void* from, bool wanted) {
  if (reinterpret_cast<uintptr_t>(from) % kBytes != 0) std::abort();
  if (reinterpret_cast<uintptr_t>(to) % kBytes != 0) std::abort();
  own_copies().push_back([=] {
    if (wanted) {
      std::memcpy(to, from, kBytes);
    } else {
      std::memset(to, 0, kBytes);
    }
  });
}
inline void wait_for_all_copies() {
  for (const auto& copy : own_copies()) copy();
  own_copies().clear();
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_ASYNC_COPY_CUH_
