// Turns steps with a replay ring into the parameters of their kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/lower.h"
#include "cuda/lower_views.h"

namespace sluice::cuda::decode {
namespace {

using core::DeltaRuleProblem, core::LayerProblem, core::Tensor;

ReplayArray entries_of(const Tensor& t) noexcept {
  return {t.data, t.stride[0], static_cast<int32_t>(t.stride[1]), number_type(t.dtype)};
}

ReplayParams lower_entries(const DeltaRuleProblem& problem, const DecodeParams& step) noexcept {
  const sluice_replay_ring& ring = problem.ring;
  ReplayParams out{};
  out.step = step;
  out.step.packed = problem.state.initial.dtype.bits == 16;
  out.k = entries_of(ring.k);
  out.delta = entries_of(ring.delta);
  out.decay = entries_of(ring.decay);
  out.position = indices_of(ring.position);
  out.checkpoint = indices_of(ring.checkpoint);
  out.next_checkpoint = indices_of(ring.next_checkpoint);
  out.L = static_cast<int32_t>(ring.k.shape[1]);
  out.always = ring.fold == SLUICE_RING_FOLD_ALWAYS;
  return out;
}

}  // namespace

ReplayParams lower_replay_step(const DeltaRuleProblem& problem, const StepPlan& plan) noexcept {
  return lower_entries(problem, lower_step(problem, plan));
}

ReplayParams lower_replay_layer(const LayerProblem& problem, const StepPlan& plan) noexcept {
  return lower_entries(problem.delta, lower_layer(problem, plan));
}

}  // namespace sluice::cuda::decode
