// Measures that a batch of verify, decode and prefill rows is served as docs/api.md says: one call
// for rows of any length, or one layer_decode for verified drafts and one layer_prefill for all
// others, on slices of the same tensors, each writing its own rows. Compared with one call for
// everything.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "check/comparer.hpp"
#include "parity/layer_call.hpp"
#include "parity/naming.hpp"
#include "parity/operator_call.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

using Indices = std::vector<int64_t>;

constexpr int64_t kDrafts = 4;      ///< columns of slots, tokens of a verified sequence at most
constexpr int64_t kVerifyRows = 7;  ///< of two sequences, 3 + 4
constexpr int64_t kSequences =
    7;  ///< two verified, three decoded (one of them padding), two prefilled
const Indices kOffsets = {0, 3, 7, 8, 9, 10, 30, 63};

LayerConfig config(sluice_dtype io) {
  LayerConfig c{.name = "", .B = 1, .T = 64, .H = 2, .HV = 4, .K = 64, .V = 64};
  c.io = c.out = c.core = c.conv_state = io;
  c.L = c.W - 2 + kDrafts;
  return c;
}

/// One batch, its pools, and the two ways to serve it.
class Batch {
 public:
  explicit Batch(const LayerConfig& c) : c_(c), values_(make_layer_values(c)) {}

  /// Every sequence by layer_prefill.
  void in_one_call() {
    sluice_layer_args args = arguments(0, 63);
    const TestTensor offsets = TestTensor::of_indices(kI32, kOffsets);
    const TestTensor slots = TestTensor::of_indices(kI64, {0, 1, 2, 3, -1, 5, 6});
    args.cu_seqlens = offsets.view();
    args.state.read_slots = slots.view();
    run(SLUICE_OP_LAYER_PREFILL, sluice_layer_prefill, args);
  }

  /// Drafts by layer_decode, the others by layer_prefill.
  void in_two_calls() {
    sluice_layer_args args = arguments(0, kVerifyRows);
    const TestTensor drafts = TestTensor::of_indices(kI32, {0, 3, 7});
    // All columns hold the one state that there is; the last column's window is the newest inputs.
    const TestTensor read = columns({0, 0, 0, 0, 1, 1, 1, 1}),
                     write = columns({7, 8, 9, 10, 11, 12, 13, 14});
    const TestTensor accepted = TestTensor::of_indices(kI32, {kDrafts, kDrafts});
    args.cu_seqlens = drafts.view(), args.max_tokens = kDrafts;
    args.state.read_slots = read.view(), args.state.write_slots = write.view();
    args.num_accepted = accepted.view();
    args.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
    run(SLUICE_OP_LAYER_DECODE, sluice_layer_decode, args);

    args = arguments(kVerifyRows, 63 - kVerifyRows);
    const TestTensor others = TestTensor::of_indices(kI32, {0, 1, 2, 3, 23, 56});
    const TestTensor slots = TestTensor::of_indices(kI64, {2, 3, -1, 5, 6});
    args.cu_seqlens = others.view();
    args.state.read_slots = slots.view();
    run(SLUICE_OP_LAYER_PREFILL, sluice_layer_prefill, args);
  }

  Array out() const { return out_.values(); }
  /// Rows of the state pool, in this order.
  Array states(const Indices& slots) const { return take(state_.values(), 0, slots); }
  Array conv(const Indices& slots) const { return take(conv_.values(), 0, slots); }

 private:
  static TestTensor columns(const Indices& slots) {
    TestTensor table(kI64, {2, kDrafts});
    Array values({2, kDrafts});
    std::copy(slots.begin(), slots.end(), values.values.begin());
    table.assign(values);
    return table;
  }

  static sluice_tensor rows(sluice_tensor t, int64_t first, int64_t count) {
    t.data = static_cast<std::byte*>(t.data) + first * t.stride[1] * (t.dtype.bits / 8);
    t.shape[1] = count;
    return t;
  }

  sluice_layer_args arguments(int64_t first, int64_t count) const {
    sluice_layer_args args{};
    args.struct_size = sizeof args;
    args.qkv = rows(qkv_.view(), first, count), args.z = rows(z_.view(), first, count);
    args.b = rows(b_.view(), first, count), args.a = rows(a_.view(), first, count);
    args.out = rows(out_.view(), first, count);
    args.conv_weight = weight_.view(), args.conv_bias = bias_.view();
    args.A_log = A_log_.view(), args.dt_bias = dt_bias_.view();
    args.norm_weight = norm_weight_.view();
    args.conv_initial = args.conv_final = conv_.view();
    args.state.initial = args.state.final = state_.view();
    args.num_k_heads = c_.H, args.num_v_heads = c_.HV;
    args.head_k_dim = c_.K, args.head_v_dim = c_.V;
    args.gate_activation = SLUICE_ACTIVATION_SILU;
    args.implementation = implementations_under_test().front();
    return args;
  }

  static void run(sluice_op op, int (*function)(const sluice_layer_args*, sluice_workspace, void*),
                  const sluice_layer_args& args) {
    const CallOutcome outcome = call_operator(op, function, args);
    ASSERT_EQ(outcome.code, SLUICE_OK) << outcome.message;
    EXPECT_EQ(outcome.damage, "");
  }

  static constexpr int64_t kSlots = kSequences + 2 * kDrafts;

  LayerConfig c_;
  LayerValues values_;
  TestTensor qkv_{c_.io, values_.qkv}, z_{c_.io, values_.z}, b_{c_.io, values_.b},
      a_{c_.io, values_.a}, weight_{c_.parameters, values_.weight},
      bias_{c_.parameters, values_.bias}, A_log_{kF32, values_.A_log},
      dt_bias_{c_.parameters, values_.dt_bias}, norm_weight_{c_.parameters, values_.norm_weight};
  TestTensor out_{c_.out, {1, 64, c_.HV, c_.V}};
  TestTensor state_{kF32, make_normal({kSlots, c_.HV, c_.K, c_.V}, 31)};
  TestTensor conv_{c_.io, make_normal({kSlots, c_.channels(), c_.L}, 32)};
};

class MixedBatch : public ::testing::TestWithParam<sluice_dtype> {};
INSTANTIATE_TEST_SUITE_P(Layers, MixedBatch, ::testing::Values(kF32, kBF16, kF16),
                         [](const auto& test) { return dtype_name(test.param); });

TEST_P(MixedBatch, TwoCallsAreOneCall) {
  const LayerConfig c = config(GetParam());
  Batch one(c), two(c);
  one.in_one_call();
  two.in_two_calls();
  const double limit = same_dtype(c.io, kF32) ? 1e-5 : same_dtype(c.io, kF16) ? 1e-3 : 1e-2;
  const Tolerance tolerance{limit, 2 * limit, 2 * limit};
  const Array found = two.out(), expected = one.out();
  const Verdict out =
      judge("out", compare_tokens(view_of(found), view_of(expected), kOffsets), tolerance);
  EXPECT_TRUE(out.pass) << out.line;
  // The state after the third and fourth draft, and those of the others.
  const Array states = two.states({9, 14, 2, 3, 5, 6}), same = one.states({0, 1, 2, 3, 5, 6});
  const Verdict state = judge("state", compare_states(view_of(states), view_of(same)), tolerance);
  EXPECT_TRUE(state.pass) << state.line;
  const Indices others = {2, 3, 4, 5, 6};
  EXPECT_TRUE(same_bits(two.conv(others), one.conv(others)));
  // The padded sequence's slot, and rows that belong to nobody.
  EXPECT_TRUE(same_bits(two.states({4}), Batch(c).states({4})));
  EXPECT_EQ(found(0, 9, 1, 3), 0.0);
  EXPECT_TRUE(std::isnan(found(0, 63, 0, 0)));
}

}  // namespace
}  // namespace sluice::check
