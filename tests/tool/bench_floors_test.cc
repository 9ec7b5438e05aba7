// Measures the counts behind floors and the inputs' statistics. Formulas are compared with numbers
// worked out by hand for the cells of the design, random pools with the moments they should have.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "check/array.hpp"
#include "tools/bench/cell.hpp"
#include "tools/bench/cpu_probe.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {
namespace {

Cell cell(int64_t H, int64_t HV, std::vector<int64_t> lengths) {
  Cell out;
  out.H = H, out.HV = HV, out.lengths = std::move(lengths);
  return out;
}

TEST(BenchFloors, FlopsPerTokenAndHead) {
  EXPECT_EQ(prefill_flops(cell(1, 1, {1})), 163840.0);
  EXPECT_EQ(prefill_flops(cell(16, 64, {8192, 8192, 8192, 8192})), 163840.0 * 32768 * 64);
  Cell wide = cell(1, 2, {3});
  wide.K = 64, wide.V = 256;
  EXPECT_EQ(prefill_flops(wide), 6.0 * (4 * 64 * 64 + 4 * 64 * 256 + 6 * 64 * 256));
}

TEST(BenchFloors, BytesPerTokenAndState) {
  // 512 H + 512 HV + 8 HV a token in 16 bits, 64 KiB a state each way.
  EXPECT_EQ(prefill_bytes(cell(16, 64, {100}), 2), 100.0 * (512 * 16 + 520 * 64) + 64.0 * 131072);
  EXPECT_EQ(prefill_bytes(cell(2, 4, {10, 20}), 4), 30.0 * (1024 * 6 + 32) + 8.0 * 131072);
}

TEST(BenchFloors, BusiestProcessorGetsWholeUnits) {
  EXPECT_EQ(busiest_chunks(cell(16, 64, {8192, 8192, 8192, 8192}), 132), 2 * 128);
  EXPECT_EQ(busiest_chunks(cell(8, 32, {8192, 8192, 8192, 8192}), 132), 128);
  EXPECT_EQ(busiest_chunks(cell(16, 64, {28672, 4096}), 132), 448);
  EXPECT_EQ(busiest_chunks(cell(1, 1, {65}), 132), 2);
  // Longest first: 3 + 3 and 2 + 2 + 2 on two processors.
  EXPECT_EQ(busiest_chunks(cell(1, 1, {128, 192, 128, 192, 128}), 2), 7);
  EXPECT_EQ(busiest_chunks(cell(1, 1, {64, 64, 192}), 2), 3);
  EXPECT_EQ(busiest_chunks(cell(1, 4, {64}), 1), 4);
}

TEST(BenchFloors, TheLargerFloorCounts) {
  const Cell c = cell(16, 16, {32768});
  const Ceilings h200{790e12, 4.3e12, "", ""};
  const Floor floor = floor_of(c, 2, h200);
  EXPECT_TRUE(floor.memory);
  EXPECT_NEAR(floor.seconds, .126e-3, 1e-6);
  const Floor slow_matrix = floor_of(c, 2, {79e12, 4.3e12, "", ""});
  EXPECT_FALSE(slow_matrix.memory);
  EXPECT_NEAR(slow_matrix.seconds, 1.087e-3, 1e-6);
}

TEST(BenchInputs, UnitRowsAndMoments) {
  const Bytes rows = random_rows(3000, 128, true, 1.0, check::kF32, 1);
  const auto* x = reinterpret_cast<const float*>(rows.data());
  for (int r : {0, 1023, 1024, 2999}) {
    double square = 0;
    for (int i = 0; i < 128; ++i) square += std::pow(static_cast<double>(x[r * 128 + i]), 2);
    EXPECT_NEAR(square, 1.0, 1e-5) << r;
  }
  const Bytes normal = random_rows(4000, 100, false, 0.5, check::kF32, 2);
  const auto* y = reinterpret_cast<const float*>(normal.data());
  double sum = 0, square = 0;
  for (int i = 0; i < 400000; ++i) {
    sum += static_cast<double>(y[i]);
    square += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  EXPECT_NEAR(sum / 400000, 0.0, 5e-3);
  EXPECT_NEAR(square / 400000, 0.25, 5e-3);
}

TEST(BenchInputs, AQuarterOfThePublishedHeadsHasNoDecay) {
  constexpr int64_t T = 2000, HV = 8;
  const Bytes bytes = random_gates("published", T, HV, 3);
  const auto* g = reinterpret_cast<const float*>(bytes.data());
  double chunk = 0;
  for (int64_t i = 0; i < T * HV; ++i) {
    EXPECT_LE(g[i], 0.0f);
    if (i % HV % 4 == 3) {
      EXPECT_EQ(g[i], 0.0f);
    } else {
      chunk += static_cast<double>(g[i]) * 64 / static_cast<double>(T * HV * 3 / 4);
    }
  }
  EXPECT_NEAR(chunk, -3.2, 0.1);  // mean of logsigmoid(normal) / 16, a chunk of 64
  for (const std::string& name : gate_names()) EXPECT_EQ(random_gates(name, 5, 3, 1).size(), 60u);
}

TEST(BenchInputs, SlowGatesForgetLittleAndFlatOnesNothing) {
  const Bytes slow = random_gates("slow", 500, 4, 3), flat = random_gates("flat", 500, 4, 3);
  for (int i = 0; i < 2000; ++i) {
    const float g = reinterpret_cast<const float*>(slow.data())[i];
    EXPECT_TRUE(g <= -5e-4f && g >= -1.5e-3f) << g;
    EXPECT_EQ(reinterpret_cast<const float*>(flat.data())[i], 0.0f);
  }
}

TEST(BenchInputs, GatesAndStrengthsOf16BitsAreThoseOf32Rounded) {
  const Bytes gates = random_gates("slow", 9, 4, 3), betas = random_betas(36, 5);
  const Bytes short_gates = random_gates("slow", 9, 4, 3, kBFloat16),
              short_betas = random_betas(36, 5, kBFloat16);
  ASSERT_EQ(short_gates.size(), 72u);
  ASSERT_EQ(short_betas.size(), 72u);
  const auto number = [](const Bytes& bytes, sluice_dtype dtype, int64_t i) {
    return check::load_element(TensorView(bytes.data(), DType{dtype}, {36}), i);
  };
  for (int64_t i = 0; i < 36; ++i) {
    const double g = number(gates, kFloat32, i), beta = number(betas, kFloat32, i);
    EXPECT_NEAR(number(short_gates, kBFloat16, i), g, 0x1p-8 * -g);
    EXPECT_NEAR(number(short_betas, kBFloat16, i), beta, 0x1p-8 * beta);
  }
}

TEST(BenchSamples, LongestAndShortestSequencesAreSampled) {
  const std::vector<Sample> samples = samples_of(cell(16, 64, {64, 8192, 7}));
  ASSERT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples[0].sequence, 1);
  EXPECT_EQ(samples[0].head, 0);
  EXPECT_EQ(samples[1].head, 63);
  EXPECT_EQ(samples[3].sequence, 2);
  EXPECT_EQ(samples_of(cell(1, 1, {64})).size(), 1u);
  EXPECT_EQ(samples_of(cell(8, 32, {64, 64})).back().sequence, 1);
}

TEST(BenchFloors, MeasuredPeaksAreNeverZero) {
  for (const int threads : {1, 2, 4}) {
    EXPECT_GT(fma_peak(threads, 0.0), 0.0) << threads;
    BandwidthProbe probe(1 << 16);
    EXPECT_GT(probe.run(threads, 0.0), 0.0) << threads;
  }
}

}  // namespace
}  // namespace sluice::tools
