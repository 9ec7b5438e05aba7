// Defines SLUICE_UNROLL, which unrolls a short loop of constant length wholly. WHY: tiles are
// arrays of vectors, which stay in registers only where every index is a constant.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_UNROLL_HPP_
#define SLUICE_CPU_KERNELS_UNROLL_HPP_

#if defined(__clang__)
#define SLUICE_UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define SLUICE_UNROLL _Pragma("GCC unroll 16")
#else
#define SLUICE_UNROLL
#endif

#endif  // SLUICE_CPU_KERNELS_UNROLL_HPP_
