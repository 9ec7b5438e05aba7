// Lowers a validated chunk_backward to the parameters of its kernels, with places in the workspace.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_backward/lower.h"

#include <utility>

#include "cuda/chunk_backward/cut.h"
#include "cuda/chunk_stage/lower.h"
#include "cuda/kernels/backward/config.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using backward::BackwardParams, device::StageParams;
using core::ChunkBackwardProblem, core::DeltaRuleProblem, core::present, core::Tensor;
using device::Number, device::TokenRows;

backward::HeadRows head_rows(const Tensor& t) noexcept {
  if (!present(t)) return {};
  return {{t.data, t.stride[0], t.stride[1], t.stride[3], number_type(t.dtype)},
          t.stride[2],
          t.shape[3]};
}

backward::HeadOutput head_output(const Tensor& t) noexcept {
  return present(t) ? backward::HeadOutput{t.data, t.stride[0], number_type(t.dtype)}
                    : backward::HeadOutput{};
}

int64_t bytes_of(Number number) noexcept { return number == Number::kFloat32 ? 4 : 2; }

/// Where the first kernel puts normalised q and k, of which the stages read.
void place_normalised(const DeltaRuleProblem& p, BackwardWorkspace& workspace, Number number,
                      BackwardParams* params) noexcept {
  if (p.qk_norm != SLUICE_QK_NORM_L2) return;
  params->stage.q = params->q_normal = workspace.rows(p.H, p.K, number);
  params->stage.k = params->k_normal = workspace.rows(p.H, p.K, number);
}

/// ... and clamped logarithms of gates.
void place_gates(const DeltaRuleProblem& p, BackwardWorkspace& workspace,
                 BackwardParams* params) noexcept {
  if (!present(p.gate)) return;
  params->g = workspace.numbers(p.HV);
}

void place_beta(const DeltaRuleProblem& p, BackwardWorkspace& workspace,
                BackwardParams* params) noexcept {
  if (!present(p.beta) && p.beta_factor == 1.0) return;
  params->stage.beta = params->beta = workspace.numbers(p.HV);
}

/// Finds the rows of a call by tensor cores their places.
class TilePlaces {
 public:
  TilePlaces(const DeltaRuleProblem& p, WhichAddresses which, bool in_windows,
             BackwardWorkspace& workspace) noexcept
      : p_(p),
        which_(which),
        in_windows_(in_windows),
        workspace_(workspace),
        io_(number_type(p.q.dtype)) {}

  /// Whether the copy engine can read and write [B,T,heads,K] of q's dtype there; K is V.
  bool holds_tiles(const TokenRows& rows, int64_t heads) const noexcept {
    const auto is_packed = [](int64_t extent, int64_t stride) {
      return extent <= 1 || stride % 8 == 0;
    };
    return which_ == WhichAddresses::kThese && rows.data != nullptr && rows.number == io_ &&
           reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 &&
           is_packed(p_.rows.B, rows.batch_stride) && is_packed(p_.rows.T, rows.token_stride) &&
           is_packed(heads, rows.head_stride) && is_mappable(mapped_rows(p_, rows, heads, p_.K));
  }
  /// Where q or k goes; null where it is read as given. Its gradient's place is the first choice:
  /// that is written by the last to read it. Not in windows: rows are prepared that belong to the next
  /// one, whose gradients are there.
  TokenRows of_key(const TokenRows& given, const TokenRows& gradient) const noexcept {
    const bool as_given = p_.qk_norm == SLUICE_QK_NORM_NONE && holds_tiles(given, p_.H);
    if (as_given) return {};
    const bool lends = !in_windows_ && holds_tiles(gradient, p_.H);
    return lends ? gradient : workspace_.rows(p_.H, p_.K, io_);
  }
  /// A place in the workspace for rows of value heads that are no tiles; else null.
  TokenRows of_values(const TokenRows& rows) const noexcept {
    return holds_tiles(rows, p_.HV) ? TokenRows{} : workspace_.rows(p_.HV, p_.V, io_);
  }

 private:
  const DeltaRuleProblem& p_;
  WhichAddresses which_;
  bool in_windows_;
  BackwardWorkspace& workspace_;
  Number io_;
};

/// `rows` become `place`, if there is one.
TokenRows move_rows(const TokenRows& place, TokenRows* rows) noexcept {
  if (place.data != nullptr) *rows = place;
  return place;
}

/// States that enter the chunks, and gradients of those that leave them.
void place_states(BackwardWorkspace& workspace, Number number, BackwardParams* params) noexcept {
  const int64_t slots =
      params->window.exists() ? backward::window_slots(*params) : params->stage.slots;
  params->stage.h = workspace.states(slots, number);
  params->dh = workspace.states(slots, number);
}

}  // namespace

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

TokenRows BackwardWorkspace::rows(int64_t heads, int64_t columns, Number number) noexcept {
  const int64_t token = heads * columns;
  if (!window_.exists()) {
    return {take(p_.rows.B * p_.rows.T * token, number), p_.rows.T * token, token, columns, number};
  }
  void* const data =
      take(backward::window_rows(window_, present(p_.rows.cu_seqlens)) * token, number);
  const auto before = static_cast<uintptr_t>(window_.first * token * bytes_of(number));
  return {reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) - before), p_.rows.T * token,
          token, columns, number};
}

TokenRows BackwardWorkspace::numbers(int64_t heads) noexcept {
  void* const data = take(p_.rows.B * p_.rows.T * heads, Number::kFloat32);
  return {data, p_.rows.T * heads, 1, p_.rows.T, Number::kFloat32};
}

device::ChunkStates BackwardWorkspace::states(int64_t slots, Number number) noexcept {
  const int64_t head = p_.K * p_.V, chunk = p_.HV * head;
  const int64_t batches = present(p_.rows.cu_seqlens) ? 1 : p_.rows.B;
  void* const data = take(batches * slots * chunk, number);
  return {data, slots * chunk, chunk, head, number, slots};
}

void* BackwardWorkspace::take(int64_t count, Number number) noexcept {
  return layout_.take(static_cast<size_t>(count * bytes_of(number)));
}

BackwardParams lower_backward(const ChunkBackwardProblem& b) noexcept {
  const DeltaRuleProblem& p = b.forward;
  BackwardParams out{};
  out.stage = lower_stage_sizes(p, backward::kTokens);
  out.stage.q = rows_of(p.q), out.stage.k = rows_of(p.k), out.stage.values = rows_of(p.v);
  out.stage.state.initial = pool_of(p.state.initial);
  out.stage.has_gates = present(p.gate);
  out.d_o = rows_of(b.d_o);
  out.raw_q = out.stage.q, out.raw_k = out.stage.k;
  out.raw_v = out.stage.values, out.raw_d_o = out.d_o;
  out.raw_gate = head_rows(p.gate), out.raw_beta = head_rows(p.beta);
  out.A_log = vector_of(p.A_log), out.dt_bias = vector_of(p.dt_bias);
  out.d_final = pool_of(b.d_final), out.dinitial = pool_of(b.dinitial);
  out.dq = rows_of(b.dq), out.dk = rows_of(b.dk), out.dv = rows_of(b.dv);
  out.dgate = head_rows(b.dgate), out.dbeta = head_rows(b.dbeta);
  out.dA_log = head_output(b.dA_log), out.ddt_bias = head_output(b.ddt_bias);
  out.gate_form = gate_form(p), out.beta_form = beta_form(p);
  out.beta_factor = static_cast<float>(p.beta_factor);
  out.l2norm_eps = static_cast<float>(p.l2norm_eps);
  out.delta_rule = p.rule == SLUICE_RULE_GATED_DELTA;
  out.has_norm = p.qk_norm == SLUICE_QK_NORM_L2;
  return out;
}

/// w, once used, is the place of dq's parts, and u is Y's.
StageRows place_plain(const DeltaRuleProblem& p, BackwardWorkspace& workspace,
                      BackwardParams* params) noexcept {
  StageParams& s = params->stage;
  StageRows rows{};
  place_normalised(p, workspace, Number::kFloat32, params);
  place_gates(p, workspace, params);
  s.gate = params->g;
  if (present(p.gate)) params->dg = workspace.numbers(p.HV);
  place_states(workspace, Number::kFloat32, params);
  params->dN = workspace.rows(p.HV, p.V);
  params->dk_parts = workspace.rows(p.HV, p.K);
  params->dq_parts = workspace.rows(p.HV, p.K);
  if (!params->delta_rule) return rows;
  place_beta(p, workspace, params);
  rows.A = workspace.rows(p.HV, backward::kTokens);
  s.A_inverse = workspace.rows(p.HV, backward::kTokens);
  rows.u = params->Y = workspace.rows(p.HV, p.V);
  s.w = params->dq_parts;
  s.v_new = workspace.rows(p.HV, p.V);
  return rows;
}

void place_boundaries(const DeltaRuleProblem& p, BackwardWorkspace& workspace,
                      BackwardParams* params) noexcept {
  backward::SegmentCut& cut = params->cut;
  if (!cut.exists()) return;
  const int64_t count = cut.boundaries * p.HV * p.K * p.V;
  cut.states = workspace.floats(count);
  cut.gradients = workspace.floats(count);
  const device::ChunkStates& h = params->stage.h;
  cut.by_columns =
      !params->window.exists() && lie_in_states(p, cut)
          ? reinterpret_cast<float*>(static_cast<uint16_t*>(h.data) + cut.length * h.chunk_stride)
          : workspace.floats(2 * count);
  cut.by_rows = cut.by_columns + count;
}

void place_borders(const DeltaRuleProblem& p, BackwardWorkspace& workspace,
                   BackwardParams* params) noexcept {
  backward::Window& window = params->window;
  if (!window.exists()) return;
  const int64_t rows = window.end - window.first, number = window.first / rows,
                borders = (p.rows.T - 1) / rows, state = p.HV * p.K * p.V;
  float* const states = workspace.floats(borders * state);
  window.before = number > 0 ? states + (number - 1) * state : nullptr;
  window.after = number < borders ? states + number * state : nullptr;
}

void place_head_sums(const DeltaRuleProblem& all, int64_t entry, BackwardWorkspace& workspace,
                     BackwardParams* params) noexcept {
  if (!has_head_sums(*params)) return;
  const int64_t each = 2 * params->stage.slots * all.HV;
  params->chunk_sums = workspace.floats(all.rows.B * each) + entry * each;
}

/// Copies of v lie where e will: a chunk of e is written behind the last to read its v.
StageRows place_tiles(const DeltaRuleProblem& p, WhichAddresses which, BackwardWorkspace& workspace,
                      BackwardParams* params) noexcept {
  const Number io = number_type(p.q.dtype);
  const TilePlaces places(p, which, params->window.exists(), workspace);
  StageParams& s = params->stage;
  StageRows rows{};
  params->q_normal = move_rows(places.of_key(params->raw_q, params->dq), &s.q);
  params->k_normal = move_rows(places.of_key(params->raw_k, params->dk), &s.k);
  params->d_o_copy = move_rows(places.of_values(params->raw_d_o), &params->d_o);
  if (params->has_norm) params->norms = workspace.numbers(2 * p.H);
  place_gates(p, workspace, params);
  if (present(p.gate)) s.g_cumsum = rows.sums = workspace.numbers(p.HV);
  place_states(workspace, io, params);
  const int64_t chunks = (present(p.rows.cu_seqlens) ? 1 : p.rows.B) * s.slots;
  params->ready = reinterpret_cast<uint32_t*>(workspace.floats(chunks * p.HV + 1));
  params->dealt = params->ready + chunks * p.HV;
  if (io == Number::kFloat16) {
    params->maxima = workspace.floats(chunks * p.HV);
    params->scales = workspace.floats(p.rows.N * p.HV);
  }
  const bool whole = places.holds_tiles(params->dv, p.HV);
  if (whole) params->dv_tile = params->dv;
  if (!params->delta_rule) {
    params->v_copy = move_rows(places.of_values(params->raw_v), &s.values);
    return rows;
  }
  place_beta(p, workspace, params);
  params->B = workspace.rows(p.HV, backward::kTokens, io);
  s.v_new = workspace.rows(p.HV, p.V, io);
  if (!places.holds_tiles(params->raw_v, p.HV)) {
    params->v_copy = move_rows(s.v_new, &s.values);
  }
  if (!whole) params->dv_tile = workspace.rows(p.HV, p.V, io);
  return rows;
}

backward::KeyBackwardParams lower_key_wise(const ChunkBackwardProblem& b,
                                           BackwardWorkspace& workspace) noexcept {
  const DeltaRuleProblem& p = b.forward;
  backward::KeyBackwardParams out{};
  out.all = lower_backward(b);
  out.dt_bias = std::exchange(out.all.dt_bias, {});
  out.all.dgate = {};
  out.gate = rows_of(p.key_gate), out.dgate = rows_of(b.dgate);
  out.all.gate_form = form_of_space(p);
  out.segment = backward::key_segment(p.rows.T);
  out.state_count = backward::key_state_count(p.rows.T, out.segment);
  place_normalised(p, workspace, Number::kFloat32, &out.all);
  if (out.all.delta_rule) place_beta(p, workspace, &out.all);
  out.all.dq_parts = workspace.rows(p.HV, p.K);
  out.all.dk_parts = workspace.rows(p.HV, p.K);
  const int64_t heads = p.rows.N * p.HV;
  out.states = workspace.floats(heads * out.state_count * p.K * p.V);
  if (present(b.ddt_bias)) out.bias_parts = workspace.floats(heads * p.K);
  if (present(b.dA_log)) out.rate_parts = workspace.floats(heads);
  return out;
}

}  // namespace sluice::cuda
