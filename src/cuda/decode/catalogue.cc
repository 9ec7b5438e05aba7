// Orders the kernels of recurrent_step and layer_decode.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/catalogues.h"
#include "cuda/chunk_forward/rows.h"
#include "cuda/decode/rows.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::LayerProblem;

/// The generic kernel, which knows no replay ring.
Status check_generic_step(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  return core::present(p.ring.k) ? left_to_others() : accepts_generic(p, machine);
}

Kernel<DeltaRuleProblem> generic_step_kernel() noexcept {
  Kernel<DeltaRuleProblem> row = generic_kernel("recurrent_step.generic");
  row.accepts = check_generic_step;
  return row;
}

/// The one row of layer_prefill's catalogue.
const Kernel<LayerProblem>& prefill_kernel() noexcept { return layer_prefill_catalogue()[0]; }

Status check_layer_in_parts(const LayerProblem& p, const Machine& machine) noexcept {
  return core::present(p.delta.ring.k) ? left_to_others() : prefill_kernel().accepts(p, machine);
}

/// What layer_decode falls back on: the kernels of layer_prefill and recurrent_step, which have them
/// loaded.
Kernel<LayerProblem> layer_in_parts_kernel() noexcept {
  Kernel<LayerProblem> row = prefill_kernel();
  row.name = "layer_decode.generic";
  row.takes = "any layer without a replay ring, by its parts' kernels";
  row.tier = Tier::kGeneric;
  row.accepts = check_layer_in_parts;
  return row;
}

}  // namespace

Catalogue<DeltaRuleProblem> recurrent_step_catalogue() noexcept {
  static const Kernel<DeltaRuleProblem> rows[] = {decode::kSingleStep, decode::kAnyStep,
                                                  decode::kReplayModel, decode::kReplayStep,
                                                  generic_step_kernel()};
  return rows;
}

Catalogue<LayerProblem> layer_decode_catalogue() noexcept {
  static const Kernel<LayerProblem> rows[] = {decode::kSingleLayer, decode::kAnyLayer,
                                              decode::kLayerByElement, decode::kReplayLayer,
                                              layer_in_parts_kernel()};
  return rows;
}

}  // namespace sluice::cuda
