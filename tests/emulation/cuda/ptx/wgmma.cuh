// Emulates src/cuda/ptx/wgmma.cuh: products of a warpgroup, done late.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_WGMMA_CUH_
#define SLUICE_CUDA_PTX_WGMMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

#include "emulator.hpp"

namespace sluice::cuda::ptx {

inline float to_number(__nv_bfloat16, uint16_t bits) {
  return __bfloat162float(__ushort_as_bfloat16(bits));
}
inline float to_number(__half, uint16_t bits) { return __half2float(__ushort_as_half(bits)); }

/// Element of a 128-byte swizzled tile named by a descriptor: (row, k) K-major, (k, n) MN-major.
template <class Io>
float element(uint64_t descriptor, uint32_t row, uint32_t k, bool mn_major) {
  const auto field = [&](int shift) {
    return static_cast<uint32_t>(descriptor >> shift & 0x3FFFu) << 4;
  };
  const uint32_t base = field(0), leading = field(16), stride = field(32);
  const uint32_t at = mn_major
                          ? base + row / 64 * leading + k / 8 * stride + k % 8 * 128 + row % 64 * 2
                          : base + row / 8 * stride + row % 8 * 128 + k * 2;
  uint16_t bits;
  std::memcpy(&bits, emulation::shared_at(at ^ ((at >> 7 & 7u) << 4)), 2);
  return to_number(Io{}, bits);
}

/// A[row, k] of a [64,16] operand: from the warpgroup's registers, or from shared memory.
template <class Io>
float operand_a(const emulation::ProductPart (&part)[128], uint64_t a, bool mn_major, uint32_t row,
                uint32_t k) {
  const uint32_t thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
  if (part[thread].a == nullptr) return element<Io>(a, row, k, mn_major);
  const uint32_t word = part[thread].a[k / 8 * 2 + row % 16 / 8];
  return to_number(Io{}, static_cast<uint16_t>(k % 2 != 0 ? word >> 16 : word));
}

template <class Io, int kN>
void multiply(float* d, const uint32_t* a, uint64_t a_descriptor, uint64_t b, bool mn_major,
              int accumulate, bool a_turned = false) {
  emulation::multiply_later({d, a}, [=](const emulation::ProductPart(&part)[128]) {
    float left[64][16], right[kN][16];
    for (uint32_t k = 0; k < 16; ++k) {
      for (uint32_t row = 0; row < 64; ++row) {
        left[row][k] = operand_a<Io>(part, a_descriptor, a_turned, row, k);
      }
      for (uint32_t n = 0; n < kN; ++n) right[n][k] = element<Io>(b, n, k, mn_major);
    }
    for (uint32_t row = 0; row < 64; ++row) {
      for (uint32_t n = 0; n < kN; ++n) {
        float sum = 0;
        for (uint32_t k = 0; k < 16; ++k) sum += left[row][k] * right[n][k];
        float& out =
            part[row / 16 * 32 + row % 8 * 4 + n % 8 / 2].d[n / 8 * 4 + row % 16 / 8 * 2 + n % 2];
        out = accumulate != 0 ? out + sum : sum;
      }
    }
  });
}

enum class Major { kK, kMn };
template <int kA, Major kMajorB, class Io, size_t kSize, size_t kASize>
void wgmma_rs(Io, float (&d)[kSize], const uint32_t (&a)[kASize], uint64_t b, int accumulate) {
  multiply<Io, 2 * kSize>(d, a + kA, 0, b, kMajorB == Major::kMn, accumulate);
}
template <Major kMajorA, Major kMajorB, class Io, size_t kSize>
void wgmma_ss(Io, float (&d)[kSize], uint64_t a, uint64_t b, int accumulate) {
  multiply<Io, 2 * kSize>(d, nullptr, a, b, kMajorB == Major::kMn, accumulate,
                          kMajorA == Major::kMn);
}

inline void wgmma_fence() {}
inline void wgmma_commit() { emulation::close_group(); }
template <int kPending>
void wgmma_wait() {
  emulation::wait_for_groups(kPending);
}
template <class T>
void pin(T&) {}
template <int kCount>
void decrease_registers() {}
template <int kCount>
void increase_registers() {}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_WGMMA_CUH_
