// Measures what may share memory: outputs with nothing, but for pools in place and slices of one
// buffer that interleave.
// SPDX-License-Identifier: Apache-2.0
#include "core/overlap.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kT = 64, kH = 2, kD = 32, kN = 4;

/// Room for every view, at addresses that no two views share unless a case says so.
class Arena {
 public:
  float* take(int64_t count) {
    float* const start = memory_.data() + used_;
    used_ += static_cast<size_t>(count) + 64;
    return start;
  }
  TensorView floats(const std::initializer_list<int64_t>& shape) {
    return {take(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())),
            shape};
  }
  TensorView indices(const std::vector<int32_t>& values) {
    auto* const at = reinterpret_cast<int32_t*>(take(static_cast<int64_t>(values.size())));
    std::copy(values.begin(), values.end(), at);
    return {at, {static_cast<int64_t>(values.size())}};
  }

 private:
  std::vector<float> memory_ = std::vector<float>(1 << 18);
  size_t used_ = 0;
};

TensorView moved(TensorView view, int64_t elements) {
  view.data = static_cast<std::byte*>(view.data) + elements * (view.dtype.bits / 8);
  return view;
}

struct Prefill {
  Arena arena;
  ChunkForwardArgs args;
  HostWorkspace memory;
  Workspace workspace;

  Prefill() {
    args.q = arena.floats({1, kT, kH, kD});
    args.k = arena.floats({1, kT, kH, kD});
    args.v = arena.floats({1, kT + 1, kH, kD}).sliced(1, 0, kT);
    args.o = arena.floats({1, kT, kH, kD});
    args.gate = arena.floats({1, kT, kH});
    args.beta = arena.floats({1, kT, kH});
    args.cu_seqlens = arena.indices({0, 10, 20, 20, 64});
    args.state.initial = arena.floats({kN + 1, kH, kD, kD});
    args.state.final = arena.floats({kN + 1, kH, kD, kD});
    args.state.read_slots = arena.indices({0, 1, 2, 3});
    args.checkpoints = arena.floats({2, kH, kD, kD});
    args.checkpoint_slots = TensorView(arena.indices({0, -1, -1, -1}));
    args.checkpoint_slots.rank = 2;
    args.checkpoint_slots.shape[1] = args.checkpoint_slots.stride[1] = 1;
    args.checkpoint_every = 64;
    workspace = memory.reserve(workspace_size(args).value.bytes);
  }
};

struct Overlap {
  const char* name;
  std::function<void(Prefill&)> make;
  const char* message;  ///< "" where it is legal
};

void PrintTo(const Overlap& row, std::ostream* out) { *out << row.name; }

constexpr const char* kRule =
    ", expected memory of its own (what a call writes may overlap no other view)";

class OverlapRefusals : public ::testing::TestWithParam<Overlap> {};

TEST_P(OverlapRefusals, OfChunkForward) {
  Prefill call;
  GetParam().make(call);
  const Status status = chunk_forward(call.args, call.workspace);
  const std::string expected = *GetParam().message == '\0'
                                   ? ""
                                   : std::string("chunk_forward: ") + GetParam().message + kRule;
  EXPECT_EQ(std::string(status.message), expected);
  EXPECT_TRUE(supported(SLUICE_OP_CHUNK_FORWARD, call.args).ok()) << "addresses are a call's";
}

const Overlap kOverlaps[] = {
    {"apart", [](Prefill&) {}, ""},
    {"o_one_token_into_v", [](Prefill& p) { p.args.o = moved(p.args.v, kH * kD); },
     "o.data = 256 bytes after v.data"},
    {"o_before_v", [](Prefill& p) { p.args.o = moved(p.args.v, -kH * kD); },
     "o.data = 256 bytes before v.data"},
    {"o_is_gate", [](Prefill& p) { p.args.o.data = p.args.gate.data; },
     "o.data = 0 bytes after gate.data"},
    {"o_is_beta", [](Prefill& p) { p.args.o.data = p.args.beta.data; },
     "o.data = 0 bytes after beta.data"},
    {"states_in_o", [](Prefill& p) { p.args.state.final.data = p.args.o.data; },
     "o.data = 0 bytes after state.final.data"},
    {"pools_one_slot_apart",
     [](Prefill& p) {
       p.args.state.final = p.args.state.initial.sliced(0, 1, kN);
       p.args.state.initial = p.args.state.initial.sliced(0, 0, kN);
     },
     "state.final.data = 8192 bytes after state.initial.data"},
    {"one_pool", [](Prefill& p) { p.args.state.final = p.args.state.initial; }, ""},
    {"checkpoints_in_the_pool",
     [](Prefill& p) {
       p.args.checkpoints = p.args.state.final = p.args.state.initial;
       p.args.checkpoint_slots.data = p.arena.indices({4, -1, -1, -1}).data;
     },
     ""},
    {"checkpoints_inside_the_pool",
     [](Prefill& p) { p.args.checkpoints = p.args.state.final.sliced(0, 1, 2); },
     "checkpoints.data = 8192 bytes after state.final.data"},
    {"checkpoints_of_every_second_slot",
     [](Prefill& p) {
       p.args.checkpoints = p.args.state.final.sliced(0, 0, 2);
       p.args.checkpoints.stride[0] *= 2;
     },
     "checkpoints.data = 0 bytes after state.final.data"},
    {"flags_in_states",
     [](Prefill& p) {
       auto* const inside = static_cast<uint8_t*>(p.args.state.final.data) + 100;
       std::memset(inside, 1, kN);
       p.args.state.has_initial_state = TensorView(inside, {kN});
     },
     "state.final.data = 100 bytes before state.has_initial_state.data"},
    {"pools_that_interleave",
     [](Prefill& p) {
       const TensorView pages = p.arena.floats({kN + 1, 2 * kH, kD, kD});
       p.args.state.initial = pages.sliced(1, 0, kH);
       p.args.state.final = pages.sliced(1, kH, kH);
     },
     ""},
    {"pools_that_interleave_by_half",
     [](Prefill& p) {
       const TensorView pages = p.arena.floats({kN + 1, 2 * kH, kD, kD});
       p.args.state.initial = pages.sliced(1, 0, kH);
       p.args.state.final = pages.sliced(1, kH - 1, kH);
     },
     "state.final.data = 4096 bytes after state.initial.data"},
    {"offsets_in_o",
     [](Prefill& p) {
       float* const inside = static_cast<float*>(p.args.o.data) + 9;
       std::memcpy(inside, p.args.cu_seqlens.data, 20);
       p.args.cu_seqlens.data = inside;
     },
     "o.data = 36 bytes before cu_seqlens.data"},
    {"slots_in_states",
     [](Prefill& p) {
       float* const inside = static_cast<float*>(p.args.state.final.data) + 100;
       std::memcpy(inside, p.args.state.read_slots.data, 16);
       p.args.state.read_slots.data = inside;
     },
     "state.final.data = 400 bytes before state.read_slots.data"},
    {"workspace_in_o", [](Prefill& p) { p.args.o.data = p.workspace.data; },
     "o.data = 0 bytes after workspace.data"},
    {"workspace_in_k", [](Prefill& p) { p.args.k.data = p.workspace.data; },
     "k.data = 0 bytes after workspace.data"},
    {"fused_rows",
     [](Prefill& p) {
       const TensorView rows = p.arena.floats({1, kT, 4 * kH, kD});
       p.args.q = rows.sliced(2, 0, kH);
       p.args.k = rows.sliced(2, kH, kH);
       p.args.v = rows.sliced(2, 2 * kH, kH);
       p.args.o = rows.sliced(2, 3 * kH, kH);
     },
     ""},
    {"fused_rows_that_touch",
     [](Prefill& p) {
       const TensorView rows = p.arena.floats({1, kT, 4 * kH, kD});
       p.args.v = rows.sliced(2, 2 * kH, kH);
       p.args.o = moved(p.args.v, kD);
     },
     "o.data = 128 bytes after v.data"},
    {"inputs_share", [](Prefill& p) { p.args.k = p.args.v = p.args.q; }, ""},
    {"nothing_written",
     [](Prefill& p) {
       p.args.checkpoints = p.args.checkpoint_slots = {};
       p.args.checkpoint_every = 0;
       p.args.state.final = {};
       p.args.state.initial.data = p.args.q.data;
     },
     ""}};
INSTANTIATE_TEST_SUITE_P(All, OverlapRefusals, ::testing::ValuesIn(kOverlaps),
                         [](const auto& row) { return std::string(row.param.name); });

/// Every byte of every element.
std::set<uintptr_t> bytes_of(const sluice_tensor& t) {
  std::vector<int64_t> at{0};
  for (int axis = 0; axis < t.rank; ++axis) {
    std::vector<int64_t> next;
    for (const int64_t base : at) {
      for (int64_t i = 0; i < t.shape[axis]; ++i) next.push_back(base + i * t.stride[axis]);
    }
    at = std::move(next);
  }
  std::set<uintptr_t> all;
  const int64_t width = t.dtype.bits / 8;
  for (const int64_t element : at) {
    for (int64_t i = 0; i < width; ++i) {
      all.insert(reinterpret_cast<uintptr_t>(t.data) + static_cast<uintptr_t>(element * width + i));
    }
  }
  return all;
}

/// Random small views: what is said to be apart is apart, and most of what is apart is found.
TEST(OverlapOfViews, NothingSharedIsMissed) {
  std::vector<std::byte> memory(1 << 16);
  uint64_t random = 1;
  const auto draw = [&](int64_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((random >> 33) % static_cast<uint64_t>(below));
  };
  const DType types[] = {kFloat32, kBFloat16, kInt64, kUInt8};
  int apart = 0, found = 0;
  for (int round = 0; round < 20000; ++round) {
    TensorView views[2];
    for (TensorView& view : views) {
      view.dtype = types[draw(4)];
      view.data = memory.data() + (1 << 14) + 8 * draw(24);
      view.rank = static_cast<uint16_t>(1 + draw(3));
      for (int axis = 0; axis < view.rank; ++axis) {
        const int64_t strides[] = {1, 2, 3, 4, 8, 16, 24, -4, 0};
        view.shape[axis] = 1 + draw(4);
        view.stride[axis] = strides[draw(9)];
      }
    }
    const std::set<uintptr_t> a = bytes_of(views[0]), b = bytes_of(views[1]);
    const bool shared =
        std::any_of(a.begin(), a.end(), [&](uintptr_t x) { return b.count(x) > 0; });
    const bool said = core::may_share(views[0], views[1]);
    ASSERT_TRUE(said || !shared) << "round " << round;
    apart += shared ? 0 : 1;
    found += said ? 0 : 1;
  }
  EXPECT_GT(apart, 2000);
  EXPECT_GT(found, apart * 9 / 10);
}

TEST(OverlapRefusalsOfSteps, SlotsUnderTheStatesAreRefused) {
  Arena arena;
  RecurrentStepArgs args;
  args.q = args.k = args.v = arena.floats({2, 1, kH, kD});
  args.o = arena.floats({2, 1, kH, kD});
  args.state.initial = arena.floats({3, kH, kD, kD});
  args.state.final = arena.floats({3, kH, kD, kD});
  args.state.read_slots = arena.indices({0, 1});
  HostWorkspace memory;
  const Workspace workspace = memory.reserve(workspace_size(args).value.bytes);
  EXPECT_TRUE(recurrent_step(args, workspace).ok());
  auto* const inside = static_cast<int32_t*>(args.state.final.data);
  inside[0] = 0, inside[1] = 1;
  args.state.read_slots.data = inside;
  EXPECT_EQ(std::string(recurrent_step(args, workspace).message),
            std::string("recurrent_step: state.final.data = 0 bytes after state.read_slots.data") +
                kRule);
}

TEST(OverlapRefusalsOfSteps, PoolsInPlaceGoByTheNameThatTheyWereGiven) {
  Arena arena;
  RecurrentStepArgs args;
  args.q = args.k = args.v = arena.floats({2, 1, kH, kD});
  args.state.initial = arena.floats({3, kH, kD, kD});
  args.o = TensorView(static_cast<float*>(args.state.initial.data) + 100, {2, 1, kH, kD});
  HostWorkspace memory;
  const Workspace workspace = memory.reserve(workspace_size(args).value.bytes);
  EXPECT_EQ(std::string(recurrent_step(args, workspace).message),
            std::string("recurrent_step: o.data = 400 bytes after state.initial.data") + kRule);
}

TEST(OverlapRefusalsOfSteps, PoolsInPlaceAreWritten) {
  Arena arena;
  RecurrentStepArgs args;
  args.k = args.v = arena.floats({2, 1, kH, kD});
  args.o = arena.floats({2, 1, kH, kD});
  args.state.initial = arena.floats({3, kH, kD, kD});
  args.q = TensorView(static_cast<float*>(args.state.initial.data) + 100, {2, 1, kH, kD});
  HostWorkspace memory;
  const Workspace workspace = memory.reserve(workspace_size(args).value.bytes);
  EXPECT_EQ(std::string(recurrent_step(args, workspace).message),
            std::string("recurrent_step: state.initial.data = 400 bytes before q.data") + kRule);
  args.state_writes = StateWrites::kNone;
  EXPECT_TRUE(recurrent_step(args, workspace).ok()) << "then it is only read";
}

TEST(OverlapRefusalsOfRows, KeysAreNotCalledQueries) {
  Arena arena;
  ChunkSummaryArgs args;  // forward: without q
  args.k = arena.floats({1, kT, kH, kD});
  args.v = arena.floats({1, kT, kH, kD});
  args.addend = TensorView(static_cast<float*>(args.k.data) + kD, {1, kH, kD, kD});
  HostWorkspace memory;
  const Workspace workspace = memory.reserve(workspace_size(args).value.bytes);
  EXPECT_EQ(std::string(chunk_summary(args, workspace).message),
            std::string("chunk_summary: addend.data = 128 bytes after k.data") + kRule);
}

/// A layer of one key head and one value head, W = 4.
TEST(OverlapRefusalsOfLayers, OutputsMayNotLieInProjections) {
  Arena arena;
  LayerArgs args;
  args.num_k_heads = args.num_v_heads = 1;
  args.head_k_dim = args.head_v_dim = kD;
  args.qkv = arena.floats({1, 8, 3 * kD});
  args.z = arena.floats({1, 8, kD});
  args.a = arena.floats({1, 8, 1});
  args.b = arena.floats({1, 8, 1});
  args.conv_weight = arena.floats({3 * kD, 4});
  args.A_log = arena.floats({1});
  args.dt_bias = arena.floats({1});
  args.norm_weight = arena.floats({kD});
  args.out = arena.floats({1, 8, 1, kD});
  HostWorkspace memory;
  const Workspace workspace = memory.reserve(layer_prefill_workspace(args).value.bytes);
  EXPECT_TRUE(layer_prefill(args, workspace).ok());
  args.out.data = moved(args.z, kD).data;
  EXPECT_EQ(std::string(layer_prefill(args, workspace).message),
            std::string("layer_prefill: out.data = 128 bytes after z.data") + kRule);
}

TEST(OverlapRefusalsOfRows, TheNormWorksInPlaceAndNowhereElse) {
  Arena arena;
  GatedRmsNormArgs args;
  args.x = arena.floats({8, kD});
  args.z = arena.floats({8, kD});
  args.weight = arena.floats({kD});
  args.out = args.x;
  EXPECT_TRUE(gated_rms_norm(args).ok());
  args.out = moved(args.x, kD);
  EXPECT_EQ(std::string(gated_rms_norm(args).message),
            std::string("gated_rms_norm: out.data = 128 bytes after x.data") + kRule);
}

TEST(OverlapRefusalsOfRows, TheConvolutionDoesNot) {
  Arena arena;
  CausalConv1dArgs args;
  args.x = arena.floats({1, 8, kD});
  args.weight = arena.floats({kD, 4});
  args.out = moved(args.x, 3 * kD);
  EXPECT_EQ(std::string(causal_conv1d(args).message),
            std::string("causal_conv1d: out.data = 384 bytes after x.data") + kRule);
  const TensorView both = arena.floats({1, 8, 2 * kD});
  args.x = both.sliced(2, 0, kD), args.out = both.sliced(2, kD, kD);
  EXPECT_TRUE(causal_conv1d(args).ok());
}

}  // namespace
}  // namespace sluice::check
