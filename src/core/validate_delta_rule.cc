// Validates chunk_forward, recurrent_step, chunk_backward and chunk_summary: one recurrence, one set
// of rules.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <span>

#include "core/argument_views.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;

/// [B,T,HV] as [B,T,HV/r,r]. PERF strides of one element are those of a dense tensor here: to settle
/// them afterwards takes 25 ns a view.
Tensor grouped_heads(const Tensor& t, int64_t r) noexcept {
  if (!present(t)) return {};
  Tensor grouped = t;
  grouped.rank = 4;
  grouped.shape[2] = t.shape[2] / r;
  grouped.shape[3] = r;
  grouped.stride[2] = t.stride[2] * r;
  grouped.stride[3] = r > 1 ? t.stride[2] : 1;
  return grouped;
}

/// q, k and v: shapes and grouped heads. `values`: o, or its gradient, shaped as v.
template <class Args>
void check_qkv(Checker& c, const Args& a, const char* name, const Tensor& values,
               DeltaRuleProblem* p) noexcept {
  if (!c.required("q", a.q, 4, Dtypes::kFloat) || !c.required("k", a.k, 4, Dtypes::kFloat) ||
      !c.required("v", a.v, 4, Dtypes::kFloat) || !c.required(name, values, 4, Dtypes::kFloat)) {
    return;
  }
  p->H = a.q.shape[2];
  p->K = a.q.shape[3];
  p->HV = a.v.shape[2];
  p->V = a.v.shape[3];
  c.dimension_at_least("q", a.q, 2, 1, "query heads H");
  c.dimension_at_least("q", a.q, 3, 1, "head dimension K");
  c.dimension_at_least("v", a.v, 2, 1, "value heads HV");
  c.dimension_at_least("v", a.v, 3, 1, "head dimension V");
  c.same_shape("k", a.k, a.q, 4, "shape of q");
  c.same_shape("v", a.v, a.q, 2, "B, T of q");
  c.same_shape(name, values, a.v, 4, "shape of v");
  p->r = check_grouped(c, "v", p->HV, p->H);
  if (!c.ok()) return;
  c.same_dtype("k", a.k, "q", a.q);
  c.same_dtype("v", a.v, "q", a.q);
  c.inner_contiguous("q", a.q);
  c.inner_contiguous("k", a.k);
  c.inner_contiguous("v", a.v);
  c.inner_contiguous(name, values);
  p->q = a.q;
  p->k = a.k;
  p->v = a.v;
}

template <class Args>
void check_o(Checker& c, const Args& a, DeltaRuleProblem* p) noexcept {
  c.writable("o", a.o);
  c.distinct("o", a.o, "q", a.q);
  c.distinct("o", a.o, "k", a.k);
  c.distinct("o", a.o, "v", a.v);
  p->o = a.o;
}

/// [B,T,HV] views of gate and beta.
template <class Args>
bool check_per_token(Checker& c, const char* name, const Tensor& t, const Args& a) noexcept {
  if (present(t) && t.rank != 3) c.fail("%s rank = %d, expected 3 ([B,T,HV])", name, t.rank);
  if (!c.optional(name, t, 3, Dtypes::kFloat)) return false;
  c.same_shape(name, t, a.v, 3, "B, T, HV of v");
  return c.ok();
}

/// [B,T,HV], or key-wise [B,T,HV,K].
template <class Args>
void check_gate(Checker& c, const Args& a, DeltaRuleProblem* p) noexcept {
  if (!present(a.gate) || a.gate.rank != 4) {
    if (check_per_token(c, "gate", a.gate, a)) p->gate = grouped_heads(a.gate, p->r);
    return;
  }
  if (!c.optional("gate", a.gate, 4, Dtypes::kFloat)) return;
  c.same_shape("gate", a.gate, a.v, 3, "B, T, HV of v");
  c.dimension("gate", a.gate, 3, p->K, "K of q: key-wise gates");
  c.inner_contiguous("gate", a.gate);
  p->key_gate = a.gate;
}

template <class Args>
void check_gate_and_beta(Checker& c, const Args& a, DeltaRuleProblem* p) noexcept {
  const sluice_delta_options& o = a.options;
  c.choice("gate_space", o.gate_space, 4, "0 (LOG), 1 (LINEAR), 2 (RAW) or 3 (RAW_BOUNDED)");
  c.choice("beta_space", o.beta_space, 2, "0 (VALUE) or 1 (LOGIT)");
  c.choice("eigenvalues", o.eigenvalues, 2, "0 (POSITIVE) or 1 (NEGATIVE)");
  c.choice("rule", o.rule, 2, "0 (GATED_DELTA) or 1 (LINEAR_ATTENTION)");
  if (!c.ok()) return;
  if (o.rule == SLUICE_RULE_LINEAR_ATTENTION) {
    c.absent("beta", a.beta, "rule LINEAR_ATTENTION has no delta term");
    if (c.ok() && o.eigenvalues != SLUICE_EIGENVALUES_POSITIVE) {
      c.fail("eigenvalues = %d, expected 0 (rule LINEAR_ATTENTION has no delta term)",
             o.eigenvalues);
    }
  }
  check_gate(c, a, p);
  if (check_per_token(c, "beta", a.beta, a)) p->beta = grouped_heads(a.beta, p->r);
  const bool raw = o.gate_space == SLUICE_GATE_RAW || o.gate_space == SLUICE_GATE_RAW_BOUNDED;
  if (c.ok() && raw && !present(a.gate) && element_count(a.v) > 0) {
    c.fail("gate = absent, expected a view of rank 3 or 4 (gate_space %s)",
           o.gate_space == SLUICE_GATE_RAW ? "RAW" : "RAW_BOUNDED");
  }
  check_gate_space(c, {o.gate_space, o.gate_lower_bound, a.A_log, a.dt_bias}, p->HV,
                   a.gate.rank == 4 ? p->K : 0);
  if (c.ok() && o.beta_space == SLUICE_BETA_LOGIT && !present(a.beta) && element_count(a.v) > 0) {
    c.fail("beta = absent, expected a view of rank 3 (beta_space LOGIT)");
  }
  p->A_log = a.A_log;
  p->dt_bias = a.dt_bias;
  p->gate_space = static_cast<sluice_gate_space>(o.gate_space);
  p->gate_lower_bound = o.gate_lower_bound;
  p->beta_space = static_cast<sluice_beta_space>(o.beta_space);
  p->beta_factor = o.eigenvalues == SLUICE_EIGENVALUES_NEGATIVE ? 2.0 : 1.0;
  p->rule = static_cast<sluice_rule>(o.rule);
}

void check_scalars(Checker& c, const sluice_delta_options& a, DeltaRuleProblem* p) noexcept {
  c.choice("qk_norm", a.qk_norm, 2, "0 (NONE) or 1 (L2)");
  c.choice("head_map", a.head_map, 2, "0 (BLOCK) or 1 (CYCLIC)");
  c.epsilon("l2norm_eps", a.l2norm_eps);
  c.reserved(a.reserved);
  p->scale = check_scale(c, a.scale_mode, a.scale, p->K);
  if (!c.ok()) return;
  p->l2norm_eps = a.l2norm_eps > 0 ? a.l2norm_eps : 1e-6;
  p->qk_norm = static_cast<sluice_qk_norm>(a.qk_norm);
  p->head_map = static_cast<sluice_head_map>(a.head_map);
}

void check_checkpoints(Checker& c, const sluice_chunk_forward_args& a,
                       DeltaRuleProblem* p) noexcept {
  if (!present(a.checkpoints)) {
    c.absent("checkpoint_slots", a.checkpoint_slots, "only with checkpoints");
    return;
  }
  check_pool(c, "checkpoints", a.checkpoints, *p, 0);
  if (c.required("checkpoint_slots", a.checkpoint_slots, 2, Dtypes::kIndex)) {
    c.dimension("checkpoint_slots", a.checkpoint_slots, 0, p->rows.N, "N sequences");
  }
  if (c.ok() && (a.checkpoint_every <= 0 || a.checkpoint_every % kCheckpointMultiple != 0)) {
    c.fail("checkpoint_every = %lld, expected a positive multiple of %lld (whole chunks)",
           static_cast<ll>(a.checkpoint_every), static_cast<ll>(kCheckpointMultiple));
  }
  p->checkpoints = a.checkpoints;
  p->checkpoint_slots = a.checkpoint_slots;
  p->checkpoint_every = a.checkpoint_every;
}

template <class Args>
void check_split(Checker& c, const Args& a, DeltaRuleProblem* p) noexcept {
  c.choice("split", a.split, 5, "0 (AUTO), 1 (NEVER), 2 (COLUMNS), 3 (SEGMENTS) or 4 (LENGTH)");
  if (!c.ok()) return;
  if (a.split == SLUICE_SPLIT_SEGMENTS) {
    if (a.split_value < 2 || a.split_value > kMostSegmentsAskedFor) {
      c.fail("split_value = %d, expected 2 to %d segments (split SEGMENTS)", a.split_value,
             kMostSegmentsAskedFor);
    }
  } else if (a.split == SLUICE_SPLIT_LENGTH) {
    if (a.split_value < 0 || a.split_value % kCheckpointMultiple != 0) {
      c.fail("split_value = %d, expected a multiple of %d tokens, or 0 (split LENGTH)",
             a.split_value, static_cast<int>(kCheckpointMultiple));
    }
  } else if (a.split_value != 0) {
    c.fail("split_value = %d, expected 0 (only with split SEGMENTS or LENGTH)", a.split_value);
  }
  p->split = static_cast<sluice_split>(a.split);
  p->split_value = a.split_value;
}

template <class Args>
void check_common(Checker& c, const Args& a, bool step, int64_t max_tokens,
                  DeltaRuleProblem* p) noexcept {
  check_qkv(c, a, "o", a.o, p);
  if (!c.ok()) return;
  check_o(c, a, p);
  check_gate_and_beta(c, a, p);
  check_scalars(c, a.options, p);
  check_rows(c, "q", a.q, a.cu_seqlens, step, max_tokens, &p->rows);
  check_work(c, p->rows, p->HV, std::max(p->K, p->V));
  p->state = a.state;
  check_state_io(c, p);
}

/// Outputs of chunk_backward have memory of their own. In the table they follow the inputs.
void check_own_memory(Checker& c, const sluice_chunk_backward_args& a) noexcept {
  const std::span<const ViewField> views = kViews<sluice_chunk_backward_args>;
  for (size_t i = 0; i < views.size(); ++i) {
    const Tensor& output = views[i].of(&a);
    if (views[i].writers == 0 || !present(output)) continue;
    c.writable(views[i].name, output);
    for (const ViewField& other : views.first(i)) {
      if (other.holds != Holds::kNumbers) continue;
      c.distinct(views[i].name, output, other.name, other.of(&a));
    }
  }
}

/// A gradient of chunk_backward: shaped as its tensor.
void check_shape(Checker& c, const char* name, const Tensor& t, const char* like_name,
                 const Tensor& like) noexcept {
  if (!check_like(c, name, t, like_name, like)) return;
  if (t.rank == 4 || t.rank == 2) c.inner_contiguous(name, t);
}

void check_gradients(Checker& c, const sluice_chunk_backward_args& a,
                     ChunkBackwardProblem* p) noexcept {
  if (!present(a.gate)) c.absent("dgate", a.dgate, "gate is absent");
  if (!present(a.beta)) c.absent("dbeta", a.dbeta, "beta is absent");
  if (!present(a.A_log)) c.absent("dA_log", a.dA_log, "A_log is absent");
  if (!present(a.dt_bias)) c.absent("ddt_bias", a.ddt_bias, "dt_bias is absent");
  check_shape(c, "dq", a.dq, "q", a.q);
  check_shape(c, "dk", a.dk, "k", a.k);
  check_shape(c, "dv", a.dv, "v", a.v);
  check_shape(c, "dgate", a.dgate, "gate", a.gate);
  check_shape(c, "dbeta", a.dbeta, "beta", a.beta);
  check_shape(c, "dA_log", a.dA_log, "A_log", a.A_log);
  check_shape(c, "ddt_bias", a.ddt_bias, "dt_bias", a.dt_bias);
  if (c.ok()) check_own_memory(c, a);
  if (!c.ok()) return;
  p->d_o = a.d_o, p->d_final = a.d_final;
  p->dq = a.dq, p->dk = a.dk, p->dv = a.dv;
  const bool key_wise = a.gate.rank == 4;
  p->dgate = key_wise ? a.dgate : grouped_heads(a.dgate, p->forward.r);
  p->dbeta = grouped_heads(a.dbeta, p->forward.r);
  p->dA_log = a.dA_log, p->ddt_bias = a.ddt_bias, p->dinitial = a.dinitial;
}

/// What chunk_summary writes, and which pieces it is asked for.
void check_maps(Checker& c, const sluice_chunk_summary_args& a, ChunkSummaryProblem* p) noexcept {
  check_map(c, "transition", a.transition, p->forward.K, p->forward);
  check_map(c, "addend", a.addend, p->forward.V, p->forward);
  if (!present(a.transition)) c.absent("forgotten", a.forgotten, "transition is absent");
  if (c.optional("forgotten", a.forgotten, 2, Dtypes::kFlag)) {
    c.dimension("forgotten", a.forgotten, 0, p->forward.rows.N, "N pieces");
    c.dimension("forgotten", a.forgotten, 1, p->forward.HV, "HV value heads");
    c.writable("forgotten", a.forgotten);
  }
  if (c.optional("wanted", a.wanted, 1, Dtypes::kIndex)) {
    c.dimension("wanted", a.wanted, 0, p->forward.rows.N, "N pieces");
  }
  c.choice("history", a.history, 3, "0 (AUTO), 1 (STRICT) or 2 (FORGET)");
  c.reserved(a.reserved);
  if (!c.ok()) return;
  p->forward.history = static_cast<sluice_history>(a.history);
  p->wanted = a.wanted, p->transition = a.transition;
  p->addend = a.addend, p->forgotten = a.forgotten;
}

/// q and d_o belong to REVERSE. FORWARD takes k for q, whose rules k must keep by its own name.
void check_summary_rows(Checker& c, sluice_chunk_summary_args a, ChunkSummaryProblem* p) noexcept {
  if (p->direction == SLUICE_DIRECTION_REVERSE) {
    check_qkv(c, a, "d_o", a.d_o, &p->forward);
    if (c.ok()) p->d_o = a.d_o;
    return;
  }
  c.absent("q", a.q, "direction FORWARD");
  c.absent("d_o", a.d_o, "direction FORWARD");
  if (!c.required("k", a.k, 4, Dtypes::kFloat)) return;
  c.dimension_at_least("k", a.k, 2, 1, "key heads H");
  c.dimension_at_least("k", a.k, 3, 1, "head dimension K");
  c.inner_contiguous("k", a.k);
  a.q = a.k;
  check_qkv(c, a, "v", a.v, &p->forward);
}

}  // namespace

void check(Checker& c, const sluice_chunk_forward_args& args, Depth depth,
           DeltaRuleProblem* problem) noexcept {
  check_common(c, args, false, args.max_tokens, problem);
  if (c.ok()) check_checkpoints(c, args, problem);
  check_split(c, args, problem);
  c.choice("history", args.history, 3, "0 (AUTO), 1 (STRICT) or 2 (FORGET)");
  if (c.ok()) problem->history = static_cast<sluice_history>(args.history);
  if (sees_contents(depth, c.device())) check_delta_contents(c, *problem, depth);
}

void check(Checker& c, const sluice_recurrent_step_args& args, Depth depth,
           DeltaRuleProblem* problem) noexcept {
  c.choice("state_writes", args.state_writes, 3, "0 (LAST), 1 (PER_TOKEN) or 2 (NONE)");
  problem->state_writes = static_cast<sluice_state_writes>(args.state_writes);
  problem->num_accepted = args.num_accepted;
  check_common(c, args, true, args.max_tokens, problem);
  if (c.ok()) check_num_accepted(c, *problem);
  if (c.ok()) check_ring(c, args.ring, args.state.write_slots, problem);
  if (sees_contents(depth, c.device())) check_delta_contents(c, *problem, depth);
}

void check(Checker& c, const sluice_chunk_backward_args& args, Depth depth,
           ChunkBackwardProblem* problem) noexcept {
  DeltaRuleProblem& p = problem->forward;
  p.op = SLUICE_OP_CHUNK_BACKWARD;
  check_qkv(c, args, "d_o", args.d_o, &p);
  if (c.ok()) {
    check_gate_and_beta(c, args, &p);
    check_scalars(c, args.options, &p);
    check_rows(c, "q", args.q, args.cu_seqlens, false, 0, &p.rows);
    check_work(c, p.rows, p.HV, std::max(p.K, p.V));
    c.choice("state_layout", args.state_layout, 2, "0 (KV) or 1 (VK)");
    p.state.layout = args.state_layout;
    p.state.initial = args.initial;
    check_sequence_states(c, "initial", args.initial, p);
    check_sequence_states(c, "d_final", args.d_final, p);
    check_sequence_states(c, "dinitial", args.dinitial, p);
    check_gradients(c, args, problem);
  }
  check_split(c, args, &p);
  if (sees_contents(depth, c.device())) check_delta_contents(c, p, depth);
}

void check(Checker& c, const sluice_chunk_summary_args& args, Depth depth,
           ChunkSummaryProblem* problem) noexcept {
  DeltaRuleProblem& p = problem->forward;
  p.op = SLUICE_OP_CHUNK_FORWARD;
  c.choice("direction", args.direction, 2, "0 (FORWARD) or 1 (REVERSE)");
  if (c.ok()) problem->direction = static_cast<sluice_direction>(args.direction);
  check_summary_rows(c, args, problem);
  if (c.ok()) {
    check_gate_and_beta(c, args, &p);
    check_scalars(c, args.options, &p);
    check_rows(c, "k", args.k, args.cu_seqlens, false, 0, &p.rows);
    check_work(c, p.rows, p.HV, std::max(p.K, p.V));
    check_maps(c, args, problem);
  }
  if (sees_contents(depth, c.device())) check_delta_contents(c, p, depth);
}

}  // namespace sluice::core
