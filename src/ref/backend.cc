// Makes the two tables by which the core knows the reference.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include "ref/causal_conv1d.hpp"
#include "ref/chunk_backward.hpp"
#include "ref/chunk_form.hpp"
#include "ref/chunk_stage.hpp"
#include "ref/delta_rule.hpp"
#include "ref/gated_rms_norm.hpp"
#include "ref/layer.hpp"
#include "ref/recurrent_form.hpp"

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

template <class Form>
Status run_delta_rule(const core::DeltaRuleProblem& problem, sluice_workspace workspace,
                      void* /*stream*/) noexcept {
  delta_rule<Form>(problem, Arena(workspace.data));
  return ok_status();
}

Status run_steps(const core::DeltaRuleProblem& problem, sluice_workspace workspace,
                 void* /*stream*/) noexcept {
  const Arena arena(workspace.data);
  core::present(problem.ring.k) ? ring_steps(problem, arena)
                                : delta_rule<RecurrentForm>(problem, arena);
  return ok_status();
}

Status run_conv(const core::CausalConvProblem& problem, sluice_workspace /*workspace*/,
                void* /*stream*/) noexcept {
  causal_conv1d(problem);
  return ok_status();
}

Status run_norm(const core::GatedNormProblem& problem, sluice_workspace /*workspace*/,
                void* /*stream*/) noexcept {
  gated_rms_norm(problem);
  return ok_status();
}

Status run_layer(const core::LayerProblem& problem, sluice_workspace workspace,
                 void* /*stream*/) noexcept {
  layer(problem, Arena(workspace.data));
  return ok_status();
}

Status run_stage(const core::ChunkStageProblem& problem, sluice_workspace workspace,
                 void* /*stream*/) noexcept {
  chunk_stage(problem, Arena(workspace.data));
  return ok_status();
}

Status run_backward(const core::ChunkBackwardProblem& problem, sluice_workspace workspace,
                    void* /*stream*/) noexcept {
  chunk_backward(problem, Arena(workspace.data));
  return ok_status();
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
constexpr const char* kConv = "reference.causal_conv1d";
constexpr const char* kNorm = "reference.gated_rms_norm";
constexpr const char* kLayerPrefill = "reference.layer_prefill";
constexpr const char* kLayerDecode = "reference.layer_decode";

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
      core::operator_by_sizes<select<Delta, kForward>, delta_rule_workspace<Form>,
                              run_delta_rule<Form>>();
  backend.recurrent_step =
      core::operator_by_sizes<select<Delta, kStep>, delta_rule_workspace<RecurrentForm>,
                              run_steps>();
  backend.causal_conv1d =
      core::operator_by_sizes<select<core::CausalConvProblem, kConv>,
                              no_workspace<core::CausalConvProblem>, run_conv>();
  backend.gated_rms_norm =
      core::operator_by_sizes<select<core::GatedNormProblem, kNorm>,
                              no_workspace<core::GatedNormProblem>, run_norm>();
  backend.layer_prefill =
      core::operator_by_sizes<select<Layer, kLayerPrefill>, layer_workspace, run_layer>();
  backend.layer_decode =
      core::operator_by_sizes<select<Layer, kLayerDecode>, layer_workspace, run_layer>();
  backend.chunk_stage = core::operator_by_sizes<select_stage, chunk_stage_workspace, run_stage>();
  backend.chunk_backward = core::operator_by_sizes<select<core::ChunkBackwardProblem, kBackward>,
                                                   chunk_backward_workspace, run_backward>();
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
