// Sessions of layer_decode calls on one replay ring: pools, cursors, and tokens at random.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_RING_LAYER_SESSION_HPP_
#define SLUICE_TESTS_PARITY_RING_LAYER_SESSION_HPP_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "check/generate.hpp"
#include "parity/operator_call.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {

struct RingLayerModel {
  std::string name;
  int64_t H = 1, HV = 2, K = 64, V = 64, L = 16;
  sluice_dtype io = kF32, state = kF32, key = kF32, delta = kF32;
  sluice_state_layout layout = SLUICE_STATE_KV;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_norm_rounding rounding = SLUICE_NORM_ROUND_ONCE;
  /// How convolution states are rolled back: RING by position, SHIFT by num_accepted.
  sluice_conv_state_form form = SLUICE_CONV_STATE_RING;
  bool has_core = true;

  int64_t channels() const { return 2 * H * K + HV * V; }
};

inline void PrintTo(const RingLayerModel& model, std::ostream* out) { *out << model.name; }

/// Tokens of N sequences, T each, packing FLAT.
struct LayerTokens {
  Array qkv, z, b, a;

  LayerTokens(const RingLayerModel& m, int64_t N, int64_t T, uint64_t seed = 0)
      : qkv(make_normal({N, T, m.channels()}, seed + 1)),
        z(make_normal({N, T, m.HV * m.V}, seed + 2)),
        b(make_normal({N, T, m.HV}, seed + 3)),
        a(make_normal({N, T, m.HV}, seed + 4)) {}

  LayerTokens part(const std::vector<int64_t>& rows, int64_t first, int64_t count) const {
    LayerTokens out = *this;
    for (Array* array : {&out.qkv, &out.z, &out.b, &out.a}) {
      *array = take(take(*array, 0, rows), 1, range(first, count));
    }
    return out;
  }
};

/// Pools of both kinds of state and of entries, the cursors of their slots, and calls on them.
/// Plain ones have no ring, and convolution states that shift.
class RingLayerSession {
 public:
  static constexpr int64_t kWidth = 4;

  RingLayerSession(const RingLayerModel& model, int64_t slots, sluice_implementation implementation,
                   bool plain = false)
      : m_(model),
        implementation_(implementation),
        plain_(plain),
        weight_(kF32, make_normal({m_.channels(), kWidth}, 21)),
        bias_(kF32, make_normal({m_.channels()}, 22)),
        A_log_(kF32, make_normal({m_.HV}, 23)),
        dt_bias_(kF32, make_normal({m_.HV}, 24)),
        norm_(kF32, make_normal({m_.V}, 25)),
        pool(m_.state, make_normal({slots, m_.HV, kv() ? m_.K : m_.V, kv() ? m_.V : m_.K}, 8),
             Placement::kPaddedSlots),
        conv(m_.io, Array({slots, m_.channels(), plain ? kWidth - 1 : kWidth - 1 + m_.L / 2})),
        keys(m_.key, make_normal({slots, m_.L, m_.H, m_.K}, 9), Placement::kPaddedSlots),
        deltas(m_.delta, make_normal({slots, m_.L, m_.HV, m_.V}, 10)),
        decays(kF32, make_normal({slots, m_.L, m_.HV}, 11)),
        position(static_cast<size_t>(slots), 5),
        checkpoint(static_cast<size_t>(slots), 5),
        accepted(static_cast<size_t>(slots), 1) {}

  /// out of one call. Checkpoints follow; positions and what was accepted are the caller's.
  Array run(const LayerTokens& tokens, const std::vector<int64_t>& slots,
            const std::vector<int64_t>& offsets = {}, int64_t max_tokens = 0) {
    const TestTensor qkv(m_.io, tokens.qkv), z(m_.io, tokens.z), b(m_.io, tokens.b),
        a(m_.io, tokens.a), read = indices(slots), cu_seqlens = indices(offsets);
    const std::vector<int64_t> heads{tokens.qkv.shape[0], tokens.qkv.shape[1], m_.HV, m_.V};
    const TestTensor out(m_.io, heads), core_out(m_.io, heads);
    sluice_layer_args args{};
    args.struct_size = sizeof args;
    args.qkv = qkv.view(), args.z = z.view(), args.b = b.view(), args.a = a.view();
    args.conv_weight = weight_.view(), args.conv_bias = bias_.view();
    args.A_log = A_log_.view(), args.dt_bias = dt_bias_.view(), args.norm_weight = norm_.view();
    args.out = out.view();
    if (m_.has_core) args.core_out = core_out.view();
    args.conv_initial = conv.view(), args.state.initial = pool.view();
    args.state.layout = m_.layout, args.state.read_slots = read.view();
    args.num_k_heads = m_.H, args.num_v_heads = m_.HV;
    args.head_k_dim = m_.K, args.head_v_dim = m_.V;
    args.head_map = m_.head_map, args.rounding = m_.rounding;
    args.gate_activation = SLUICE_ACTIVATION_SILU;
    args.implementation = implementation_;
    if (!offsets.empty()) args.cu_seqlens = cu_seqlens.view(), args.max_tokens = max_tokens;
    const TestTensor p = indices(cursors(position, slots)), c = indices(cursors(checkpoint, slots)),
                     last = indices(cursors(accepted, slots)),
                     next = indices(std::vector<int64_t>(slots.size(), -77));
    if (!plain_) {
      args.ring = {
          keys.view(), deltas.view(), decays.view(), p.view(), c.view(), next.view(), 0, 0};
      args.conv_state_form = m_.form;
      if (m_.form == SLUICE_CONV_STATE_RING) {
        args.ring_position = p.view();
      } else {
        args.num_accepted = last.view();
      }
    }
    const CallOutcome outcome = call_operator(SLUICE_OP_LAYER_DECODE, sluice_layer_decode, args);
    EXPECT_EQ(outcome.code, SLUICE_OK) << outcome.message;
    EXPECT_EQ(outcome.damage, "");
    EXPECT_TRUE(out.guards_intact() && core_out.guards_intact() && pool.guards_intact() &&
                conv.guards_intact() && keys.guards_intact() && deltas.guards_intact() &&
                decays.guards_intact() && next.guards_intact());
    kernel = outcome.kernel;
    core = core_out.values();
    if (!plain_) follow(slots, next.values());
    return out.values();
  }
  /// The memory of another session.
  void copy(const RingLayerSession& other) {
    pool.assign(other.pool.values()), conv.assign(other.conv.values());
    keys.assign(other.keys.values()), deltas.assign(other.deltas.values());
    decays.assign(other.decays.values());
    position = other.position, checkpoint = other.checkpoint, accepted = other.accepted;
  }
  void accept(int64_t slot, int64_t tokens) {
    position[static_cast<size_t>(slot)] += tokens;
    accepted[static_cast<size_t>(slot)] = tokens;
  }

 private:
  bool kv() const { return m_.layout == SLUICE_STATE_KV; }
  static TestTensor indices(const std::vector<int64_t>& values) {
    return TestTensor::of_indices(kI32, values);
  }
  static std::vector<int64_t> cursors(const std::vector<int64_t>& of_slot,
                                      const std::vector<int64_t>& slots) {
    std::vector<int64_t> out;
    for (const int64_t slot : slots) {
      out.push_back(slot < 0 ? 0 : of_slot[static_cast<size_t>(slot)]);
    }
    return out;
  }
  void follow(const std::vector<int64_t>& slots, const Array& next) {
    for (size_t n = 0; n < slots.size(); ++n) {
      const auto found = static_cast<int64_t>(next.values[n]);
      if (slots[n] < 0) {
        EXPECT_EQ(found, -77) << "next_checkpoint of a padded row";
      } else {
        checkpoint[static_cast<size_t>(slots[n])] = found;
      }
    }
  }
  RingLayerModel m_;
  sluice_implementation implementation_;
  bool plain_;
  TestTensor weight_, bias_, A_log_, dt_bias_, norm_;

 public:
  TestTensor pool, conv, keys, deltas, decays;
  std::vector<int64_t> position, checkpoint, accepted;  ///< of slots
  Array core;                                           ///< core_out of the last call
  std::string kernel;
};

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_RING_LAYER_SESSION_HPP_
