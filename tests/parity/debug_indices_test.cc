// Checks what SLUICE_DEBUG=1 finds in offsets and slots, wherever they lie: which entry is named,
// and that nothing is written.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <list>

#include "parity/operator_call.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

using Indices = std::vector<int64_t>;
constexpr int64_t kT = 12, kD = 64, kSlots = 6, kChannels = 3 * kD;

/// What the integers of a call of two sequences are.
struct Tables {
  Indices offsets = {0, 5, 9}, read = {1, 2}, written = {3, 4}, kept = {0, 1};
  int64_t h_chunks = 2;
  int64_t kept_columns = 1;  ///< all of them the same entry
};

/// A call's memory.
class Memory {
 public:
  sluice_tensor in(std::vector<int64_t> shape, sluice_dtype dtype = kBF16) {
    tensors_.emplace_back(dtype, Array(std::move(shape)));
    return tensors_.back().view();
  }
  sluice_tensor out(std::vector<int64_t> shape, sluice_dtype dtype = kBF16) {
    written_.emplace_back(dtype, std::move(shape));
    return written_.back().view();
  }
  sluice_tensor indices(const Indices& values) {
    tensors_.push_back(TestTensor::of_indices(kI32, values));
    return tensors_.back().view();
  }
  sluice_state_io states(const Tables& t) {
    sluice_state_io s{};
    s.initial = in({kSlots, 1, kD, kD}, kF32), s.final = out({kSlots, 1, kD, kD}, kF32);
    s.read_slots = indices(t.read), s.write_slots = indices(t.written);
    return s;
  }
  /// Outputs are NaN as they were.
  bool untouched() const {
    return std::all_of(written_.begin(), written_.end(), [](const TestTensor& t) {
      const Array found = t.values();
      return t.guards_intact() && std::all_of(found.values.begin(), found.values.end(),
                                              [](double x) { return std::isnan(x); });
    });
  }

 private:
  std::list<TestTensor> tensors_, written_;
};

template <class Args>
Args common(Memory& m, const Tables& t) {
  Args a{};
  a.struct_size = sizeof a;
  a.cu_seqlens = m.indices(t.offsets);
  a.implementation = implementations_under_test().front();
  return a;
}

template <class Args>
Args delta(Memory& m, const Tables& t) {
  Args a = common<Args>(m, t);
  const std::vector<int64_t> rows{1, kT, 1, kD};
  a.q = m.in(rows), a.k = m.in(rows), a.v = m.in(rows), a.o = m.out(rows);
  a.state = m.states(t);
  return a;
}

CallOutcome chunk_forward(Memory& m, const Tables& t) {
  auto a = delta<sluice_chunk_forward_args>(m, t);
  a.checkpoints = m.out({2, 1, kD, kD}, kF32), a.checkpoint_every = 64;
  a.checkpoint_slots = m.indices(t.kept);
  a.checkpoint_slots.rank = 2;
  a.checkpoint_slots.shape[1] = t.kept_columns;
  a.checkpoint_slots.stride[1] = t.kept_columns == 1 ? 1 : 0;
  return call_operator(SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward, a);
}

CallOutcome recurrent_step(Memory& m, const Tables& t) {
  auto a = delta<sluice_recurrent_step_args>(m, t);
  a.max_tokens = 16;
  return call_operator(SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step, a);
}

CallOutcome causal_conv1d(Memory& m, const Tables& t) {
  auto a = common<sluice_causal_conv1d_args>(m, t);
  a.x = m.in({1, kT, kD}), a.weight = m.in({kD, 4}), a.out = m.out({1, kT, kD});
  a.state.initial = m.in({kSlots, kD, 3}), a.state.final = m.out({kSlots, kD, 3});
  a.state.read_slots = m.indices(t.read), a.state.write_slots = m.indices(t.written);
  return call_operator(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, a);
}

sluice_layer_args layer(Memory& m, const Tables& t) {
  auto a = common<sluice_layer_args>(m, t);
  a.qkv = m.in({1, kT, kChannels}), a.z = m.in({1, kT, kD});
  a.b = m.in({1, kT, 1}), a.a = m.in({1, kT, 1});
  a.conv_weight = m.in({kChannels, 4}), a.A_log = m.in({1}), a.dt_bias = m.in({1});
  a.norm_weight = m.in({kD}), a.out = m.out({1, kT, 1, kD});
  a.conv_initial = m.in({kSlots, kChannels, 3}), a.conv_final = m.out({kSlots, kChannels, 3});
  a.state = m.states(t);
  a.num_k_heads = a.num_v_heads = 1, a.head_k_dim = a.head_v_dim = kD;
  a.gate_activation = SLUICE_ACTIVATION_SILU;
  return a;
}

CallOutcome layer_prefill(Memory& m, const Tables& t) {
  return call_operator(SLUICE_OP_LAYER_PREFILL, sluice_layer_prefill, layer(m, t));
}

CallOutcome layer_decode(Memory& m, const Tables& t) {
  sluice_layer_args a = layer(m, t);
  a.max_tokens = 16;
  return call_operator(SLUICE_OP_LAYER_DECODE, sluice_layer_decode, a);
}

CallOutcome chunk_h(Memory& m, const Tables& t) {
  auto a = common<sluice_chunk_stage_args>(m, t);
  a.stage = SLUICE_STAGE_CHUNK_H;
  const std::vector<int64_t> rows{1, kT, 1, kD};
  a.k = m.in(rows), a.w = m.in(rows), a.u = m.in(rows), a.v_new = m.out(rows);
  a.h = m.out({1, t.h_chunks, 1, kD, kD});
  a.state = m.states(t);
  return call_operator(SLUICE_OP_CHUNK_STAGE, sluice_chunk_stage, a);
}

CallOutcome chunk_backward(Memory& m, const Tables& t) {
  auto a = common<sluice_chunk_backward_args>(m, t);
  const std::vector<int64_t> rows{1, kT, 1, kD};
  a.q = m.in(rows), a.k = m.in(rows), a.v = m.in(rows), a.d_o = m.in(rows);
  a.dq = m.out(rows), a.dk = m.out(rows), a.dv = m.out(rows);
  return call_operator(SLUICE_OP_CHUNK_BACKWARD, sluice_chunk_backward, a);
}

struct Wrong {
  const char* what;
  Tables tables;
  const char* message;
  int code = SLUICE_INVALID_ARGUMENT;
};

const Wrong kOffsets[] = {
    {"offsets fall",
     {.offsets = {0, 7, 5}},
     "cu_seqlens[2] = 5, expected >= 7 (ascending from 0, at most T = 12)"},
    {"offsets past the end",
     {.offsets = {0, 5, 13}},
     "cu_seqlens[2] = 13, expected <= 12 (ascending from 0, at most T = 12)"},
    {"offsets from one on",
     {.offsets = {1, 5, 9}},
     "cu_seqlens[0] = 1, expected 0 (ascending from 0, at most T = 12)"},
};
const Wrong kStates[] = {
    {"reads past the pool",
     {.read = {-1, 6}},
     "state.read_slots[1,0] = 6, expected < 6 (slots of the pool)"},
    {"writes past the pool",
     {.written = {2147483647, 4}},
     "state.write_slots[0,0] = 2147483647, expected < 6 (slots of the pool)"},
    {"writes a slot twice",
     {.written = {3, 3}},
     "state.write_slots[1] = 3, expected a slot that no other sequence writes (SLUICE_DEBUG check; "
     "sequence 0 does)"},
};
const Wrong kCheckpoints[] = {{"keeps past the pool",
                               {.kept = {1, 2}},
                               "checkpoint_slots[1,0] = 2, expected < 2 (slots of the pool)"}};
const Wrong kChunks[] = {
    {"h is too short", {.h_chunks = 1}, "h.shape[1] = 1, expected >= 2 (chunks of all sequences)"}};

// 2^53 bytes of checkpoint_slots; 12 of offsets and 8 each of two slots begin at multiples of 8.
const Wrong kCopies[] = {{"copies that no memory holds",
                          {.kept_columns = int64_t{1} << 50},
                          "offsets and slots = 9007199254741024 bytes, expected what fits into "
                          "memory (SLUICE_DEBUG check)",
                          SLUICE_UNSUPPORTED}};

using Call = CallOutcome (*)(Memory&, const Tables&);
struct Operator {
  const char* name;
  Call call;
  bool has_states = true;
};
const Operator kOperators[] = {
    {"chunk_forward", chunk_forward},         {"recurrent_step", recurrent_step},
    {"causal_conv1d", causal_conv1d},         {"layer_prefill", layer_prefill},
    {"layer_decode", layer_decode},           {"chunk_h", chunk_h},
    {"chunk_backward", chunk_backward, false}};

/// How many of these calls were not refused as they must be; each is printed.
template <class Rows>
int count_accepted(const Operator& op, const Rows& rows) {
  int wrong = 0;
  for (const Wrong& row : rows) {
    Memory memory;
    const CallOutcome found = op.call(memory, row.tables);
    const std::string expected = std::string(op.name) + ": " + row.message;
    const bool refused = found.code == row.code && found.message == expected;
    if (refused && found.damage.empty() && memory.untouched()) continue;
    std::fprintf(stderr, "%s: code %d, %s%s\n", row.what, found.code, found.message.c_str(),
                 found.damage.c_str());
    ++wrong;
  }
  return wrong;
}

int count_all_accepted(const Operator& op) {
  int wrong = count_accepted(op, kOffsets);
  if (op.has_states) wrong += count_accepted(op, kStates);
  if (op.call == chunk_forward) wrong += count_accepted(op, kCheckpoints);
  if (op.call == chunk_h) wrong += count_accepted(op, kChunks);
  return wrong;
}

/// Whether an expression, an exit status, is 0 in a fresh process with SLUICE_DEBUG=1.
#define EXPECT_ZERO_WITH_DEBUG(...)                       \
  ::testing::FLAGS_gtest_death_test_style = "threadsafe"; \
  EXPECT_EXIT(                                            \
      {                                                   \
        setenv("SLUICE_DEBUG", "1", 1);                   \
        std::_Exit(__VA_ARGS__);                          \
      },                                                  \
      ::testing::ExitedWithCode(0), "")

class DebugIndicesDeathTest : public ::testing::TestWithParam<Operator> {};

TEST_P(DebugIndicesDeathTest, FirstBadEntryIsNamedAndNothingWritten) {
  EXPECT_ZERO_WITH_DEBUG(count_all_accepted(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Operators, DebugIndicesDeathTest, ::testing::ValuesIn(kOperators),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(DebugIndicesDeathTest, CopiesThatNoMemoryHoldsAreRefused) {
  if (implementations_under_test().front() != SLUICE_IMPL_CUDA) {
    GTEST_SKIP() << "host memory is read where it is";
  }
  EXPECT_ZERO_WITH_DEBUG(count_accepted(kOperators[0], kCopies));
}

TEST(DebugIndicesDeathTest, LegalCallsRun) {
  EXPECT_ZERO_WITH_DEBUG([] {
    for (const Indices& read : {Indices{1, 2}, Indices{-1, 2}}) {
      Memory memory;
      // A row that is padding writes nothing: its slot may be another's.
      const Tables tables{.read = read, .written = {read[0] < 0 ? 4 : 3, 4}};
      const CallOutcome found = chunk_forward(memory, tables);
      std::fprintf(stderr, "%s\n", found.message.c_str());
      if (found.code != SLUICE_OK) return 1;
    }
    return 0;
  }());
}

}  // namespace
}  // namespace sluice::check
