// Gives one view of a call after the other strides of its own, optional views among them: results
// have the bits of dense views, or the stride is refused by name.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <list>

#include "check/generate.hpp"
#include "check/runs.hpp"
#include "parity/operator_call.hpp"
#include "parity/sequences.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kN = 3, kT = 75, kH = 2, kHV = 4, kK = 64, kV = 64, kSlots = 8;
constexpr int64_t kD = 2 * kH * kK + kHV * kV;

/// Views of a call and the memory behind them.
class Views {
 public:
  sluice_tensor random(std::vector<int64_t> shape, sluice_dtype dtype = kBF16) {
    return keep(TestTensor(dtype, make_normal(std::move(shape), ++seed_)));
  }
  sluice_tensor out(std::vector<int64_t> shape, sluice_dtype dtype = kBF16) {
    return keep(TestTensor(dtype, std::move(shape)));
  }
  sluice_tensor integers(const std::vector<int64_t>& values, sluice_dtype dtype = kI32) {
    return keep(TestTensor::of_indices(dtype, values));
  }
  sluice_tensor table(const std::vector<int64_t>& values, int64_t columns) {
    Array array({static_cast<int64_t>(values.size()) / columns, columns});
    std::copy(values.begin(), values.end(), array.values.begin());
    return keep(TestTensor(kI32, array));
  }

  /// The elements of a view once more, all of them apart, or rows, slots and the like.
  sluice_tensor spread(const sluice_tensor& view, bool inner) {
    sluice_tensor out = view;
    int outer = 0;
    while (outer + 1 < view.rank && view.shape[outer] == 1) ++outer;
    int64_t extent = inner ? 2 : 1;
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      constexpr int64_t kGap = 24;  // whole packs of 16 bytes
      if (axis == outer && (!inner || view.rank == 1)) extent += kGap;
      out.stride[axis] = extent;
      extent *= std::max<int64_t>(view.shape[axis], 1);
    }
    const size_t width = view.dtype.bits / 8u;
    TestTensor& memory =
        tensors_.emplace_back(sluice_dtype{1, 8}, std::vector<int64_t>{extent * int64_t(width)});
    out.data = memory.view().data;
    const Array values = to_array(view);
    store_elements(out, values.values.data());
    return out;
  }

 private:
  sluice_tensor keep(TestTensor tensor) {
    tensors_.push_back(std::move(tensor));
    return tensors_.back().view();
  }

  std::list<TestTensor> tensors_;
  uint64_t seed_ = 0;
};

const std::vector<int64_t> kOffsets = {0, 40, 40, 70}, kRead = {5, 1, 3}, kWritten = {0, 2, 7};

template <class Args>
Args common() {
  Args a{};
  a.struct_size = sizeof a;
  a.implementation = implementations_under_test().front();
  return a;
}

sluice_state_io states(Views& v) {
  sluice_state_io s{};
  const std::vector<int64_t> pool{kSlots, kHV, kK, kV};
  s.initial = v.random(pool, kF32), s.final = v.out(pool, kF32);
  s.read_slots = v.integers(kRead), s.write_slots = v.integers(kWritten);
  s.has_initial_state = v.integers({1, 0, 1}, kBool);
  return s;
}

template <class Args>
void fill_rows(Views& v, int64_t B, int64_t T, Args* a) {
  a->q = v.random({B, T, kH, kK}), a->k = v.random({B, T, kH, kK});
  a->v = v.random({B, T, kHV, kV});
  a->gate = v.random({B, T, kHV}, kF32), a->beta = v.random({B, T, kHV}, kF32);
  a->A_log = v.random({kHV}, kF32), a->dt_bias = v.random({kHV}, kF32);
  a->options.gate_space = SLUICE_GATE_RAW, a->options.beta_space = SLUICE_BETA_LOGIT;
  a->options.qk_norm = SLUICE_QK_NORM_L2;
}

sluice_chunk_forward_args chunk_forward(Views& v) {
  auto a = common<sluice_chunk_forward_args>();
  fill_rows(v, 1, kT, &a);
  a.o = v.out({1, kT, kHV, kV}), a.cu_seqlens = v.integers({0, 70, 70, 74}), a.state = states(v);
  a.checkpoints = v.out({4, kHV, kK, kV}, kF32), a.checkpoint_every = 64;
  a.checkpoint_slots = v.table({2, -1, 0}, 1);
  return a;
}

sluice_recurrent_step_args accepted_step(Views& v) {
  auto a = common<sluice_recurrent_step_args>();
  fill_rows(v, kN, 2, &a);
  a.o = v.out({kN, 2, kHV, kV}), a.state = states(v);
  a.state.read_slots = v.table({5, 1, 3, 6, 4, 4}, 2);
  a.state.write_slots = v.table({0, 2, 7, -1, -1, 5}, 2);
  a.state_writes = SLUICE_STATE_WRITE_PER_TOKEN;
  a.num_accepted = v.integers({2, 1, 2});
  return a;
}

sluice_recurrent_step_args ring_step(Views& v) {
  auto a = common<sluice_recurrent_step_args>();
  fill_rows(v, kN, 2, &a);
  a.o = v.out({kN, 2, kHV, kV}), a.state = states(v);
  a.state.final = a.state.write_slots = {};
  constexpr int64_t kL = 8;
  a.ring.k = v.random({kSlots, kL, kH, kK}), a.ring.delta = v.random({kSlots, kL, kHV, kV});
  a.ring.decay = v.random({kSlots, kL, kHV}, kF32);
  a.ring.position = v.integers({9, 4, 7}), a.ring.checkpoint = v.integers({5, 4, 6});
  a.ring.next_checkpoint = v.integers({0, 0, 0});
  return a;
}

sluice_causal_conv1d_args convolution(Views& v) {
  auto a = common<sluice_causal_conv1d_args>();
  a.x = v.random({1, kT, kD}), a.weight = v.random({kD, 4}), a.bias = v.random({kD});
  a.out = v.out({1, kT, kD}), a.cu_seqlens = v.integers(kOffsets);
  a.state.initial = v.random({kSlots, kD, 3}), a.state.final = v.out({kSlots, kD, 3});
  a.state.read_slots = v.integers(kRead), a.state.write_slots = v.integers(kWritten);
  a.state.has_initial_state = v.integers({1, 0, 1}, kBool);
  a.activation = SLUICE_ACTIVATION_SILU;
  return a;
}

sluice_causal_conv1d_args ring_convolution(Views& v) {
  sluice_causal_conv1d_args a = convolution(v);
  a.state.form = SLUICE_CONV_STATE_RING, a.state.ring_position = v.integers({7, 0, 3});
  return a;
}

sluice_causal_conv1d_args accepted_convolution(Views& v) {
  sluice_causal_conv1d_args a = convolution(v);
  a.x = v.random({kN, 2, kD}), a.out = v.out({kN, 2, kD}), a.cu_seqlens = {};
  a.state.initial = v.random({kSlots, kD, 4}), a.state.final = v.out({kSlots, kD, 4});
  a.state.num_accepted = v.integers({1, 2, 1});
  return a;
}

sluice_gated_rms_norm_args norm(Views& v) {
  auto a = common<sluice_gated_rms_norm_args>();
  a.x = v.random({1, kT, kHV, kV}), a.z = v.random({1, kT, kHV, kV});
  a.weight = v.random({kV}), a.out = v.out({1, kT, kHV, kV});
  a.activation = SLUICE_ACTIVATION_SILU;
  return a;
}

sluice_layer_args layer(Views& v, int64_t T) {
  auto a = common<sluice_layer_args>();
  a.qkv = v.random({1, T, kD}), a.z = v.random({1, T, kHV * kV});
  a.b = v.random({1, T, kHV}), a.a = v.random({1, T, kHV});
  a.conv_weight = v.random({kD, 4}), a.conv_bias = v.random({kD});
  a.A_log = v.random({kHV}), a.dt_bias = v.random({kHV}), a.norm_weight = v.random({kV});
  a.out = v.out({1, T, kHV, kV}), a.core_out = v.out({1, T, kHV, kV});
  a.conv_initial = v.random({kSlots, kD, 3}), a.conv_final = v.out({kSlots, kD, 3});
  a.state = states(v);
  a.num_k_heads = kH, a.num_v_heads = kHV, a.head_k_dim = kK, a.head_v_dim = kV;
  a.gate_activation = SLUICE_ACTIVATION_SILU;
  return a;
}

sluice_layer_args prefill_layer(Views& v) {
  sluice_layer_args a = layer(v, kT);
  a.cu_seqlens = v.integers(kOffsets);
  return a;
}

sluice_layer_args decode_layer(Views& v) {
  sluice_layer_args a = layer(v, 7);
  a.cu_seqlens = v.integers({0, 2, 3, 6}), a.max_tokens = 3;
  return a;
}

sluice_chunk_stage_args chunk_h(Views& v) {
  auto a = common<sluice_chunk_stage_args>();
  a.stage = SLUICE_STAGE_CHUNK_H;
  a.k = v.random({1, kT, kH, kK}), a.u = v.random({1, kT, kHV, kV});
  a.w = v.random({1, kT, kHV, kK});
  a.gate = {}, a.g_cumsum = {};
  a.v_new = v.out({1, kT, kHV, kV}), a.h = v.out({1, 4, kHV, kK, kV});
  a.cu_seqlens = v.integers(kOffsets), a.state = states(v);
  return a;
}

sluice_chunk_backward_args backward(Views& v) {
  auto a = common<sluice_chunk_backward_args>();
  fill_rows(v, 1, kT, &a);
  const std::vector<int64_t> keys{1, kT, kH, kK}, values{1, kT, kHV, kV}, states{kN, kHV, kK, kV};
  a.cu_seqlens = v.integers(kOffsets), a.initial = v.random(states, kF32);
  a.d_o = v.random(values), a.d_final = v.random(states, kF32);
  a.dq = v.out(keys, kF32), a.dk = v.out(keys, kF32), a.dv = v.out(values, kF32);
  a.dgate = v.out({1, kT, kHV}, kF32), a.dbeta = v.out({1, kT, kHV}, kF32);
  a.dA_log = v.out({kHV}, kF32), a.ddt_bias = v.out({kHV}, kF32);
  a.dinitial = v.out(states, kF32);
  return a;
}

template <class Args>
std::vector<Array> contents(Args& args) {
  std::vector<Array> all;
  for (const sluice_tensor* view : views_of(&args)) {
    all.push_back(view->data != nullptr ? to_array(*view) : Array());
  }
  return all;
}

/// One view after the other; rank 1 must be taken with any stride, others with gaps between the
/// rows or slots.
template <class Args>
void expect_strides(sluice_op op, int (*function)(const Args*, sluice_workspace, void*),
                    Args (*make)(Views&)) {
  Views dense;
  Args plain = make(dense);
  const CallOutcome expected = call_operator(op, function, plain);
  ASSERT_EQ(expected.code, SLUICE_OK) << expected.message;
  const std::vector<Array> wanted = contents(plain);
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const bool inner : {true, false}) {
      Views memory;
      Args args = make(memory);
      sluice_tensor& view = *views_of(&args)[i];
      if (view.data == nullptr) continue;
      view = memory.spread(view, inner);
      const CallOutcome found = call_operator(op, function, args);
      SCOPED_TRACE("view " + std::to_string(i) + (inner ? ", inner" : ", outer"));
      if (inner && view.rank > 1 && found.code != SLUICE_OK) {
        EXPECT_NE(found.message.find("stride"), std::string::npos) << found.message;
        continue;
      }
      ASSERT_EQ(found.code, SLUICE_OK) << found.message;
      EXPECT_EQ(found.damage, "");
      if (found.kernel != expected.kernel) continue;
      const std::vector<Array> seen = contents(args);
      for (size_t j = 0; j < wanted.size(); ++j) {
        EXPECT_TRUE(same_bits(seen[j], wanted[j])) << "content of view " << j;
      }
    }
  }
}

TEST(ViewStrides, ChunkForward) {
  expect_strides(SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward, chunk_forward);
}
TEST(ViewStrides, RecurrentStep) {
  expect_strides(SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step, accepted_step);
  expect_strides(SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step, ring_step);
}
TEST(ViewStrides, CausalConv1d) {
  expect_strides(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, convolution);
  expect_strides(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, ring_convolution);
  expect_strides(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, accepted_convolution);
}
TEST(ViewStrides, GatedRmsNorm) {
  expect_strides(SLUICE_OP_GATED_RMS_NORM, sluice_gated_rms_norm, norm);
}
TEST(ViewStrides, LayerPrefill) {
  expect_strides(SLUICE_OP_LAYER_PREFILL, sluice_layer_prefill, prefill_layer);
}
TEST(ViewStrides, LayerDecode) {
  expect_strides(SLUICE_OP_LAYER_DECODE, sluice_layer_decode, decode_layer);
}
TEST(ViewStrides, ChunkStage) {
  expect_strides(SLUICE_OP_CHUNK_STAGE, sluice_chunk_stage, chunk_h);
}
TEST(ViewStrides, ChunkBackward) {
  expect_strides(SLUICE_OP_CHUNK_BACKWARD, sluice_chunk_backward, backward);
}

}  // namespace
}  // namespace sluice::check
