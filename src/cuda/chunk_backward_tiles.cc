// chunk_backward by tensor cores: choice, workspace, stages and kernels in their order.
// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>

#include "core/host_access.hpp"
#include "cuda/chunk_backward_parts.h"
#include "cuda/kernels/backward/config.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using backward::BackwardParams, backward::Kernel, device::StageParams;
using core::ChunkBackwardProblem, core::ChunkStageProblem, core::DeltaRuleProblem;
using core::present, core::Tensor;
using device::Number, device::TokenRows;

/// Sizes and dtypes that tensor cores take, whatever the addresses.
bool suits(const ChunkBackwardProblem& b) noexcept {
  const DeltaRuleProblem& p = b.forward;
  if (p.K != backward::kTileSize || p.V != backward::kTileSize || p.rows.T == 0) return false;
  for (const Tensor* t : {&p.q, &p.k, &p.v, &b.d_o}) {
    if (t->dtype.bits != 16 || t->dtype.code != p.q.dtype.code) return false;
  }
  return p.state.layout == SLUICE_STATE_KV;
}

/// Rows of the workspace that only the stages know.
struct StageRows {
  TokenRows sums, A, u;
};

StageRows lay_out(const DeltaRuleProblem& p, Pieces& pieces, BackwardParams* params) noexcept {
  const Number io = number_type(p.q.dtype);
  StageParams& s = params->stage;
  StageRows places{};
  if (p.qk_norm == SLUICE_QK_NORM_L2) {
    s.q = params->q_normal = pieces.rows(p.H, p.K, io);
    s.k = params->k_normal = pieces.rows(p.H, p.K, io);
  }
  if (present(p.gate)) {
    params->g = pieces.rows(p.HV, 1);
    params->dg = pieces.rows(p.HV, 1);
    s.g_cumsum = places.sums = pieces.rows(p.HV, 1);
  }
  s.h = pieces.states(s.slots, io);
  params->dh = pieces.states(s.slots, io);
  params->dN = pieces.rows(p.HV, p.V, io);
  // w and u, once used, are the places of dq's and dk's parts.
  params->dq_parts = pieces.rows(p.HV, p.K, io);
  params->dk_parts = pieces.rows(p.HV, p.K, io);
  if (!params->delta_rule) return places;
  if (present(p.beta) || p.beta_factor != 1.0) s.beta = params->beta = pieces.rows(p.HV, 1);
  places.A = pieces.rows(p.HV, backward::kTokens);
  s.A_inverse = pieces.rows(p.HV, backward::kTokens, io);
  s.w = params->dq_parts, places.u = params->dk_parts;
  s.v_new = pieces.rows(p.HV, p.V, io);
  return places;
}

/// Stages of the forward pass of a call, and the one that is run backwards.
class Forward {
 public:
  Forward(const DeltaRuleProblem& p, const BackwardParams& params, const StageRows& places) noexcept
      : p_(p), params_(params), places_(places) {}

  void launch(Launches* launches) const noexcept {
    if (present(p_.gate)) launches->stage(sums());
    if (params_.delta_rule) {
      launches->stage(products());
      launches->stage(inverse());
      launches->stage(values());
    }
    launches->stage(states());
  }

  /// The chain of gradients by Hopper's chunk_h, or false where tensor maps do not take it.
  bool launch_back(const ChunkBackwardProblem& b, Launches* launches) const noexcept {
    if (!params_.delta_rule) return false;
    ChunkStageProblem s = states();
    s.values = s.v_new = rows(params_.dN, p_.V);
    s.h = chunk_states(params_.dh);
    s.state.initial = b.d_final, s.state.final = b.dinitial;
    ChunkStageProblem others = s;  // by the same rules, whose values they are
    others.k = queries(), others.values = others.v_new = b.d_o;
    if (!takes(s) || !takes(others)) return false;
    chunk_h::Tiles tiles = lower_state_tiles(s);
    tiles.q = token_tensor(others.k), tiles.d_o = token_tensor(b.d_o);
    launches->chain(lower_stage(s), tiles, static_cast<int32_t>(states_per_batch(s)));
    return true;
  }

 private:
  static bool takes(const ChunkStageProblem& s) noexcept {
    StageChoice choice;
    return choose_hopper(s, {kHopperCapability, 0}, {}, &choice) && choice.way == StageWay::kStates;
  }
  ChunkStageProblem stage(sluice_stage name) const noexcept {
    ChunkStageProblem s;
    s.stage = name;
    s.rows = p_.rows;
    s.H = p_.H, s.HV = p_.HV, s.K = p_.K, s.V = p_.V, s.r = p_.r, s.C = backward::kTokens;
    s.scale = p_.scale;
    s.head_map = p_.head_map;
    s.g_cumsum = numbers(places_.sums);
    return s;
  }
  ChunkStageProblem sums() const noexcept {
    ChunkStageProblem s = stage(SLUICE_STAGE_CHUNK_CUMSUM);
    s.gate = numbers(params_.g);
    return s;
  }
  ChunkStageProblem products() const noexcept {
    ChunkStageProblem s = stage(SLUICE_STAGE_SCALED_DOT_KKT);
    s.k = keys(), s.beta = numbers(params_.beta), s.A = rows(places_.A, backward::kTokens);
    return s;
  }
  ChunkStageProblem inverse() const noexcept {
    ChunkStageProblem s = stage(SLUICE_STAGE_SOLVE_TRIL);
    s.g_cumsum = {};
    s.A = rows(places_.A, backward::kTokens);
    s.A_inverse = rows(params_.stage.A_inverse, backward::kTokens);
    return s;
  }
  ChunkStageProblem values() const noexcept {
    ChunkStageProblem s = stage(SLUICE_STAGE_WY_FAST);
    s.k = keys(), s.values = p_.v, s.beta = numbers(params_.beta);
    s.A_inverse = rows(params_.stage.A_inverse, backward::kTokens);
    s.w = rows(params_.stage.w, p_.K), s.u = rows(places_.u, p_.V);
    return s;
  }
  ChunkStageProblem states() const noexcept {
    ChunkStageProblem s = stage(SLUICE_STAGE_CHUNK_H);
    s.k = keys(), s.values = p_.v, s.h = chunk_states(params_.stage.h);
    s.state.layout = SLUICE_STATE_KV;
    s.state.initial = p_.state.initial;
    if (!params_.delta_rule) return s;
    s.values = rows(places_.u, p_.V), s.w = rows(params_.stage.w, p_.K);
    s.v_new = rows(params_.stage.v_new, p_.V);
    return s;
  }

  /// [B,T,HV,columns] of the workspace.
  Tensor rows(const TokenRows& view, int64_t columns) const noexcept {
    if (view.data == nullptr) return {};
    Tensor t{};
    t.data = view.data;
    t.device = p_.q.device;
    t.dtype = view.number == Number::kFloat32 ? core::kFloat32 : p_.q.dtype;
    t.rank = 4;
    t.shape[0] = p_.rows.B, t.shape[1] = p_.rows.T, t.shape[2] = p_.HV, t.shape[3] = columns;
    t.stride[0] = view.batch_stride, t.stride[1] = view.token_stride;
    t.stride[2] = view.head_stride, t.stride[3] = 1;
    return t;
  }
  /// [B,T,HV].
  Tensor numbers(const TokenRows& view) const noexcept {
    Tensor t = rows(view, 1);
    if (present(t)) t.rank = 3;
    return t;
  }
  Tensor keys() const noexcept { return normal(p_.k, params_.k_normal); }
  Tensor queries() const noexcept { return normal(p_.q, params_.q_normal); }
  /// As given, or by its norm.
  Tensor normal(const Tensor& given, const TokenRows& by_norm) const noexcept {
    if (by_norm.data == nullptr) return given;
    Tensor t = rows(by_norm, p_.K);
    t.shape[2] = p_.H;
    return t;
  }
  /// [B,chunks,HV,K,V].
  Tensor chunk_states(const device::ChunkStates& h) const noexcept {
    Tensor t{};
    t.data = h.data;
    t.device = p_.q.device;
    t.dtype = p_.q.dtype;
    t.rank = 5;
    t.shape[0] = p_.rows.B, t.shape[1] = params_.stage.slots, t.shape[2] = p_.HV;
    t.shape[3] = p_.K, t.shape[4] = p_.V;
    t.stride[0] = h.batch_stride, t.stride[1] = h.chunk_stride, t.stride[2] = h.head_stride;
    t.stride[3] = p_.V, t.stride[4] = 1;
    return t;
  }

  const DeltaRuleProblem& p_;
  const BackwardParams& params_;
  const StageRows& places_;
};

}  // namespace

bool backward_by_tiles(const ChunkBackwardProblem& b, int capability,
                       const Environment& wish) noexcept {
  if (capability != kHopperCapability || wish.kernel == KernelOverride::kGeneric || !suits(b)) {
    return false;
  }
  // WHY whether there is a norm or not: then q and k are copies of these.
  for (const Tensor* t : {&b.forward.q, &b.forward.k, &b.forward.v, &b.d_o}) {
    if (!aligned(*t)) return false;
  }
  return true;
}

core::KernelName backward_tiles_name(const ChunkBackwardProblem& b) noexcept {
  return number_type(b.forward.q.dtype) == Number::kBfloat16
             ? "cuda.chunk_backward.sm_90.bf16.k128"
             : "cuda.chunk_backward.sm_90.fp16.k128";
}

size_t backward_tiles_workspace(const ChunkBackwardProblem& b) noexcept {
  if (!suits(b)) return 0;
  Pieces pieces(b.forward, nullptr);
  BackwardParams params = lower_backward(b);
  lay_out(b.forward, pieces, &params);
  return pieces.bytes();
}

void launch_backward_tiles(const ChunkBackwardProblem& b, const Target& target, Pieces& pieces,
                           BackwardParams* params, Launches* launches) noexcept {
  const StageRows places = lay_out(b.forward, pieces, params);
  params->stage.columns = stages::state_columns(params->stage, target.multiprocessors);
  launches->own(Kernel::kPrepare, *params);
  const Forward forward(b.forward, *params, places);
  forward.launch(launches);
  launches->own(Kernel::kLocalTiles, *params);
  if (!forward.launch_back(b, launches)) launches->own(Kernel::kChainTiles, *params);
  launches->own(Kernel::kGradientTiles, *params);
}

}  // namespace sluice::cuda
