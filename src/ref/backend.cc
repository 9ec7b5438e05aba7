// Makes the two tables by which the core knows the reference.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include <type_traits>

#include "core/host_summary.hpp"
#include "ref/forms.hpp"
#include "ref/operators.hpp"

namespace sluice::ref {
namespace {

/// The reference computes everything that is valid.
template <class Problem, const char* const& kName>
Status select(const Problem& /*problem*/, core::KernelName* name) noexcept {
  *name = kName;
  return ok_status();
}

template <class Problem>
size_t no_workspace(const Problem& /*problem*/) noexcept {
  return 0;
}

/// An operator's function as the core calls it.
template <auto function, class Problem>
Status run(const Problem& problem, sluice_workspace workspace, void* /*stream*/) noexcept {
  if constexpr (std::is_invocable_v<decltype(function), const Problem&, Arena>) {
    function(problem, Arena(workspace.data));
  } else {
    function(problem);
  }
  return ok_status();
}

void steps(const core::DeltaRuleProblem& problem, Arena arena) noexcept {
  core::present(problem.ring.k) ? replay_steps(problem, arena)
                                : delta_rule<RecurrentForm>(problem, arena);
}

template <class Problem, const char* const& kName, auto function,
          auto workspace = no_workspace<Problem>>
constexpr core::Operator<Problem> operator_of() noexcept {
  return core::operator_by_sizes<select<Problem, kName>, workspace, run<function, Problem>>();
}

/// The stages have one table for both backends: they are pieces of the chunk form.
Status select_stage(const core::ChunkStageProblem& problem, core::KernelName* name) noexcept {
  constexpr const char* kNames[] = {"reference.chunk_cumsum", "reference.scaled_dot_kkt",
                                    "reference.solve_tril",   "reference.wy_fast",
                                    "reference.chunk_h",      "reference.chunk_o",
                                    "reference.cumsum_kkt",   "reference.solve_wy"};
  *name = kNames[problem.stage];
  return ok_status();
}

constexpr const char* kRecurrentForward = "reference.chunk_forward";
constexpr const char* kChunkedForward = "reference-chunked.chunk_forward";
constexpr const char* kStep = "reference.recurrent_step";
constexpr const char* kBackward = "reference.chunk_backward";
constexpr const char* kSummary = "reference.chunk_summary";
constexpr const char* kFold = "reference.state_fold";
constexpr const char* kConv = "reference.causal_conv1d";
constexpr const char* kNorm = "reference.gated_rms_norm";
constexpr const char* kConvBackward = "reference.causal_conv1d_backward";
constexpr const char* kNormBackward = "reference.gated_rms_norm_backward";
constexpr const char* kLayerPrefill = "reference.layer_prefill";
constexpr const char* kLayerDecode = "reference.layer_decode";
constexpr const char* kLayerBackward = "reference.layer_backward";

bool always() noexcept { return true; }

Status nothing_to_warm_up(int32_t /*device_index*/) noexcept { return ok_status(); }

/// chunk_forward differs between the tables, everything else is one.
template <class Form, const char* const& kForward>
core::Backend table(sluice_implementation id, const char* name, const char* description) noexcept {
  using Delta = core::DeltaRuleProblem;
  using Layer = core::LayerProblem;
  core::Backend backend{};
  backend.id = id;
  backend.name = name;
  backend.description = description;
  backend.requirement = "any CPU";
  backend.device_type = SLUICE_DEVICE_CPU;
  backend.available = always;
  backend.warm_up = nothing_to_warm_up;
  backend.chunk_forward =
      operator_of<Delta, kForward, delta_rule<Form>, delta_rule_workspace<Form>>();
  backend.recurrent_step = operator_of<Delta, kStep, steps, delta_rule_workspace<RecurrentForm>>();
  backend.causal_conv1d = operator_of<core::CausalConvProblem, kConv, causal_conv1d>();
  backend.gated_rms_norm = operator_of<core::GatedNormProblem, kNorm, gated_rms_norm>();
  backend.layer_prefill = operator_of<Layer, kLayerPrefill, layer, layer_workspace>();
  backend.layer_decode = operator_of<Layer, kLayerDecode, layer, layer_workspace>();
  backend.chunk_stage = core::operator_by_sizes<select_stage, chunk_stage_workspace,
                                                run<chunk_stage, core::ChunkStageProblem>>();
  backend.chunk_backward = operator_of<core::ChunkBackwardProblem, kBackward, chunk_backward,
                                       chunk_backward_workspace>();
  backend.chunk_summary = core::host_summary<recurrent_backend, kSummary>();
  backend.state_fold =
      operator_of<core::StateFoldProblem, kFold, state_fold, state_fold_workspace>();
  backend.causal_conv1d_backward =
      operator_of<core::CausalConvBackwardProblem, kConvBackward, causal_conv1d_backward>();
  backend.gated_rms_norm_backward =
      operator_of<core::GatedNormBackwardProblem, kNormBackward, gated_rms_norm_backward,
                  gated_rms_norm_backward_workspace>();
  backend.layer_backward = operator_of<core::LayerBackwardProblem, kLayerBackward, layer_backward,
                                       layer_backward_workspace>();
  return backend;
}

}  // namespace

const core::Backend& recurrent_backend() noexcept {
  static const core::Backend backend = table<RecurrentForm, kRecurrentForward>(
      SLUICE_IMPL_REFERENCE, "reference", "executable specification in float64, token by token");
  return backend;
}

const core::Backend& chunked_backend() noexcept {
  static const core::Backend backend =
      table<ChunkForm, kChunkedForward>(SLUICE_IMPL_REFERENCE_CHUNKED, "reference-chunked",
                                        "executable specification in float64, chunk form");
  return backend;
}

}  // namespace sluice::ref
