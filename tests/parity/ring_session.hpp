// Sessions of recurrent_step calls on one replay ring: pools, cursors, and tokens at random.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_RING_SESSION_HPP_
#define SLUICE_TESTS_PARITY_RING_SESSION_HPP_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/generate.hpp"
#include "parity/operator_call.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {

using SlotList = std::vector<int64_t>;

struct RingModel {
  std::string name;
  int64_t H = 1, HV = 2, K = 64, V = 64, L = 16;
  sluice_dtype io = kF32, state = kF32, key = kF32, delta = kF32;
  sluice_state_layout layout = SLUICE_STATE_KV;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  bool raw = false;  ///< raw gates and beta logits of io's type, as models have them
};

inline void PrintTo(const RingModel& model, std::ostream* out) { *out << model.name; }

/// Tokens of N sequences, T each; log gates, beta logits.
struct RingTokens {
  Array q, k, v, gate, beta;

  RingTokens(const RingModel& m, int64_t N, int64_t T, uint64_t seed = 0)
      : q(make_normal({N, T, m.H, m.K}, seed + 1)),
        k(make_normal({N, T, m.H, m.K}, seed + 2)),
        v(make_normal({N, T, m.HV, m.V}, seed + 3)),
        gate(make_gates(GateProfile::kMixed, {N, T, m.HV}, seed + 4)),
        beta(make_normal({N, T, m.HV}, seed + 5)) {}

  RingTokens part(const SlotList& rows, int64_t first, int64_t count) const {
    RingTokens out = *this;
    for (Array* array : {&out.q, &out.k, &out.v, &out.gate, &out.beta}) {
      *array = take(take(*array, 0, rows), 1, range(first, count));
    }
    return out;
  }
};

/// What a call may leave to its default.
struct RingOptions {
  bool always = false;
  std::vector<int64_t> fresh = {};    ///< sequences with has_initial_state false
  std::vector<int64_t> offsets = {};  ///< of packed rows; then max_tokens holds
  int64_t max_tokens = 0;
};

inline TestTensor slot_indices(const SlotList& values) {
  return TestTensor::of_indices(kI32, values);
}

/// Pools of states and entries, the cursors of their slots, and calls on them.
class RingSession {
 public:
  RingSession(const RingModel& model, int64_t slots,
              sluice_implementation implementation = implementations_under_test().front())
      : m_(model),
        implementation_(implementation),
        pool(m_.state, make_normal({slots, m_.HV, kv() ? m_.K : m_.V, kv() ? m_.V : m_.K}, 8),
             Placement::kPaddedSlots),
        keys(m_.key, make_normal({slots, m_.L, m_.H, m_.K}, 9), Placement::kPaddedSlots),
        deltas(m_.delta, make_normal({slots, m_.L, m_.HV, m_.V}, 10)),
        decays(kF32, make_normal({slots, m_.L, m_.HV}, 11)),
        position(static_cast<size_t>(slots), 5),
        checkpoint(static_cast<size_t>(slots), 5) {}

  /// o of one call, without a ring where `plain`. Checkpoints follow; positions are the caller's.
  Array run(const RingTokens& tokens, const SlotList& slots, const RingOptions& options = {},
            bool plain = false) {
    const TestTensor q(m_.io, tokens.q), k(m_.io, tokens.k), v(m_.io, tokens.v),
        gate(m_.raw ? m_.io : kF32, tokens.gate), beta(m_.raw ? m_.io : kF32, tokens.beta),
        A_log(kF32, make_normal({m_.HV}, 12)), dt_bias(kF32, make_normal({m_.HV}, 13)),
        o(m_.io, tokens.v.shape), read = slot_indices(slots),
                                  offsets = slot_indices(options.offsets);
    std::vector<int64_t> mask(slots.size(), 1);
    for (const int64_t n : options.fresh) mask[static_cast<size_t>(n)] = 0;
    const TestTensor has_initial = TestTensor::of_indices(kBool, mask);
    sluice_recurrent_step_args args{};
    args.struct_size = sizeof args;
    args.q = q.view(), args.k = k.view(), args.v = v.view(), args.o = o.view();
    args.gate = gate.view(), args.beta = beta.view();
    args.state.initial = pool.view(), args.state.layout = m_.layout;
    args.state.read_slots = read.view(), args.state.has_initial_state = has_initial.view();
    if (m_.raw) {
      args.options.gate_space = SLUICE_GATE_RAW, args.A_log = A_log.view(),
      args.dt_bias = dt_bias.view();
    }
    args.options.beta_space = SLUICE_BETA_LOGIT, args.options.qk_norm = SLUICE_QK_NORM_L2;
    if (m_.rule == SLUICE_RULE_LINEAR_ATTENTION) {
      args.options.rule = m_.rule, args.beta = {}, args.options.beta_space = SLUICE_BETA_VALUE;
    }
    args.options.head_map = m_.head_map, args.implementation = implementation_;
    if (!options.offsets.empty()) {
      args.cu_seqlens = offsets.view(), args.max_tokens = options.max_tokens;
    }
    const TestTensor p = slot_indices(cursors(position, slots)),
                     c = slot_indices(cursors(checkpoint, slots)),
                     next = slot_indices(SlotList(slots.size(), -77));
    if (!plain) {
      args.ring = {keys.view(),
                   deltas.view(),
                   decays.view(),
                   p.view(),
                   c.view(),
                   next.view(),
                   options.always ? SLUICE_RING_FOLD_ALWAYS : SLUICE_RING_FOLD_AUTO,
                   0};
    }
    const CallOutcome outcome =
        call_operator(SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step, args);
    EXPECT_EQ(outcome.code, SLUICE_OK) << outcome.message;
    EXPECT_EQ(outcome.damage, "");
    EXPECT_TRUE(o.guards_intact() && pool.guards_intact() && keys.guards_intact() &&
                deltas.guards_intact() && decays.guards_intact() && next.guards_intact());
    kernel = outcome.kernel;
    if (!plain) follow(slots, next.values());
    return o.values();
  }
  /// The memory of another session.
  void copy(const RingSession& other) {
    pool.assign(other.pool.values()), keys.assign(other.keys.values());
    deltas.assign(other.deltas.values()), decays.assign(other.decays.values());
    position = other.position, checkpoint = other.checkpoint;
  }
  Array states(const SlotList& slots) const { return take(pool.values(), 0, slots); }
  int64_t live(int64_t slot) const { return at(position, slot) - at(checkpoint, slot); }
  void accept(int64_t slot, int64_t tokens) { position[static_cast<size_t>(slot)] += tokens; }

 private:
  bool kv() const { return m_.layout == SLUICE_STATE_KV; }
  static int64_t at(const std::vector<int64_t>& list, int64_t slot) {
    return list[static_cast<size_t>(slot)];
  }
  /// Padding has no cursor, nor has what lies past the pool.
  static bool exists(const std::vector<int64_t>& list, int64_t slot) {
    return slot >= 0 && slot < static_cast<int64_t>(list.size());
  }
  static SlotList cursors(const std::vector<int64_t>& of_slot, const SlotList& slots) {
    SlotList out;
    for (const int64_t slot : slots) out.push_back(exists(of_slot, slot) ? at(of_slot, slot) : -99);
    return out;
  }
  void follow(const SlotList& slots, const Array& next) {
    for (size_t n = 0; n < slots.size(); ++n) {
      const auto found = static_cast<int64_t>(next.values[n]);
      if (!exists(checkpoint, slots[n])) {
        EXPECT_EQ(found, -77) << "next_checkpoint of a padded row";
      } else {
        checkpoint[static_cast<size_t>(slots[n])] = found;
      }
    }
  }
  RingModel m_;
  sluice_implementation implementation_;

 public:
  TestTensor pool, keys, deltas, decays;
  std::vector<int64_t> position, checkpoint;  ///< of slots
  std::string kernel;
};

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_RING_SESSION_HPP_
