// Runs a form of the recurrence over sequences and heads, with states from slots and back.
// SPDX-License-Identifier: Apache-2.0
#include "ref/operators.hpp"

#include <algorithm>
#include <cmath>

#include "ref/access.hpp"
#include "ref/forms.hpp"
#include "ref/gates.hpp"

namespace sluice::ref {
namespace {

using core::DeltaRuleProblem;
using core::TokenRange;

template <class Form>
struct Scratch {
  Scratch(const DeltaRuleProblem& problem, Arena& arena) noexcept
      : S(arena.matrix(problem.K, problem.V)),
        q(arena.matrix(Form::kBlock, problem.K)),
        k(arena.matrix(Form::kBlock, problem.K)),
        v(arena.matrix(Form::kBlock, problem.V)),
        o(arena.matrix(Form::kBlock, problem.V)),
        g(arena.matrix(Form::kBlock, gate_channels(problem))),
        beta(arena.vector(Form::kBlock)),
        form(arena, problem.K, problem.V, gate_channels(problem)) {}

  Matrix S;           ///< [K, V]
  Matrix q, k, v, o;  ///< one block of tokens
  Matrix g;
  Vector beta;
  typename Form::Scratch form;
};

/// Rows token .. token + count - 1 of value head h, with gates, l2 norm and head map applied.
template <class Form>
Block load_block(const DeltaRuleProblem& problem, int64_t batch, int64_t token, int64_t count,
                 int64_t h, const Scratch<Form>& scratch) noexcept {
  Block block{scratch.q.top(count), scratch.k.top(count),       scratch.v.top(count),
              scratch.g.top(count), {scratch.beta.data, count}, problem.scale,
              problem.rule};
  const int64_t key_head = problem.key_head(h);
  for (int64_t t = 0; t < count; ++t) {
    const int64_t row = token + t;
    for (int64_t i = 0; i < problem.K; ++i) {
      block.q(t, i) = load(problem.q, batch, row, key_head, i);
      block.k(t, i) = load(problem.k, batch, row, key_head, i);
    }
    for (int64_t j = 0; j < problem.V; ++j) block.v(t, j) = load(problem.v, batch, row, h, j);
    if (problem.qk_norm == SLUICE_QK_NORM_L2) {
      l2_normalise(block.q.row(t), problem.l2norm_eps);
      l2_normalise(block.k.row(t), problem.l2norm_eps);
    }
    for (int64_t i = 0; i < block.g.cols; ++i) {
      block.g(t, i) = log_gate(problem, batch, row, h, i);
    }
    block.beta[t] = write_strength(problem, batch, row, h);
  }
  return block;
}

/// Stores S to column `column` of a slot table, unless that slot is padding or past the table.
void store_to_slot(const DeltaRuleProblem& problem, const Tensor& pool, const Tensor& slots,
                   int64_t n, int64_t column, int64_t h, Matrix S) noexcept {
  if (column >= slots.shape[1]) return;
  const int64_t slot = core::slot_at(slots, n, column);
  if (slot >= problem.state.pad_below) store_state(pool, problem.state.layout, slot, h, S);
}

/// States that are stored on the way: checkpoints, and one per token in speculative steps.
/// `done` tokens of sequence n lie behind S.
void store_passing_states(const DeltaRuleProblem& problem, int64_t n, int64_t done, int64_t h,
                          Matrix S) noexcept {
  if (core::present(problem.checkpoints) && done % problem.checkpoint_every == 0) {
    store_to_slot(problem, problem.checkpoints, problem.checkpoint_slots, n,
                  done / problem.checkpoint_every - 1, h, S);
  }
  if (problem.state_writes == SLUICE_STATE_WRITE_PER_TOKEN) {
    store_to_slot(problem, problem.state.final, problem.state.write_slots, n, done - 1, h, S);
  }
}

template <class Form>
void run_head(const DeltaRuleProblem& problem, int64_t n, int64_t h, const core::SlotPlan& plan,
              Scratch<Form>& scratch) noexcept {
  const TokenRange range = core::token_range(problem.rows, n);
  load_state(problem.state.initial, problem.state.layout, plan.read, h, scratch.S);
  for (int64_t done = 0; done < range.size();) {
    const int64_t count = std::min(Form::kBlock, range.size() - done);
    const int64_t token = range.begin + done;
    const Block block = load_block(problem, range.batch, token, count, h, scratch);
    const Matrix o = scratch.o.top(count);
    Form::advance(block, scratch.S, o, scratch.form);
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t j = 0; j < o.cols; ++j) store(problem.o, o(t, j), range.batch, token + t, h, j);
    }
    done += count;
    store_passing_states(problem, n, done, h, scratch.S);
  }
  if (problem.state_writes == SLUICE_STATE_WRITE_LAST && plan.write >= 0) {
    store_state(problem.state.final, problem.state.layout, plan.write, h, scratch.S);
  }
}

/// S <- S with entry `place` of the replay buffer in it, as it is stored.
void replay_entry(const DeltaRuleProblem& problem, int64_t slot, int64_t place, int64_t h,
                  Matrix S) noexcept {
  const sluice_replay_ring& ring = problem.ring;
  const double alpha = load(ring.decay, slot, place, h);
  const int64_t key_head = problem.key_head(h);
  for (int64_t i = 0; i < S.rows; ++i) {
    const double k = load(ring.k, slot, place, key_head, i);
    for (int64_t j = 0; j < S.cols; ++j) {
      S(i, j) = alpha * S(i, j) + k * load(ring.delta, slot, place, h, j);
    }
  }
}

/// One token on S: its output, and its entry of the buffer, through which S gets it.
void step_into_buffer(const DeltaRuleProblem& problem, int64_t slot, int64_t place, int64_t h,
                      const Block& token, const Scratch<RecurrentForm>& scratch) noexcept {
  const Matrix S = scratch.S;
  const Vector delta = scratch.form.delta, o = scratch.o.row(0);
  const Vector q = token.q.row(0), k = token.k.row(0), v = token.v.row(0);
  const double alpha = std::exp(token.g(0, 0));
  read(S, k, scratch.form.prediction);
  read(S, q, o);
  double kq = 0.0;
  for (int64_t i = 0; i < k.size; ++i) kq += k[i] * q[i];
  for (int64_t j = 0; j < o.size; ++j) {
    const double error = v[j] - alpha * scratch.form.prediction[j];
    delta[j] = token.rule == SLUICE_RULE_LINEAR_ATTENTION ? v[j] : token.beta[0] * error;
    o[j] = token.scale * (alpha * o[j] + kq * delta[j]);
    store(problem.ring.delta, delta[j], slot, place, h, j);
  }
  for (int64_t i = 0; i < k.size; ++i) {
    store(problem.ring.k, k[i], slot, place, problem.key_head(h), i);
  }
  store(problem.ring.decay, alpha, slot, place, h);
  replay_entry(problem, slot, place, h, S);
}

/// run_head() with a replay buffer: the state is rebuilt from its entries.
void run_replay_head(const DeltaRuleProblem& problem, int64_t n, int64_t h,
                     const core::SlotPlan& plan, Scratch<RecurrentForm>& scratch) noexcept {
  const TokenRange range = core::token_range(problem.rows, n);
  const core::RingPlan ring = core::plan_ring(problem, n);
  load_state(problem.state.initial, problem.state.layout, plan.read, h, scratch.S);
  for (int64_t e = 0; e < ring.live; ++e) {
    replay_entry(problem, plan.write, ring.place(e), h, scratch.S);
  }
  if (ring.fold) store_state(problem.state.initial, problem.state.layout, plan.write, h, scratch.S);
  for (int64_t t = 0; t < range.size(); ++t) {
    const int64_t token = range.begin + t;
    const Block block = load_block(problem, range.batch, token, 1, h, scratch);
    step_into_buffer(problem, plan.write, ring.place(ring.live + t), h, block, scratch);
    for (int64_t j = 0; j < problem.V; ++j) {
      store(problem.o, scratch.o(0, j), range.batch, token, h, j);
    }
  }
}

void zero_outputs(const DeltaRuleProblem& problem, int64_t n) noexcept {
  const TokenRange range = core::token_range(problem.rows, n);
  for (int64_t t = range.begin; t < range.end; ++t) {
    for (int64_t h = 0; h < problem.HV; ++h) {
      for (int64_t j = 0; j < problem.V; ++j) store(problem.o, 0.0, range.batch, t, h, j);
    }
  }
}

}  // namespace

template <class Form>
size_t delta_rule_workspace(const DeltaRuleProblem& problem) noexcept {
  Arena counter(nullptr);
  Scratch<Form> scratch(problem, counter);
  return counter.bytes();
}

template <class Form>
void delta_rule(const DeltaRuleProblem& problem, Arena arena) noexcept {
  Scratch<Form> scratch(problem, arena);
  for (int64_t n = 0; n < problem.rows.N; ++n) {
    const core::SlotPlan plan = core::plan_slots(problem.state, problem.num_accepted, n);
    if (plan.padded) {
      zero_outputs(problem, n);
      continue;
    }
    for (int64_t h = 0; h < problem.HV; ++h) run_head(problem, n, h, plan, scratch);
  }
}

void replay_steps(const DeltaRuleProblem& problem, Arena arena) noexcept {
  Scratch<RecurrentForm> scratch(problem, arena);
  for (int64_t n = 0; n < problem.rows.N; ++n) {
    const core::SlotPlan plan = core::plan_slots(problem.state, problem.num_accepted, n);
    if (plan.padded) {
      zero_outputs(problem, n);
      continue;
    }
    for (int64_t h = 0; h < problem.HV; ++h) run_replay_head(problem, n, h, plan, scratch);
    core::store_next_checkpoint(problem, n, core::plan_ring(problem, n));
  }
}

template size_t delta_rule_workspace<RecurrentForm>(const DeltaRuleProblem&) noexcept;
template size_t delta_rule_workspace<ChunkForm>(const DeltaRuleProblem&) noexcept;
template void delta_rule<RecurrentForm>(const DeltaRuleProblem&, Arena) noexcept;
template void delta_rule<ChunkForm>(const DeltaRuleProblem&, Arena) noexcept;

}  // namespace sluice::ref
