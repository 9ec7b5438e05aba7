// Measures what a sequence or head of a CUDA prefill can see of the others: nothing. Packs are
// computed again with other neighbours, positions, head counts, poisoned neighbours and malformed
// offsets, and compared bit by bit.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "device_scene.hpp"
#include "parity/naming.hpp"

namespace sluice::check {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const std::vector<int64_t>& lengths() {
  static const std::vector<int64_t> all = {70, 1, 0, 129, 64, 63, 200, 65};
  return all;
}

/// Bits of every (sequence, head) of a run.
struct Bits {
  std::vector<std::vector<std::byte>> o, states;  ///< by sequence * HV + head

  Bits(const GdnCase& c, const DeviceScene& scene) {
    const std::vector<int64_t> rows = c.cu_seqlens();
    for (int64_t n = 0; n < c.sequences(); ++n) {
      const auto i = static_cast<size_t>(n);
      for (int64_t h = 0; h < c.HV; ++h) {
        o.push_back(scene.o_bits(rows[i], rows[i + 1], h));
        states.push_back(scene.state_bits(n, h));
      }
    }
  }
};

/// Lengths that the host does not know: the planner cuts nothing here and hands the call to items
/// of 64 columns, whose bits are those of whole sequences.
TEST(CudaUncut, NarrowItemsHaveTheBitsOfWholeSequences) {
  SLUICE_SKIP_WITHOUT_GPU();
  GdnCase c = prefill_case("uncut", {4096, 4096, 4096, 4096}, 4, 16);
  const GdnInputs inputs = make_inputs(c);
  c.split = SLUICE_SPLIT_AUTO;
  DeviceScene planned(c, inputs);
  ASSERT_EQ(planned.run(), "");
  c.split = SLUICE_SPLIT_NEVER;
  DeviceScene whole(c, inputs);
  ASSERT_EQ(whole.run(), "");
  EXPECT_EQ(planned.o_bits(), whole.o_bits());
  EXPECT_EQ(planned.state_bits(), whole.state_bits());
}

/// dtype of q, k, v and o; whether the kernel normalises q and k, whose tails' norms are then those
/// of another sequence's rows; whether every chunk is a segment of its own.
using Variant = std::tuple<sluice_dtype, sluice_qk_norm, sluice_split>;

class CudaIsolation : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    SLUICE_SKIP_WITHOUT_GPU();
    case_ = prefill_case("isolation", lengths(), 3, 6);
    std::tie(case_.io, case_.options.qk_norm, case_.split) = GetParam();
    if (case_.split == SLUICE_SPLIT_LENGTH) case_.split_value = 64;
    inputs_ = make_inputs(case_);
  }
  Bits run(const GdnCase& c, const GdnInputs& inputs) {
    DeviceScene scene(c, inputs);
    EXPECT_EQ(scene.run(), "");
    return Bits(c, scene);
  }

  GdnCase case_;
  GdnInputs inputs_;
};

/// Bits of an excerpt against those of the pack that it was cut from.
void expect_part(const Bits& part, const Bits& whole, const std::vector<int64_t>& sequences,
                 int64_t heads, int64_t first_head, int64_t whole_heads) {
  for (size_t n = 0; n < sequences.size(); ++n) {
    for (int64_t h = 0; h < heads; ++h) {
      const size_t at = n * static_cast<size_t>(heads) + static_cast<size_t>(h);
      const auto in_whole = static_cast<size_t>(sequences[n] * whole_heads + first_head + h);
      EXPECT_EQ(part.o[at], whole.o[in_whole]) << "sequence " << sequences[n] << " head " << h;
      EXPECT_EQ(part.states[at], whole.states[in_whole]) << "sequence " << sequences[n];
    }
  }
}

TEST_P(CudaIsolation, SequenceAloneHasTheSameBits) {
  const Bits whole = run(case_, inputs_);
  for (int64_t n = 0; n < case_.sequences(); ++n) {
    const Excerpt part = excerpt_of(case_, inputs_, {n}, 0, case_.H);
    expect_part(run(part.gdn_case, part.inputs), whole, {n}, case_.HV, 0, case_.HV);
  }
}

TEST_P(CudaIsolation, PermutedPackHasTheSameBits) {
  const Bits whole = run(case_, inputs_);
  const std::vector<int64_t> order = {5, 3, 7, 0, 2, 6, 1, 4};
  const Excerpt part = excerpt_of(case_, inputs_, order, 0, case_.H);
  expect_part(run(part.gdn_case, part.inputs), whole, order, case_.HV, 0, case_.HV);
}

TEST_P(CudaIsolation, HeadGroupAloneHasTheSameBits) {
  const Bits whole = run(case_, inputs_);
  std::vector<int64_t> all(lengths().size());
  std::iota(all.begin(), all.end(), 0);
  for (int64_t j = 0; j < case_.H; ++j) {
    const Excerpt part = excerpt_of(case_, inputs_, all, j, 1);
    expect_part(run(part.gdn_case, part.inputs), whole, all, 2, 2 * j, case_.HV);
  }
}

/// The planner and the ticket counter decide who computes what when there are many items.
TEST_P(CudaIsolation, PlannedPackHasTheSameBits) {
  const Bits small = run(case_, inputs_);
  std::vector<int64_t> repeated;
  for (int copy = 0; copy < 12; ++copy) {
    for (int64_t n = 0; n < case_.sequences(); ++n) repeated.push_back((n + copy) % 8);
  }
  const Excerpt part = excerpt_of(case_, inputs_, repeated, 0, case_.H);
  expect_part(run(part.gdn_case, part.inputs), small, repeated, case_.HV, 0, case_.HV);
}

/// Which input of which sequence is spoilt, and whose results may show it.
struct Spoil {
  const char* name;
  Array GdnInputs::* input;
  bool by_key_head;  ///< q and k: all value heads of the key head
};

TEST_P(CudaIsolation, NanAndInfinityStayInTheirSequenceAndHead) {
  const Bits clean = run(case_, inputs_);
  const std::vector<int64_t> rows = case_.cu_seqlens();
  const Spoil spoils[] = {
      {"q", &GdnInputs::q, true},        {"k", &GdnInputs::k, true},
      {"v", &GdnInputs::v, false},       {"gate", &GdnInputs::gate, false},
      {"beta", &GdnInputs::beta, false}, {"initial", &GdnInputs::initial, false}};
  for (const Spoil& spoil : spoils) {
    for (const double value : {std::nan(""), kInfinity, -kInfinity}) {
      // WHY not gate = -inf: it is legal, and means that nothing is remembered.
      if (spoil.input == &GdnInputs::gate && value == -kInfinity) continue;
      // 4 starts in the tail tile of 3 (129 rows), 1 in that of 0; 7 is the last.
      for (const int64_t bad : {1, 4, 7}) {
        GdnInputs inputs = inputs_;
        Array& array = inputs.*spoil.input;
        const bool state = spoil.input == &GdnInputs::initial;
        const int64_t heads = state ? case_.HV : array.shape[2], head = heads - 1;
        const int64_t width =
            array.size() / (array.shape[0] * (state ? 1 : array.shape[1]) * heads);
        const int64_t first = state ? bad : rows[static_cast<size_t>(bad)];
        std::fill_n(array.values.begin() + (first * heads + head) * width, width, value);
        const Bits found = run(case_, inputs);
        for (int64_t n = 0; n < case_.sequences(); ++n) {
          for (int64_t h = 0; h < case_.HV; ++h) {
            const bool touched = n == bad && (spoil.by_key_head ? h / 2 == head : h == head);
            if (touched) continue;
            const auto at = static_cast<size_t>(n * case_.HV + h);
            EXPECT_EQ(found.o[at], clean.o[at])
                << spoil.name << " " << value << " of " << bad << " in o of " << n << "," << h;
            EXPECT_EQ(found.states[at], clean.states[at])
                << spoil.name << " " << value << " of " << bad << " in state " << n << "," << h;
          }
        }
        const auto spoilt = static_cast<size_t>(bad * case_.HV + case_.HV - 1);
        EXPECT_NE(found.o[spoilt], clean.o[spoilt]) << spoil.name << ": nothing was spoilt";
      }
    }
  }
}

/// Rows at and past the last offset: whatever they hold, and their outputs untouched.
TEST_P(CudaIsolation, RowsPastTheEndAreNeitherReadNorWritten) {
  const Bits clean = run(case_, inputs_);
  for (const int64_t spare : {1, 63, 64, 200}) {
    GdnCase c = case_;
    c.T += spare;
    GdnInputs inputs = inputs_;
    for (Array* array : {&inputs.q, &inputs.k, &inputs.v, &inputs.gate, &inputs.beta}) {
      const int64_t row = array->size() / array->shape[1];
      array->shape[1] = c.T;
      array->values.resize(static_cast<size_t>(c.T * row), std::nan(""));
    }
    DeviceScene scene(c, inputs);
    ASSERT_EQ(scene.run(), "");
    const Bits found(c, scene);
    EXPECT_EQ(found.o, clean.o) << spare;
    EXPECT_EQ(found.states, clean.states) << spare;
    for (int64_t h = 0; h < c.HV; ++h) {
      const std::vector<std::byte> past = scene.o_bits(case_.T, c.T, h);
      EXPECT_TRUE(
          std::all_of(past.begin(), past.end(), [](std::byte b) { return b == std::byte{0xff}; }))
          << "written past the end, head " << h;
    }
  }
}

/// Offsets that break every rule may give anything but an access outside the tensors.
TEST_P(CudaIsolation, MalformedOffsetsWriteNothingOutside) {
  const double far = 2147483647.0;
  const std::vector<std::vector<double>> tables = {
      {0, 70, 50, 40, 30, 20, 10, 5, 0},
      {592, 400, 300, 200, 100, 50, 20, 10, 0},
      {0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000},
      {-5, -4, -3, -2, -1, 0, 64, 128, 192},
      {far, far, -far, far, -far, 0, far, -far, far},
      {-far, 0, 0, 0, 0, 0, 0, 0, far},
      {591, 593, 591, 593, 0, 592, 0, 592, 600},
      {-1, far, -1, far, -1, far, -1, far, -1}};
  GdnCase c = case_;
  for (const sluice_dtype index : {kI32, kI64}) {
    c.index_dtype = index;
    DeviceScene scene(c, inputs_);
    for (const std::vector<double>& table : tables) {
      Array offsets({static_cast<int64_t>(table.size())});
      offsets.values = table;
      if (same_dtype(index, kI64)) {
        for (double& value : offsets.values) value *= 1024.0 * 1024.0 * 1024.0;
      }
      scene.cu_seqlens.assign(offsets);
      EXPECT_EQ(scene.run(), "");
      offsets.values = table;
      scene.cu_seqlens.assign(offsets);
      EXPECT_EQ(scene.run(), "");
    }
    // The device is in order afterwards.
    scene.set_lengths(lengths());
    ASSERT_EQ(scene.run(), "");
    const Bits found(c, scene), clean = run(case_, inputs_);
    EXPECT_EQ(found.o, clean.o);
    EXPECT_EQ(found.states, clean.states);
  }
}

std::string variant_name(const ::testing::TestParamInfo<Variant>& test) {
  const auto [io, norm, split] = test.param;
  return std::string(dtype_name(io)) + (norm == SLUICE_QK_NORM_L2 ? "_l2norm" : "") +
         (split == SLUICE_SPLIT_LENGTH ? "_cut" : "");
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaIsolation,
    ::testing::Combine(::testing::Values(kBF16, kF16),
                       ::testing::Values(SLUICE_QK_NORM_NONE, SLUICE_QK_NORM_L2),
                       ::testing::Values(SLUICE_SPLIT_NEVER, SLUICE_SPLIT_LENGTH)),
    variant_name);

}  // namespace
}  // namespace sluice::check
