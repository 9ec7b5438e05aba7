// Builds the parameters of the stages that chunk_backward runs, and launches their kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_backward/forward_pass.h"

#include "cuda/chunk_stage/lower.h"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/stages/launch.h"

namespace sluice::cuda {
namespace {

using backward::BackwardParams, device::Number, device::StageParams;
using core::DeltaRuleProblem;
using StageKernel = stages::Kernel;

int64_t states_per_batch(const DeltaRuleProblem& p, const StageParams& s) noexcept {
  return p.rows.B == 1 ? 1 : s.slots;
}

/// [chunks of all batch entries, K, HV, V].
tile::TokenTensor mapped_states(const DeltaRuleProblem& p, const StageParams& s,
                                const device::ChunkStates& h) noexcept {
  const int64_t states = (p.rows.B - 1) * states_per_batch(p, s) + h.room;
  return {h.data, states,        p.K,
          p.HV,   p.V,           h.chunk_stride,
          p.V,    h.head_stride, h.number == Number::kBfloat16};
}

/// The states that enter the chunks, of simple GLA.
void launch_linear_states(const DeltaRuleProblem& p, const BackwardParams& params,
                          const StageRows& rows, Launcher& launcher) noexcept {
  StageParams s = lower_stage_sizes(p, backward::kTokens);
  s.columns = stages::state_columns(params.stage, launcher.machine().multiprocessors);
  s.g_cumsum = rows.sums, s.has_gates = params.stage.has_gates;
  s.k = params.stage.k, s.h = params.stage.h;
  s.state.initial = params.stage.state.initial;
  s.values = params.stage.values;
  stages::launch(StageKernel::kStates, s, launcher);
}

}  // namespace

backward::TileTensors tile_tensors(const DeltaRuleProblem& p,
                                   const BackwardParams& params) noexcept {
  const StageParams& s = params.stage;
  return {mapped_rows(p, s.q, p.H, p.K),
          mapped_rows(p, s.k, p.H, p.K),
          mapped_rows(p, s.values, p.HV, p.V),
          mapped_rows(p, params.d_o, p.HV, p.V),
          mapped_rows(p, params.delta_rule ? s.v_new : s.values, p.HV, p.V),
          mapped_rows(p, params.dv_tile, p.HV, p.V),
          mapped_rows(p, params.B, p.HV, backward::kTokens),
          mapped_states(p, s, s.h),
          mapped_states(p, s, params.dh),
          static_cast<int32_t>(states_per_batch(p, s))};
}

bool are_mappable(const DeltaRuleProblem& p, const backward::TileTensors& t) noexcept {
  const auto takes = [](const tile::TokenTensor& rows) {
    return rows.token_stride == 0 || is_mappable(rows);  // absent
  };
  return are_countable(p.rows.T, t.states_per_batch * p.rows.B + t.S.batch) && takes(t.q) &&
         takes(t.k) && takes(t.v) && takes(t.d_o) && takes(t.e) && takes(t.dv) && takes(t.B) &&
         takes(t.S) && takes(t.D);
}

void launch_rows(const DeltaRuleProblem& p, const BackwardParams& params, const StageRows& rows,
                 Launcher& launcher) noexcept {
  if (params.g.data != nullptr && !backward::has_aligned_keys(params)) {
    StageParams sums = lower_stage_sizes(p, backward::kTokens);
    sums.has_gates = true, sums.gate = params.g, sums.g_cumsum = rows.sums;
    stages::launch(StageKernel::kCumsum, sums, launcher);
  }
  if (params.delta_rule) backward::launch_solve(params, launcher);
}

void launch_chains(const DeltaRuleProblem& p, const BackwardParams& params,
                   const backward::TileTensors& tensors, const StageRows& rows,
                   Launcher& launcher) noexcept {
  launch_rows(p, params, rows, launcher);
  const bool wants_states = has_row_gradients(params);
  if (wants_states && params.delta_rule) return backward::launch_chains(params, tensors, launcher);
  if (wants_states) launch_linear_states(p, params, rows, launcher);
  backward::launch_chain(params, tensors, backward::ChainPass::kWhole, launcher);
}

void launch_forward_plain(const BackwardParams& params, const StageRows& rows,
                          Launcher& launcher) noexcept {
  StageParams states = params.stage;
  if (params.delta_rule) {
    StageParams products = params.stage;
    products.A = rows.A, products.A_inverse = {}, products.h = {};
    stages::launch(StageKernel::kPlainKkt, products, launcher);
    StageParams solve = params.stage;
    solve.A = rows.A, solve.u = rows.u;
    stages::launch(StageKernel::kPlainSolveWy, solve, launcher);
    states.values = rows.u;
  } else {
    states.w = {}, states.v_new = {};
  }
  stages::launch(StageKernel::kPlainChain, states, launcher);
}

}  // namespace sluice::cuda
