// Moves rows of float32, bfloat16 and float16 to and from float32, on the instruction set in use.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_LOAD_STORE_HPP_
#define SLUICE_CPU_KERNELS_LOAD_STORE_HPP_

#include <cstdint>

#include "sluice/sluice.h"

namespace sluice::cpu {

/// to[0, count) = the `count` contiguous elements of `dtype` at `from`.
void load_row(const void* from, sluice_dtype dtype, int64_t count, float* to) noexcept;

/// The inverse, rounded once to nearest even.
void store_row(const float* from, int64_t count, sluice_dtype dtype, void* to) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_LOAD_STORE_HPP_
