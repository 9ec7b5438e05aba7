// Builds the parameters of the stages that chunk_backward runs, and launches their kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_backward/forward_pass.h"

#include "cuda/chunk_stage/lower.h"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/chunk_h/launch.h"
#include "cuda/kernels/stages/launch.h"

namespace sluice::cuda {
namespace {

using backward::BackwardParams, device::Number, device::StageParams, device::TokenRows;
using core::DeltaRuleProblem;
using StageKernel = stages::Kernel;

/// A stage of a call by tensor cores without its views, but for the sums of gates that most read.
StageParams bare_stage(const DeltaRuleProblem& p, const BackwardParams& params,
                       const StageRows& rows) noexcept {
  StageParams s = lower_stage_sizes(p, backward::kTokens);
  s.columns = params.stage.columns;
  s.g_cumsum = rows.sums;
  s.has_gates = params.stage.has_gates;
  return s;
}

/// chunk_h; of simple GLA without w and v_new.
StageParams states_stage(const DeltaRuleProblem& p, const BackwardParams& params,
                         const StageRows& rows) noexcept {
  StageParams s = bare_stage(p, params, rows);
  s.k = params.stage.k;
  s.h = params.stage.h;
  s.state.initial = params.stage.state.initial;
  s.values = params.delta_rule ? rows.u : params.stage.values;
  s.w = params.stage.w, s.v_new = params.stage.v_new;
  return s;
}

/// The chain of gradients as chunk_h.
StageParams chain_stage(const DeltaRuleProblem& p, const BackwardParams& params) noexcept {
  StageParams s = states_stage(p, params, {params.stage.g_cumsum, {}, {}});
  s.values = s.v_new = params.dN;
  s.h = params.dh;
  s.state.initial = params.d_final, s.state.final = params.dinitial;
  return s;
}

tile::TokenTensor mapped_rows(const DeltaRuleProblem& p, const TokenRows& rows, int64_t heads,
                              int64_t columns) noexcept {
  return {rows.data,
          p.rows.B,
          p.rows.T,
          heads,
          columns,
          rows.batch_stride,
          rows.token_stride,
          rows.head_stride,
          rows.number == Number::kBfloat16};
}

int64_t states_per_batch(const DeltaRuleProblem& p, const StageParams& s) noexcept {
  return p.rows.B == 1 ? 1 : s.slots;
}

/// The tensors of chunk_h for Hopper's kernel.
chunk_h::Tiles mapped_states(const DeltaRuleProblem& p, const StageParams& s) noexcept {
  const device::ChunkStates& h = s.h;
  const int64_t states = (p.rows.B - 1) * states_per_batch(p, s) + s.slots;
  const tile::TokenTensor mapped_h{h.data, states,        p.K,
                                   p.HV,   p.V,           h.chunk_stride,
                                   p.V,    h.head_stride, h.number == Number::kBfloat16};
  return {mapped_rows(p, s.k, p.H, p.K), mapped_rows(p, s.w, p.HV, p.K),
          mapped_rows(p, s.values, p.HV, p.V), mapped_rows(p, s.v_new, p.HV, p.V), mapped_h};
}

}  // namespace

StateKernels choose_state_kernels(const DeltaRuleProblem& p, const BackwardParams& params,
                                  const StageRows& rows) noexcept {
  if (!params.delta_rule) return {false, false};
  const StageParams s = states_stage(p, params, rows);
  const chunk_h::Tiles t = mapped_states(p, s);
  const bool states = are_countable(p.rows.T, states_per_batch(p, s) * p.rows.B + s.slots) &&
                      is_mappable(t.k) && is_mappable(t.w) && is_mappable(t.u) &&
                      is_mappable(t.v_new) && is_mappable(t.h);
  const bool chain = states && is_mappable(mapped_rows(p, params.stage.q, p.H, p.K)) &&
                     is_mappable(mapped_rows(p, params.d_o, p.HV, p.V));
  return {states, chain};
}

void launch_forward_tiles(const DeltaRuleProblem& p, const BackwardParams& params,
                          const StageRows& rows, const StateKernels& kernels,
                          Launcher& launcher) noexcept {
  const StageParams bare = bare_stage(p, params, rows);
  if (params.g.data != nullptr) {
    StageParams sums = bare;
    sums.gate = params.g;
    stages::launch(StageKernel::kCumsum, sums, launcher);
  }
  if (params.delta_rule) {
    StageParams products = bare;
    products.k = params.stage.k, products.beta = params.beta, products.A = rows.A;
    stages::launch(StageKernel::kKkt, products, launcher);
    StageParams inverse = bare;
    inverse.g_cumsum = {}, inverse.has_gates = false;
    inverse.A = rows.A, inverse.A_inverse = params.stage.A_inverse;
    stages::launch(StageKernel::kSolve, inverse, launcher);
    StageParams values = bare;
    values.k = params.stage.k, values.values = params.stage.values, values.beta = params.beta;
    values.A_inverse = params.stage.A_inverse;
    values.w = params.stage.w, values.u = rows.u;
    stages::launch(StageKernel::kWy, values, launcher);
  }
  if (!has_row_gradients(params)) return;
  const StageParams states = states_stage(p, params, rows);
  if (!kernels.hopper_states) return stages::launch(StageKernel::kStates, states, launcher);
  chunk_h::launch(states, mapped_states(p, states),
                  static_cast<int32_t>(states_per_batch(p, states)), launcher);
}

void launch_hopper_chain(const DeltaRuleProblem& p, const BackwardParams& params,
                         Launcher& launcher) noexcept {
  const StageParams chain = chain_stage(p, params);
  chunk_h::Tiles tiles = mapped_states(p, chain);
  tiles.q = mapped_rows(p, params.stage.q, p.H, p.K);
  tiles.d_o = mapped_rows(p, params.d_o, p.HV, p.V);
  chunk_h::launch(chain, tiles, static_cast<int32_t>(states_per_batch(p, chain)), launcher);
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
