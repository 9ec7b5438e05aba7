// Defines what nvcc would have known; included before a kernel's own headers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_PRELUDE_HPP_
#define SLUICE_TESTS_EMULATION_PRELUDE_HPP_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "emulator.hpp"

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __align__
#define __align__(n) __attribute__((aligned(n)))
#define threadIdx (::emulation::thread)
#define blockIdx (::emulation::block)
#define blockDim (::emulation::block_extent)
#define gridDim (::emulation::grid_extent)

using std::max, std::min;

template <class T>
T __ldg(const T* pointer) {
  return *pointer;
}
/// Bytes of (b, a), each chosen by four bits of the selector.
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    out |= static_cast<uint32_t>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return out;
}
inline int __popc(uint32_t x) { return std::popcount(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __fdividef(float x, float y) { return x / y; }
#define __expf(x) (std::exp(x))  // glibc has a function of that name
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline void __syncthreads() { ::emulation::named_barrier(0, ::emulation::block_extent.x, true); }
inline void __syncwarp(uint32_t = ~0u) { ::emulation::meet_warp(); }
inline uint32_t atomicAdd(uint32_t* at, uint32_t x) { return (*at += x) - x; }
inline uint32_t atomicMax(uint32_t* at, uint32_t x) { return std::exchange(*at, std::max(*at, x)); }

/// The word that `lane` of the warp passes.
template <class T>
T from_lane(T x, uint32_t lane) {
  static_assert(sizeof(T) == 4);
  ::emulation::Exchange& e = ::emulation::exchange();
  e.words[::emulation::thread.x % 32][0] = std::bit_cast<uint32_t>(x);
  ::emulation::meet_warp();
  const T found = std::bit_cast<T>(e.words[lane][0]);
  ::emulation::meet_warp();
  return found;
}
template <class T>
T __shfl_sync(uint32_t, T x, int lane) {
  return from_lane(x, static_cast<uint32_t>(lane) % 32);
}
template <class T>
T __shfl_up_sync(uint32_t, T x, int delta) {
  const auto lane = static_cast<int>(::emulation::thread.x % 32);
  return from_lane(x, static_cast<uint32_t>(lane >= delta ? lane - delta : lane));
}
template <class T>
T __shfl_xor_sync(uint32_t, T x, int mask) {
  return from_lane(x, (::emulation::thread.x % 32) ^ static_cast<uint32_t>(mask));
}

/// A bit for every lane: whether its `x` is true.
inline uint32_t __ballot_sync(uint32_t, bool x) {
  uint32_t bits = x ? 1u << (::emulation::thread.x % 32) : 0u;
  for (int step = 1; step < 32; step *= 2) bits |= __shfl_xor_sync(~0u, bits, step);
  return bits;
}

#endif  // SLUICE_TESTS_EMULATION_PRELUDE_HPP_
