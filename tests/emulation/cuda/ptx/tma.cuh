// Emulates src/cuda/ptx/tma.cuh. A CUtensorMap holds an EmulatedMap here.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_TMA_CUH_
#define SLUICE_CUDA_PTX_TMA_CUH_

#include <cuda.h>

#include <cstring>

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile/token_map.hpp"

namespace sluice::cuda::ptx {

struct EmulatedMap {
  uint8_t* data;
  tile::TokenMap map;
};
static_assert(sizeof(EmulatedMap) <= sizeof(CUtensorMap));

inline EmulatedMap emulated(const CUtensorMap* map) {
  EmulatedMap out;
  std::memcpy(static_cast<void*>(&out), map, sizeof out);
  return out;
}

struct BoxOrigin {
  int32_t c0, c1, c2, c3, c4;
};

/// Calls visit(global address or null, offset in the swizzled tile) for each 16 bytes of a box.
template <class Visit>
void visit_box(const EmulatedMap& m, const BoxOrigin& at, Visit visit) {
  for (uint32_t part = 0; part < m.map.box[2]; ++part) {
    for (uint32_t row = 0; row < m.map.box[1]; ++row) {
      const uint64_t token = static_cast<uint64_t>(at.c1) + row,
                     block = static_cast<uint64_t>(at.c2) + part;
      const bool inside = token < m.map.extents[1] && block < m.map.extents[2] &&
                          static_cast<uint64_t>(at.c3) < m.map.extents[3] &&
                          static_cast<uint64_t>(at.c4) < m.map.extents[4];
      uint8_t* source = m.data + token * m.map.strides[0] + block * m.map.strides[1] +
                        static_cast<uint64_t>(at.c3) * m.map.strides[2] +
                        static_cast<uint64_t>(at.c4) * m.map.strides[3];
      for (uint32_t piece = 0; piece < 8; ++piece) {
        const uint32_t offset = (part * m.map.box[1] + row) * 128 + ((piece ^ (row & 7u)) << 4);
        visit(inside ? source + piece * 16 : nullptr, offset);
      }
    }
  }
}

inline void prefetch_tensor_map(const CUtensorMap*) {}
inline void tma_load(void* destination, const CUtensorMap* map, BoxOrigin at, uint64_t* barrier) {
  const EmulatedMap m = emulated(map);
  auto* out = static_cast<uint8_t*>(destination);
  emulation::copy_later(
      [=] {
        visit_box(m, at, [&](const uint8_t* source, uint32_t offset) {
          if (source != nullptr) std::memcpy(out + offset, source, 16);
          if (source == nullptr) std::memset(out + offset, 0, 16);
        });
        Mbarrier& b = mbarrier(barrier);
        b.bytes -= static_cast<int32_t>(m.map.box[1] * m.map.box[2] * 128);
        b.settle();
      },
      false);
}
inline void bulk_load(void* destination, const void* source, uint32_t bytes, uint64_t* barrier) {
  emulation::copy_later(
      [=] {
        std::memcpy(destination, source, bytes);
        Mbarrier& b = mbarrier(barrier);
        b.bytes -= static_cast<int32_t>(bytes);
        b.settle();
      },
      false);
}
inline void bulk_load_stream(void* destination, const void* source, uint32_t bytes,
                             uint64_t* barrier, uint64_t) {
  bulk_load(destination, source, bytes, barrier);
}
inline void tma_store(const CUtensorMap* map, const void* source, BoxOrigin at) {
  const EmulatedMap m = emulated(map);
  const auto* in = static_cast<const uint8_t*>(source);
  emulation::copy_later(
      [=] {
        visit_box(m, at, [&](uint8_t* destination, uint32_t offset) {
          if (destination != nullptr) std::memcpy(destination, in + offset, 16);
        });
      },
      true);
}
inline void bulk_store(void* destination, const void* source, uint32_t bytes) {
  emulation::copy_later([=] { std::memcpy(destination, source, bytes); }, true);
}
inline void prefetch_l2(const void*, uint32_t) {}
inline void tma_prefetch(const CUtensorMap*, BoxOrigin) {}
inline void bulk_commit() {}
inline void bulk_wait_read() { emulation::wait_for_stores(); }
template <int kPending>
void bulk_wait() {
  emulation::wait_for_stores();
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_TMA_CUH_
