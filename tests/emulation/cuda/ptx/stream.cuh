// Emulates src/cuda/ptx/stream.cuh; an address that is not aligned ends the program.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_STREAM_CUH_
#define SLUICE_CUDA_PTX_STREAM_CUH_

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace sluice::cuda::ptx {

template <size_t kBytes>
const void* aligned(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % kBytes != 0) std::abort();
  return address;
}

inline uint64_t evict_first() { return 0; }
inline uint64_t evict_last() { return 0; }
inline void load_stream_16(uint32_t (&r)[4], const void* address, uint64_t) {
  std::memcpy(r, aligned<16>(address), 16);
}
template <int kWords>
void load_stream_8(uint32_t (&r)[kWords], const void* address, uint64_t) {
  std::memcpy(r, aligned<8>(address), 8);
}
inline void store_stream_16(void* address, const uint32_t (&r)[4], uint64_t) {
  std::memcpy(const_cast<void*>(aligned<16>(address)), r, 16);
}
inline void store_stream_8(void* address, const uint32_t (&r)[2], uint64_t) {
  std::memcpy(const_cast<void*>(aligned<8>(address)), r, 8);
}

/// Reads a byte, which a memory checker sees.
inline void prefetch_sector(const void* address) {
  static_cast<void>(*static_cast<const volatile uint8_t*>(address));
}
inline int64_t peek_64(const void* address) {
  int64_t x;
  std::memcpy(&x, aligned<8>(address), 8);
  return x;
}
inline int32_t peek_32(const void* address) {
  int32_t x;
  std::memcpy(&x, aligned<4>(address), 4);
  return x;
}

struct EitherBits {
  uint32_t wide, narrow;
};

/// The register that does not count holds no zero: a reader of the wrong one is to be seen.
inline EitherBits load_either(bool is_there, const void* address, bool has_32) {
  uint32_t bits = 0;
  if (is_there) std::memcpy(&bits, address, has_32 ? 4 : 2);
  return has_32 ? EitherBits{bits, 0x7fff} : EitherBits{0x7fffffff, bits};
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_STREAM_CUH_
