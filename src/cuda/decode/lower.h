// Turns problems into the parameters of decode's kernels: no checks, no CUDA calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DECODE_LOWER_H_
#define SLUICE_CUDA_DECODE_LOWER_H_

#include "core/problem.hpp"
#include "cuda/decode/plan_grid.h"
#include "cuda/decode/plan_single.h"
#include "cuda/kernels/decode/replay/params.h"
#include "cuda/kernels/decode/single/params.h"

namespace sluice::cuda::decode {

/// The delta rule of a step, and of a layer's.
inline const core::DeltaRuleProblem& delta_of(const core::DeltaRuleProblem& p) noexcept {
  return p;
}
inline const core::DeltaRuleProblem& delta_of(const core::LayerProblem& p) noexcept {
  return p.delta;
}

/// A problem's sizes, as its launch is cut up by them.
Work work_of(const core::DeltaRuleProblem& problem) noexcept;
Work work_of(const core::LayerProblem& problem, bool by_element = false) noexcept;
/// The plan of a step, or of a layer step.
StepPlan plan_work(const core::DeltaRuleProblem& problem, const Work& work,
                   int multiprocessors) noexcept;

DecodeParams lower_any(const core::DeltaRuleProblem& problem, const StepPlan& plan) noexcept;
DecodeParams lower_any(const core::LayerProblem& problem, const StepPlan& plan) noexcept;
/// Whether the kernel keeps states as they are: DecodeParams::packed of a step.
bool is_packed(const core::DeltaRuleProblem& problem) noexcept;

/// With a replay ring: what lower_any() made of it, and the ring.
ReplayParams lower_replay(const core::DeltaRuleProblem& problem, const DecodeParams& step) noexcept;

SingleKeyParams lower_single_step(const core::DeltaRuleProblem& problem,
                                  const SinglePlan& plan) noexcept;
/// Of a layer without key-wise gates the base alone counts.
SingleKeyLayerParams lower_single_layer(const core::LayerProblem& problem,
                                        const SinglePlan& plan) noexcept;

/// How the words of a layer's convolution states lie, where all that two neighbouring channels read
/// and write are whole words: conv_pairs.cuh. Addresses are another question.
enum class PairLayout { kNone, kColumnsInside, kChannelsInside };
PairLayout pair_layout(const core::LayerProblem& problem) noexcept;
bool has_aligned_pairs(const core::LayerProblem& problem) noexcept;
/// Whether the three pools of convolution states have one set of slots and strides.
bool has_like_pools(const core::LayerProblem& problem) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_DECODE_LOWER_H_
