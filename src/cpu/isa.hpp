// Tells which instruction set the CPU kernels run on, and makes the kernels' names of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_ISA_HPP_
#define SLUICE_CPU_ISA_HPP_

#include <cstddef>

#include "core/backend.hpp"

namespace sluice::cpu {

/// Chooses once: the best instruction set that this library was built for and this machine has, or
/// the one named by SLUICE_CPU_ISA ("avx512-bf16", "avx512", "avx2", "sse4", "scalar", ..) where
/// the machine has it; otherwise isa_request() fails. Called before any kernel runs.
void choose_isa() noexcept;

/// Whether SLUICE_CPU_ISA is unset, empty or names what this machine can run; the message lists
/// that.
Status isa_request() noexcept;

/// Name of the instruction set in use, e.g. "avx512".
const char* isa_name() noexcept;

/// Whether it has dot products of bfloat16 (AVX512-BF16).
bool isa_has_bfloat16_dots() noexcept;

/// "cpu.<operator>.<isa>", static storage.
core::KernelName kernel_name(sluice_op op) noexcept;
/// "cpu.<stage>.<isa>", static storage.
core::KernelName stage_kernel_name(sluice_stage stage) noexcept;

/// Appends the names of the instruction sets that this machine could run, best first, with a space
/// before each. Returns the length; writes at most size bytes, always terminated where size > 0.
size_t list_isas(char* out, size_t size) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_ISA_HPP_
