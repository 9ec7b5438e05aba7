// Chooses how the sequences of a prefill are spread over a GPU: whole or in segments, in work items
// of 128 or of 64 columns of V. A function of sizes, options and the GPU, never of addresses.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_CUT_H_
#define SLUICE_CUDA_CHUNK_FORWARD_CUT_H_

#include <cstddef>

#include "core/problem.hpp"
#include "cuda/device/segments.hpp"
#include "cuda/environment.h"
#include "cuda/machine.h"

namespace sluice::cuda {

/// The cut of a problem that a one-launch kernel takes. The caller's options come before the
/// environment's, and these before the model of time.
device::CutRequest choose_cut(const core::DeltaRuleProblem& problem, const Machine& machine,
                              const CutOverride& environment) noexcept;

/// Chunks of a segment that depend on nothing but HV.
int32_t default_leaf(int64_t HV) noexcept;

/// Columns of V that one CTA of the delta rule's join carries, of so many states: the fewest whose
/// CTAs make one round.
int join_columns(int64_t states, int64_t V, int64_t multiprocessors) noexcept;

/// Scratch bytes of a cut.
size_t cut_workspace(const core::DeltaRuleProblem& problem, const device::CutRequest& cut) noexcept;
/// Where behind them the records of key-wise gates begin.
size_t records_offset(const core::DeltaRuleProblem& problem,
                      const device::CutRequest& cut) noexcept;

/// What a cut adds to a kernel's name, by cut_suffix().
inline constexpr const char* kCutSuffixes[] = {
    "", ".columns", ".segments", ".columns.segments", ".clusters", ".prefix"};
inline constexpr int kGatedCutSuffixes = 4;  ///< the ones that the gated delta rule has
int cut_suffix(const device::CutRequest& cut, int64_t V) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_CUT_H_
