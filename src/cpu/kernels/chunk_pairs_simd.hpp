// Defines what the files of chunk_pairs share: their target, and pairs of bfloat16 in 512-bit
// vectors. Include last; end the file with SLUICE_PAIRS_END.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_CHUNK_PAIRS_SIMD_HPP_
#define SLUICE_CPU_KERNELS_CHUNK_PAIRS_SIMD_HPP_

#if defined(__x86_64__) && defined(__GNUC__)
#define SLUICE_HAS_PAIRS 1

#if !defined(__clang__)
// WHY: the intrinsics of GCC 12 start from registers that they leave undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/unroll.hpp"

#define SLUICE_INLINE inline __attribute__((always_inline))

#if defined(__clang__)
#define SLUICE_PAIRS_END _Pragma("clang attribute pop")
#pragma clang attribute push(                                                          \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,bmi2"))), \
    apply_to = function)
#else
#define SLUICE_PAIRS_END _Pragma("GCC pop_options")
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,bmi2")
#endif

namespace sluice::cpu {

constexpr int64_t kPairLanes = 16;

SLUICE_INLINE __m512i load_words(const void* from) { return _mm512_loadu_si512(from); }

SLUICE_INLINE __m512 multiply_pairs(__m512 sum, __m512i left, __m512i right) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right));
}

/// Lane c: (low[c], high[c]) in bfloat16.
SLUICE_INLINE __m512i pair_up(__m512 low, __m512 high) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

}  // namespace sluice::cpu

#else
#define SLUICE_HAS_PAIRS 0
#define SLUICE_PAIRS_END
#endif

#endif  // SLUICE_CPU_KERNELS_CHUNK_PAIRS_SIMD_HPP_
