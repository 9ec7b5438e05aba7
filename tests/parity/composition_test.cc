// Measures that a layer operator on a backend is what its documentation says: the convolution, the
// gated delta rule and the gated norm one after the other; and that packings, splits and optional
// outputs change nothing. Composed of public calls on the same values.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parity/layer_call.hpp"
#include "parity/naming.hpp"
#include "parity/operator_call.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

/// Channels first .. first + heads * width - 1 of [B,T,D] as [B,T,heads,width].
sluice_tensor heads_of(sluice_tensor t, int64_t first, int64_t heads, int64_t width) {
  t.data = static_cast<std::byte*>(t.data) + first * (t.dtype.bits / 8);
  t.rank = 4;
  t.shape[2] = heads, t.shape[3] = width;
  t.stride[2] = width, t.stride[3] = 1;
  return t;
}

sluice_implementation backend() { return implementations_under_test().front(); }

template <class Args>
void call(sluice_op op, int (*function)(const Args*, sluice_workspace, void*), Args args) {
  args.struct_size = sizeof args;
  args.implementation = backend();
  const CallOutcome outcome = call_operator(op, function, args);
  ASSERT_EQ(outcome.code, SLUICE_OK) << outcome.message;
  EXPECT_EQ(outcome.damage, "");
}

/// core_out and out by separate operators, without states.
LayerResult compose(const LayerConfig& c) {
  const LayerValues values = make_layer_values(c);
  const TestTensor qkv(c.io, values.qkv), z(c.io, values.z), b(c.io, values.b), a(c.io, values.a);
  const TestTensor weight(c.parameters, values.weight), bias(c.parameters, values.bias);
  const TestTensor A_log(kF32, values.A_log), dt_bias(c.parameters, values.dt_bias);
  const TestTensor norm_weight(c.parameters, values.norm_weight);
  const TestTensor convolved(c.io, values.qkv.shape);
  const std::vector<int64_t> heads{c.batch(), c.rows(), c.HV, c.V};
  const TestTensor core(c.rounding == SLUICE_NORM_ROUND_ONCE ? kF32 : c.out, heads);
  const TestTensor out(c.out, heads);

  sluice_causal_conv1d_args conv{};
  conv.x = qkv.view(), conv.weight = weight.view(), conv.bias = bias.view();
  conv.out = convolved.view(), conv.activation = SLUICE_ACTIVATION_SILU;
  call(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, conv);

  sluice_chunk_forward_args delta{};
  const int64_t keys = c.H * c.K;
  delta.q = heads_of(convolved.view(), 0, c.H, c.K);
  delta.k = heads_of(convolved.view(), keys, c.H, c.K);
  delta.v = heads_of(convolved.view(), 2 * keys, c.HV, c.V);
  delta.gate = a.view(), delta.beta = b.view(), delta.o = core.view();
  delta.A_log = A_log.view(), delta.dt_bias = dt_bias.view();
  delta.options.gate_space = SLUICE_GATE_RAW, delta.options.beta_space = SLUICE_BETA_LOGIT;
  delta.options.qk_norm = SLUICE_QK_NORM_L2, delta.options.l2norm_eps = c.l2norm_eps;
  delta.options.eigenvalues = c.eigenvalues, delta.options.head_map = c.head_map;
  delta.options.scale = c.scale.value_or(0.0), delta.options.scale_mode = c.scale ? 1 : 0;
  call(SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward, delta);

  sluice_gated_rms_norm_args norm{};
  norm.x = core.view(), norm.weight = norm_weight.view(), norm.out = out.view();
  norm.z = heads_of(z.view(), 0, c.HV, c.V);
  norm.activation = c.gate_activation, norm.eps = c.norm_eps;
  norm.rounding =
      c.rounding == SLUICE_NORM_ROUND_HF ? SLUICE_NORM_ROUND_HF : SLUICE_NORM_ROUND_ONCE;
  call(SLUICE_OP_GATED_RMS_NORM, sluice_gated_rms_norm, norm);
  LayerResult result;
  result.core = round_to(c.core, core.values()), result.out = out.values();
  return result;
}

LayerConfig config(sluice_dtype io, sluice_norm_rounding rounding) {
  LayerConfig c{.name = "", .T = 90, .H = 2, .HV = 6, .K = 32, .V = 24};
  c.io = c.out = c.core = c.conv_state = io, c.rounding = rounding;
  c.slots = Slots::kNone;
  return c;
}

class Composition : public ::testing::TestWithParam<std::tuple<sluice_dtype, int>> {
 protected:
  LayerConfig base() const {
    return config(std::get<0>(GetParam()),
                  static_cast<sluice_norm_rounding>(std::get<1>(GetParam())));
  }
};

std::string config_name(const ::testing::TestParamInfo<std::tuple<sluice_dtype, int>>& test) {
  return named(dtype_name(std::get<0>(test.param)), "_rounding", std::get<1>(test.param));
}
INSTANTIATE_TEST_SUITE_P(Layers, Composition,
                         ::testing::Combine(::testing::Values(kF32, kBF16, kF16),
                                            ::testing::Range(0, 3)),
                         config_name);

TEST_P(Composition, PrefillIsItsOperatorsInTurn) {
  LayerConfig c = base();
  c.states = false;
  const LayerResult composed = compose(c);
  for (const auto packing : {SLUICE_PACKING_FLAT, SLUICE_PACKING_INTERLEAVED}) {
    c.packing = packing;
    const LayerResult layer = run_layer(c, backend());
    ASSERT_EQ(layer.code, SLUICE_OK) << layer.message;
    EXPECT_TRUE(same_bits(layer.core, composed.core)) << packing;
    EXPECT_TRUE(same_bits(layer.out, composed.out)) << packing;
  }
}

TEST_P(Composition, OptionsReachTheOperatorsInTurn) {
  LayerConfig c = base();
  c.states = false;
  c.eigenvalues = SLUICE_EIGENVALUES_NEGATIVE, c.head_map = SLUICE_HEAD_MAP_CYCLIC;
  c.gate_activation = SLUICE_ACTIVATION_SIGMOID;
  c.scale = 0.7, c.l2norm_eps = 0.3, c.norm_eps = 0.2;
  const LayerResult composed = compose(c), layer = run_layer(c, backend());
  ASSERT_EQ(layer.code, SLUICE_OK) << layer.message;
  EXPECT_TRUE(same_bits(layer.core, composed.core));
  EXPECT_TRUE(same_bits(layer.out, composed.out));
}

TEST_P(Composition, PackingsAgree) {
  for (const auto op : {SLUICE_OP_LAYER_PREFILL, SLUICE_OP_LAYER_DECODE}) {
    LayerConfig c = base();
    c.op = op, c.T = op == SLUICE_OP_LAYER_DECODE ? 4 : 90;
    const LayerResult flat = run_layer(c, backend());
    c.packing = SLUICE_PACKING_INTERLEAVED;
    const LayerResult interleaved = run_layer(c, backend());
    ASSERT_EQ(flat.code, SLUICE_OK) << flat.message;
    ASSERT_EQ(interleaved.code, SLUICE_OK) << interleaved.message;
    EXPECT_TRUE(same_bits(flat.out, interleaved.out));
    EXPECT_TRUE(same_bits(flat.core, interleaved.core));
    EXPECT_TRUE(same_bits(flat.state_initial, interleaved.state_initial));
    EXPECT_TRUE(same_bits(flat.conv_initial, interleaved.conv_initial));
  }
}

TEST_P(Composition, CoreOutputIsOptional) {
  for (const auto op : {SLUICE_OP_LAYER_PREFILL, SLUICE_OP_LAYER_DECODE}) {
    LayerConfig c = base();
    c.op = op, c.T = op == SLUICE_OP_LAYER_DECODE ? 4 : 90;
    const LayerResult with = run_layer(c, backend());
    c.has_core = false;
    const LayerResult without = run_layer(c, backend());
    EXPECT_TRUE(same_bits(with.out, without.out));
    EXPECT_TRUE(same_bits(with.state_initial, without.state_initial));
  }
}

/// The layer over tokens first .. first + count - 1 on pools that live on between calls.
class Session {
 public:
  explicit Session(const LayerConfig& c)
      : c_(c),
        values_(make_layer_values(c)),
        weight_(c.parameters, values_.weight),
        bias_(c.parameters, values_.bias),
        A_log_(kF32, values_.A_log),
        dt_bias_(c.parameters, values_.dt_bias),
        norm_weight_(c.parameters, values_.norm_weight),
        state_(kF32, {c.B, c.HV, c.K, c.V}),
        conv_(c.io, {c.B, c.channels(), c.W - 1}) {
    state_.fill(0.0);
    conv_.fill(0.0);
  }

  Array run(int (*function)(const sluice_layer_args*, sluice_workspace, void*), sluice_op op,
            int64_t first, int64_t count) {
    const auto part = [&](const Array& array) {
      return TestTensor(c_.io, take(array, 1, range(first, count)));
    };
    const TestTensor qkv = part(values_.qkv), z = part(values_.z), b = part(values_.b),
                     a = part(values_.a), out(c_.out, {c_.B, count, c_.HV, c_.V});
    sluice_layer_args args{};
    args.qkv = qkv.view(), args.z = z.view(), args.b = b.view(), args.a = a.view();
    args.conv_weight = weight_.view(), args.conv_bias = bias_.view();
    args.A_log = A_log_.view(), args.dt_bias = dt_bias_.view();
    args.norm_weight = norm_weight_.view(), args.out = out.view();
    args.conv_initial = args.conv_final = conv_.view();
    args.state.initial = args.state.final = state_.view();
    args.num_k_heads = c_.H, args.num_v_heads = c_.HV;
    args.head_k_dim = c_.K, args.head_v_dim = c_.V;
    args.gate_activation = c_.gate_activation, args.rounding = c_.rounding;
    call(op, function, args);
    return out.values();
  }

  Array state() const { return state_.values(); }
  Array conv() const { return conv_.values(); }

 private:
  const LayerConfig& c_;
  LayerValues values_;
  TestTensor weight_, bias_, A_log_, dt_bias_, norm_weight_, state_, conv_;
};

/// What rows and states may differ by. WHY not one number: other parts are other chunks. On the CPU
/// all that is between the roundings of rows is float32; tensor cores round operands of a chunk to
/// 16 bits, and two such results are as far from each other as from the exact one.
struct Alike {
  double rows, states;
};
Alike limits(const LayerConfig& c) {
  const bool half = same_dtype(c.io, kF16), single = same_dtype(c.io, kF32);
  if (single) return {1e-5, 1e-5};
  if (backend() != SLUICE_IMPL_CUDA) return {half ? 3e-4 : 2e-3, 1e-5};
  return half ? Alike{1e-3, 1e-3} : Alike{5e-3, 5e-3};
}

/// Rows and states of a session in parts against those of one in a piece.
void expect_alike(const LayerConfig& c, const std::vector<Array>& rows, const Array& expected,
                  const Session& parts, const Session& whole) {
  const auto [limit, state_limit] = limits(c);
  const Array found = join(rows, 1), state = parts.state(), expected_state = whole.state();
  const Verdict out = judge("out", compare_tokens(view_of(found), view_of(expected)),
                            {limit, 2 * limit, 2 * limit});
  EXPECT_TRUE(out.pass) << out.line;
  const Verdict states = judge("state", compare_states(view_of(state), view_of(expected_state)),
                               {state_limit, 2 * state_limit, 0});
  EXPECT_TRUE(states.pass) << states.line;
  EXPECT_TRUE(same_bits(parts.conv(), whole.conv()));
}

constexpr auto kPrefill = SLUICE_OP_LAYER_PREFILL, kDecode = SLUICE_OP_LAYER_DECODE;

TEST_P(Composition, PrefillInParts) {
  LayerConfig c = base();
  c.T = 80;
  Session whole(c), parts(c);
  const Array expected = whole.run(sluice_layer_prefill, kPrefill, 0, 80);
  std::vector<Array> rows;
  int64_t first = 0;
  for (const int64_t count : {64, 9, 1, 2, 4}) {
    rows.push_back(parts.run(sluice_layer_prefill, kPrefill, first, count));
    first += count;
  }
  EXPECT_TRUE(same_bits(rows[0], take(expected, 1, range(0, 64))));
  expect_alike(c, rows, expected, parts, whole);
}

TEST_P(Composition, PrefillInPartsThenDecode) {
  LayerConfig c = base();
  c.T = 80;
  Session whole(c), parts(c);
  const Array expected = whole.run(sluice_layer_prefill, kPrefill, 0, 80);
  std::vector<Array> rows;
  rows.push_back(parts.run(sluice_layer_prefill, kPrefill, 0, 64));
  rows.push_back(parts.run(sluice_layer_prefill, kPrefill, 64, 9));
  rows.push_back(parts.run(sluice_layer_decode, kDecode, 73, 1));
  rows.push_back(parts.run(sluice_layer_decode, kDecode, 74, 6));
  expect_alike(c, rows, expected, parts, whole);
}

}  // namespace
}  // namespace sluice::check
