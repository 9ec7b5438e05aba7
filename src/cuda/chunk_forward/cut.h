// Chooses how the sequences of a prefill are spread over a GPU: whole or in segments, in work items of 128 or of
// 64 columns of V; and for linear attention between the two ways to compute all segments of a sequence in one
// launch. A function of sizes, options and the GPU, never of addresses.
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

/// Columns of V that one CTA of the delta rule's join carries, of so many states, or where heads may
/// forget of those that do not: the fewest whose CTAs make one round.
int join_columns(const device::CutRequest& cut, int64_t states, int64_t V) noexcept;

/// Scratch bytes of a cut.
size_t cut_workspace(const core::DeltaRuleProblem& problem, const device::CutRequest& cut) noexcept;
/// Where behind it what a launch prepares begins.
size_t prepared_offset(const core::DeltaRuleProblem& problem,
                       const device::CutRequest& cut) noexcept;

/// Bytes of a prefill's workspace: a cut's, and behind it what a launch prepares, the records of key-wise
/// gates or norms and numbers of tokens.
size_t prefill_workspace(const core::DeltaRuleProblem& problem,
                         const device::CutRequest& cut) noexcept;

/// What a cut adds to a kernel's name, by cut_suffix().
inline constexpr const char* kCutSuffixes[] = {
    "", ".columns", ".segments", ".columns.segments", ".clusters", ".prefix"};
int cut_suffix(const device::CutRequest& cut, int64_t V) noexcept;

/// Whether the kernel of clusters takes a problem, and that of prefixes.
bool takes_clusters(const core::DeltaRuleProblem& problem) noexcept;
bool takes_prefixes(const core::DeltaRuleProblem& problem) noexcept;

/// A cut of one launch, and its time in units of device::cut_time().
struct OneLaunchCut {
  float time = 0;
  device::CutRule rule = device::CutRule::kWhole;  ///< kWhole: there is none
  int32_t parts = 0;                               ///< CTAs of a cluster, or blocks of a segment
};

/// The fastest one, by a model of time.
OneLaunchCut fastest_in_one_launch(const core::DeltaRuleProblem& problem,
                                   const Machine& machine) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_CUT_H_
