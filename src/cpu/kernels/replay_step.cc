// Runs recurrent_step with a replay buffer: one item is a (sequence, value head) pair, whose
// arithmetic is run_replay_head(). Entries are read and written here; no item writes what another one
// reads.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/operators.hpp"

#include <algorithm>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/load_store.hpp"
#include "cpu/kernels/replay_head.hpp"
#include "cpu/kernels/size_limits.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

/// One worker's scratch, in floats; every array starts on a cache line.
struct ReplayScratch {
  int64_t q, k, v, o, with_k, with_q, keys, deltas, row, size;

  explicit ReplayScratch(const core::DeltaRuleProblem& p) noexcept {
    const int64_t tokens = std::max<int64_t>(p.rows.max_tokens, 1), L = p.ring.k.shape[1];
    int64_t at = 0;
    const auto take = [&at](int64_t floats) {
      const int64_t first = at;
      at += round_up(floats, kFloatsPerLine);
      return first;
    };
    q = take(tokens * p.K), k = take(tokens * p.K);
    v = take(tokens * p.V), o = take(tokens * p.V);
    with_k = take(tokens * p.V), with_q = take(tokens * p.V);
    keys = take(L * p.K), deltas = take(L * p.V);
    row = take(std::max(p.K, p.V));
    size = at;
  }
};

int64_t heads_of(const core::DeltaRuleProblem& p) noexcept { return p.rows.N * p.HV; }

int64_t workers_of(const core::DeltaRuleProblem& p) noexcept {
  return std::clamp<int64_t>(worker_count(), 1, std::max<int64_t>(heads_of(p), 1));
}

class ReplayItems {
 public:
  ReplayItems(const core::DeltaRuleProblem& problem, float* memory) noexcept
      : p_(problem), plan_(problem), memory_(memory) {}

  void operator()(int64_t item, int worker) const noexcept {
    const int64_t n = item / p_.HV, h = item % p_.HV;
    const core::TokenRange range = core::token_range(p_.rows, n);
    const core::SlotPlan slots = core::plan_slots(p_.state, p_.num_accepted, n);
    if (slots.padded) return zero_rows(p_, range, h);
    float* const scratch = memory_ + worker * plan_.size;
    const core::RingPlan ring = core::plan_ring(p_, n);
    float decays[kMaxReplayEntries], alpha[kMaxSteps] = {}, beta[kMaxSteps] = {};
    ReplayHead head = make_head(range, slots, ring, h, scratch);
    load_gates(range, h, alpha, beta);
    head.alpha = alpha, head.beta = beta, head.decays = decays;
    load_tokens(range, h, scratch);
    load_entries(head, slots.write, ring, h);
    run_replay_head(head);
    store_entries(head, slots.write, ring, h);
    for (int64_t t = 0; t < head.tokens; ++t) {
      store_row(head.o + t * p_.V, p_.V, p_.o.dtype,
                core::address(p_.o, range.batch, range.begin + t, h, 0));
    }
    if (h == 0) core::store_next_checkpoint(p_, n, ring);
  }

 private:
  ReplayHead make_head(const core::TokenRange& range, const core::SlotPlan& slots,
                       const core::RingPlan& ring, int64_t h, float* scratch) const noexcept {
    ReplayHead head;
    head.K = p_.K, head.V = p_.V;
    head.tokens = range.size(), head.live = ring.live;
    head.q = scratch + plan_.q, head.k = scratch + plan_.k, head.v = scratch + plan_.v;
    head.keys = scratch + plan_.keys, head.deltas = scratch + plan_.deltas;
    head.key_dtype = p_.ring.k.dtype, head.delta_dtype = p_.ring.delta.dtype;
    head.o = scratch + plan_.o, head.row = scratch + plan_.row;
    head.with_k = scratch + plan_.with_k, head.with_q = scratch + plan_.with_q;
    head.rule = p_.rule;
    head.layout = static_cast<sluice_state_layout>(p_.state.layout);
    void* const state = core::address(p_.state.initial, slots.write, h, 0, 0);
    head.state = slots.read < 0 ? nullptr : state;
    head.fold = ring.fold ? state : nullptr;
    head.state_dtype = p_.state.initial.dtype;
    return head;
  }

  void load_tokens(const core::TokenRange& range, int64_t h, float* scratch) const noexcept {
    const int64_t K = p_.K, key_head = p_.key_head(h);
    const bool normalises = p_.qk_norm == SLUICE_QK_NORM_L2;
    const float eps = static_cast<float>(p_.l2norm_eps), scale = static_cast<float>(p_.scale);
    for (int64_t t = 0; t < range.size(); ++t) {
      const int64_t batch = range.batch, row = range.begin + t;
      float *const q = scratch + plan_.q + t * K, *const k = scratch + plan_.k + t * K;
      load_row(core::address(p_.q, batch, row, key_head, 0), p_.q.dtype, K, q);
      load_row(core::address(p_.k, batch, row, key_head, 0), p_.k.dtype, K, k);
      load_row(core::address(p_.v, batch, row, h, 0), p_.v.dtype, p_.V,
               scratch + plan_.v + t * p_.V);
      if (normalises) {
        l2_normalise(q, K, eps, scale, q);
        l2_normalise(k, K, eps, 1.0f, k);
      } else {
        for (int64_t i = 0; i < K; ++i) q[i] *= scale;
      }
    }
  }

  void load_gates(const core::TokenRange& range, int64_t h, float* alpha,
                  float* beta) const noexcept {
    const GateRule rule = gate_rule(p_, h);
    float gates[kMaxSteps] = {}, betas[kMaxSteps] = {};
    for (int64_t t = 0; t < range.size(); ++t) {
      const int64_t row = range.begin + t, group = h / p_.r, member = h % p_.r;
      if (rule.gated) {
        gates[t] = core::load_float(core::address(p_.gate, range.batch, row, group, member),
                                    p_.gate.dtype);
      }
      if (rule.weighted) {
        betas[t] = core::load_float(core::address(p_.beta, range.batch, row, group, member),
                                    p_.beta.dtype);
      }
    }
    gates_of_steps(rule, gates, betas, range.size(), alpha, beta);
  }

  void load_entries(const ReplayHead& head, int64_t slot, const core::RingPlan& ring,
                    int64_t h) const noexcept {
    for (int64_t e = 0; e < head.live; ++e) {
      const int64_t place = ring.place(e);
      load_row(core::address(p_.ring.k, slot, place, p_.key_head(h), 0), p_.ring.k.dtype, p_.K,
               head.keys + e * p_.K);
      load_row(core::address(p_.ring.delta, slot, place, h, 0), p_.ring.delta.dtype, p_.V,
               head.deltas + e * p_.V);
      std::memcpy(head.decays + e, core::address(p_.ring.decay, slot, place, h), sizeof(float));
    }
  }

  /// The tokens' entries; keys by the first value head of their key head.
  void store_entries(const ReplayHead& head, int64_t slot, const core::RingPlan& ring,
                     int64_t h) const noexcept {
    const int64_t key_head = p_.key_head(h);
    const bool first = p_.head_map == SLUICE_HEAD_MAP_BLOCK ? h % p_.r == 0 : h < p_.H;
    for (int64_t e = head.live; e < head.live + head.tokens; ++e) {
      const int64_t place = ring.place(e);
      if (first) {
        store_row(head.keys + e * p_.K, p_.K, p_.ring.k.dtype,
                  core::address(p_.ring.k, slot, place, key_head, 0));
      }
      store_row(head.deltas + e * p_.V, p_.V, p_.ring.delta.dtype,
                core::address(p_.ring.delta, slot, place, h, 0));
      std::memcpy(core::address(p_.ring.decay, slot, place, h), head.decays + e, sizeof(float));
    }
  }

  const core::DeltaRuleProblem& p_;
  const ReplayScratch plan_;
  float* const memory_;
};

}  // namespace

size_t replay_step_workspace(const core::DeltaRuleProblem& problem) noexcept {
  return static_cast<size_t>(workers_of(problem) * ReplayScratch(problem).size) * sizeof(float);
}

void replay_step(const core::DeltaRuleProblem& problem, float* memory) noexcept {
  ReplayItems items(problem, memory);
  parallel_for(heads_of(problem), static_cast<int>(workers_of(problem)), items);
}

}  // namespace sluice::cpu
