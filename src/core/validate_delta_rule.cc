// chunk_forward and recurrent_step: one recurrence, one set of rules.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;

/// [B,T,HV] as [B,T,HV/r,r].
Tensor split_heads(const Tensor& t, int64_t r) noexcept {
  if (!present(t)) return {};
  Tensor split = t;
  split.rank = 4;
  split.shape[2] = t.shape[2] / r;
  split.shape[3] = r;
  split.stride[2] = t.stride[2] * r;
  split.stride[3] = t.stride[2];
  return split;
}

/// q, k, v and o: shapes and grouped heads.
template <class Args>
void check_qkvo(Checker& c, const Args& a, DeltaRuleProblem* p) noexcept {
  if (!c.required("q", a.q, 4, Dtypes::kFloat) || !c.required("k", a.k, 4, Dtypes::kFloat) ||
      !c.required("v", a.v, 4, Dtypes::kFloat) || !c.required("o", a.o, 4, Dtypes::kFloat)) {
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
  for (int axis = 0; axis < 4; ++axis) c.dimension("k", a.k, axis, a.q.shape[axis], "shape of q");
  for (int axis = 0; axis < 2; ++axis) c.dimension("v", a.v, axis, a.q.shape[axis], "B, T of q");
  for (int axis = 0; axis < 4; ++axis) c.dimension("o", a.o, axis, a.v.shape[axis], "shape of v");
  if (c.ok() && p->HV % p->H != 0) {
    c.fail("v.shape[2] = %lld, expected a multiple of H = %lld (grouped value heads)",
           static_cast<ll>(p->HV), static_cast<ll>(p->H));
  }
  if (!c.ok()) return;
  p->r = p->HV / p->H;
  c.same_dtype("k", a.k, "q", a.q);
  c.same_dtype("v", a.v, "q", a.q);
  c.inner_contiguous("q", a.q);
  c.inner_contiguous("k", a.k);
  c.inner_contiguous("v", a.v);
  c.inner_contiguous("o", a.o);
  c.writable("o", a.o);
  c.distinct("o", a.o, "q", a.q);
  c.distinct("o", a.o, "k", a.k);
  c.distinct("o", a.o, "v", a.v);
  p->q = a.q;
  p->k = a.k;
  p->v = a.v;
  p->o = a.o;
}

void check_per_head(Checker& c, const char* name, const Tensor& t, int64_t HV) noexcept {
  if (c.required(name, t, 1, Dtypes::kFloat)) c.dimension(name, t, 0, HV, "HV value heads");
}

/// [B,T,HV] views of gate and beta.
template <class Args>
bool check_per_token(Checker& c, const char* name, const Tensor& t, const Args& a) noexcept {
  if (!c.optional(name, t, 3, Dtypes::kFloat)) return false;
  for (int axis = 0; axis < 3; ++axis) c.dimension(name, t, axis, a.v.shape[axis], "B, T, HV of v");
  return c.ok();
}

template <class Args>
void check_gate_and_beta(Checker& c, const Args& a, DeltaRuleProblem* p) noexcept {
  c.choice("gate_space", a.gate_space, 3, "0 (LOG), 1 (LINEAR) or 2 (RAW)");
  c.choice("beta_space", a.beta_space, 2, "0 (VALUE) or 1 (LOGIT)");
  c.choice("eigenvalues", a.eigenvalues, 2, "0 (POSITIVE) or 1 (NEGATIVE)");
  c.choice("rule", a.rule, 2, "0 (GATED_DELTA) or 1 (LINEAR_ATTENTION)");
  if (!c.ok()) return;
  if (a.rule == SLUICE_RULE_LINEAR_ATTENTION) {
    c.absent("beta", a.beta, "rule LINEAR_ATTENTION has no delta term");
    if (c.ok() && a.eigenvalues != SLUICE_EIGENVALUES_POSITIVE) {
      c.fail("eigenvalues = %d, expected 0 (rule LINEAR_ATTENTION has no delta term)",
             a.eigenvalues);
    }
  }
  if (check_per_token(c, "gate", a.gate, a)) p->gate = split_heads(a.gate, p->r);
  if (check_per_token(c, "beta", a.beta, a)) p->beta = split_heads(a.beta, p->r);
  if (a.gate_space == SLUICE_GATE_RAW) {
    if (c.ok() && !present(a.gate) && element_count(a.v) > 0) {
      c.fail("gate = absent, expected a view of rank 3 (gate_space RAW)");
    }
    check_per_head(c, "A_log", a.A_log, p->HV);
    check_per_head(c, "dt_bias", a.dt_bias, p->HV);
  } else {
    c.absent("A_log", a.A_log, "only with gate_space RAW");
    c.absent("dt_bias", a.dt_bias, "only with gate_space RAW");
  }
  if (c.ok() && a.beta_space == SLUICE_BETA_LOGIT && !present(a.beta) && element_count(a.v) > 0) {
    c.fail("beta = absent, expected a view of rank 3 (beta_space LOGIT)");
  }
  p->A_log = a.A_log;
  p->dt_bias = a.dt_bias;
  p->gate_space = static_cast<sluice_gate_space>(a.gate_space);
  p->beta_space = static_cast<sluice_beta_space>(a.beta_space);
  p->beta_factor = a.eigenvalues == SLUICE_EIGENVALUES_NEGATIVE ? 2.0 : 1.0;
  p->rule = static_cast<sluice_rule>(a.rule);
}

template <class Args>
void check_scalars(Checker& c, const Args& a, DeltaRuleProblem* p) noexcept {
  c.choice("scale_mode", a.scale_mode, 2, "0 (DEFAULT) or 1 (VALUE)");
  c.choice("qk_norm", a.qk_norm, 2, "0 (NONE) or 1 (L2)");
  c.choice("head_map", a.head_map, 2, "0 (BLOCK) or 1 (CYCLIC)");
  c.epsilon("l2norm_eps", a.l2norm_eps);
  if (c.ok() && a.scale_mode == SLUICE_SCALE_VALUE && !std::isfinite(a.scale)) {
    c.fail("scale = %g, expected a finite number", a.scale);
  }
  if (!c.ok()) return;
  p->scale = a.scale_mode == SLUICE_SCALE_VALUE ? a.scale : 1.0 / std::sqrt(double(p->K));
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

void check_split(Checker& c, const sluice_chunk_forward_args& a, DeltaRuleProblem* p) noexcept {
  c.choice("split", a.split, 5, "0 (AUTO), 1 (NEVER), 2 (COLUMNS), 3 (SEGMENTS) or 4 (LENGTH)");
  c.choice("history", a.history, 3, "0 (AUTO), 1 (STRICT) or 2 (FORGET)");
  c.reserved(a.reserved);
  if (!c.ok()) return;
  if (a.split == SLUICE_SPLIT_SEGMENTS) {
    if (a.split_value < 2 || a.split_value > kMostWishedSegments) {
      c.fail("split_value = %d, expected 2 to %d segments (split SEGMENTS)", a.split_value,
             kMostWishedSegments);
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
  p->history = static_cast<sluice_history>(a.history);
}

template <class Args>
void check_common(Checker& c, const Args& a, bool step, int64_t max_tokens,
                  DeltaRuleProblem* p) noexcept {
  check_qkvo(c, a, p);
  if (!c.ok()) return;
  check_gate_and_beta(c, a, p);
  check_scalars(c, a, p);
  check_rows(c, "q", a.q, a.cu_seqlens, step, max_tokens, &p->rows);
  p->state = a.state;
  check_state_io(c, p);
}

Validated finish(Checker& c, Depth depth, DeltaRuleProblem& p, int32_t implementation) {
  c.choice("implementation", implementation, 5, "0 to 4 (sluice_implementation)");
  if (c.ok()) settle(&p);
  if (depth == Depth::kContents && c.device().type == SLUICE_DEVICE_CPU) check_delta_contents(c, p);
  return {c.status(), c.device(), implementation};
}

}  // namespace

Validated validate(const sluice_chunk_forward_args& args, Depth depth,
                   DeltaRuleProblem* problem) noexcept {
  Checker c("chunk_forward");
  *problem = {};
  problem->op = SLUICE_OP_CHUNK_FORWARD;
  check_common(c, args, false, args.max_tokens, problem);
  if (c.ok()) check_checkpoints(c, args, problem);
  check_split(c, args, problem);
  return finish(c, depth, *problem, args.implementation);
}

Validated validate(const sluice_recurrent_step_args& args, Depth depth,
                   DeltaRuleProblem* problem) noexcept {
  Checker c("recurrent_step");
  *problem = {};
  problem->op = SLUICE_OP_RECURRENT_STEP;
  c.choice("state_writes", args.state_writes, 3, "0 (LAST), 1 (PER_TOKEN) or 2 (NONE)");
  c.reserved(args.reserved);
  problem->state_writes = static_cast<sluice_state_writes>(args.state_writes);
  problem->num_accepted = args.num_accepted;
  check_common(c, args, true, args.max_tokens, problem);
  if (c.ok()) check_num_accepted(c, *problem);
  if (c.ok()) check_ring(c, args.ring, args.state.write_slots, problem);
  return finish(c, depth, *problem, args.implementation);
}

}  // namespace sluice::core
