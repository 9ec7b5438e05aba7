// Measures a CUDA prefill where counts pass 2^16 and offsets pass 2^31: packs of more than 65,536
// sequences, and tensors of more than 2^31 elements. Sampled sequences are compared bit by bit with
// the same sequences computed as a small pack, and that with the float64 recurrence.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "device_scene.hpp"

namespace sluice::check {
namespace {

class CudaLarge : public ::testing::Test {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }
};

/// Copies `source` again and again until `target` is full.
void tile_bytes(const DeviceTensor& target, const DeviceTensor& source) {
  auto* const out = static_cast<std::byte*>(target.view().data);
  ASSERT_EQ(cudaMemcpy(out, source.view().data, source.size(), cudaMemcpyDeviceToDevice),
            cudaSuccess);
  for (size_t filled = source.size(); filled < target.size();) {
    const size_t bytes = std::min(filled, target.size() - filled);
    ASSERT_EQ(cudaMemcpy(out + filled, out, bytes, cudaMemcpyDeviceToDevice), cudaSuccess);
    filled += bytes;
  }
}

DeviceTensor indices(const std::vector<int64_t>& values) {
  Array array({static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), array.values.begin());
  return {kI32, array};
}

constexpr int64_t kStates = 8;  ///< initial states that the many sequences share

/// 70,001 sequences, most of them empty or of one token, with states in shared read slots; only
/// sampled ones have a slot to write.
TEST_F(CudaLarge, SeventyThousandSequences) {
  std::vector<int64_t> lengths(70001);
  for (size_t n = 0; n < lengths.size(); ++n) {
    lengths[n] = n % 2 == 1 ? 0 : n % 7001 == 0 ? 130 : 1;
  }
  const int64_t N = static_cast<int64_t>(lengths.size());
  std::vector<int64_t> sampled = {0, 1, 2, 7001, 14002, 32767, 32768, 65534, 65535, 65536, 65537};
  for (int64_t n = 69900; n < N; ++n) sampled.push_back(n);

  GdnCase c = prefill_case("many", lengths, 1, 2);
  c.initial = StateProfile::kNone;
  GdnInputs inputs = make_inputs(c);
  const Array states = make_states(StateProfile::kRandom, {kStates, c.HV, c.K, c.V}, 5);

  // The small pack first, against the recurrence.
  Excerpt part = excerpt_of(c, inputs, sampled, 0, 1);
  part.inputs.initial = Array({static_cast<int64_t>(sampled.size()), c.HV, c.K, c.V});
  const int64_t size = c.HV * c.K * c.V;
  for (size_t i = 0; i < sampled.size(); ++i) {
    std::transform(states.values.begin() + sampled[i] % kStates * size,
                   states.values.begin() + (sampled[i] % kStates + 1) * size,
                   part.inputs.initial.values.begin() + static_cast<int64_t>(i) * size,
                   [](double x) { return round_to(kF32, x); });
  }
  DeviceScene small(part.gdn_case, part.inputs);
  ASSERT_EQ(small.run(), "");
  const Verdict verdict =
      judge_run(part.gdn_case, part.inputs, small.outputs(), truth_of(part.gdn_case, part.inputs));
  EXPECT_TRUE(verdict.pass) << verdict.line;

  // All of them, through slots.
  std::vector<int64_t> read(lengths.size()), write(lengths.size(), -1);
  for (size_t n = 0; n < read.size(); ++n) read[n] = static_cast<int64_t>(n) % kStates;
  for (size_t i = 0; i < sampled.size(); ++i) {
    write[static_cast<size_t>(sampled[i])] = static_cast<int64_t>(i);
  }
  const DeviceTensor q(c.io, inputs.q), k(c.io, inputs.k), v(c.io, inputs.v);
  const DeviceTensor gate(kF32, inputs.gate), beta(kF32, inputs.beta);
  const DeviceTensor pool(kF32, states), read_slots = indices(read), write_slots = indices(write);
  const DeviceTensor cu_seqlens = indices(c.cu_seqlens());
  const DeviceTensor o(c.io, {1, c.T, c.HV, c.V});
  const DeviceTensor final(kF32, {static_cast<int64_t>(sampled.size()), c.HV, c.K, c.V});
  sluice_chunk_forward_args args = small.args();
  args.q = q.view(), args.k = k.view(), args.v = v.view(), args.o = o.view();
  args.gate = gate.view(), args.beta = beta.view(), args.cu_seqlens = cu_seqlens.view();
  args.state.initial = pool.view(), args.state.final = final.view();
  args.state.read_slots = read_slots.view(), args.state.write_slots = write_slots.view();
  size_t bytes = 0;
  ASSERT_EQ(sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &args, &bytes), SLUICE_OK);
  const DeviceTensor scratch({1, 8}, {static_cast<int64_t>(bytes)});
  ASSERT_EQ(sluice_chunk_forward(&args, {scratch.view().data, bytes}, nullptr), SLUICE_OK)
      << sluice_last_error();
  EXPECT_EQ(final.bytes(), small.state_bits());
  EXPECT_TRUE(final.guards_intact() && o.guards_intact() && scratch.guards_intact());

  const std::vector<std::byte> all = o.bytes(), few = small.o_bits();
  const std::vector<int64_t> rows = c.cu_seqlens(), few_rows = part.gdn_case.cu_seqlens();
  const auto row = static_cast<size_t>(c.HV * c.V * 2);
  for (size_t i = 0; i < sampled.size(); ++i) {
    const auto first = static_cast<size_t>(rows[static_cast<size_t>(sampled[i])]) * row;
    const auto few_first = static_cast<size_t>(few_rows[i]) * row;
    const size_t length = static_cast<size_t>(few_rows[i + 1]) * row - few_first;
    EXPECT_TRUE(std::equal(all.begin() + static_cast<std::ptrdiff_t>(first),
                           all.begin() + static_cast<std::ptrdiff_t>(first + length),
                           few.begin() + static_cast<std::ptrdiff_t>(few_first)))
        << "sequence " << sampled[i];
  }
  // No row is left as it was: 0xffff is a NaN that no kernel writes for these inputs.
  for (size_t at = 0; at < all.size(); at += 2) {
    ASSERT_FALSE(all[at] == std::byte{0xff} && all[at + 1] == std::byte{0xff})
        << "row " << at / row << " was not written";
  }
}

/// One pack whose v and o have 2.46e9 elements: sequences of 1003 tokens with the same content, so
/// that all of them have the first one's bits. WHY 1003: 2^31 elements are 262,144 rows, no
/// multiple of it, so an offset that wraps reads other tokens.
TEST_F(CudaLarge, TensorsOfMoreThanTwoToThe31Elements) {
  constexpr int64_t kLength = 1003, kCopies = 300, H = 16, HV = 64;
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  if (free_bytes < (size_t{18} << 30)) GTEST_SKIP() << "less than 18 GiB of device memory is free";
  GdnCase one = prefill_case("one", {kLength}, H, HV);
  const GdnInputs inputs = make_inputs(one);
  DeviceScene small(one, inputs);
  ASSERT_EQ(small.run(), "");
  const Excerpt part = excerpt_of(one, inputs, {0}, H - 1, 1);
  DeviceScene head(part.gdn_case, part.inputs);
  ASSERT_EQ(head.run(), "");
  const Verdict verdict =
      judge_run(part.gdn_case, part.inputs, head.outputs(), truth_of(part.gdn_case, part.inputs));
  EXPECT_TRUE(verdict.pass) << verdict.line;
  EXPECT_EQ(head.o_bits(0, kLength, 3), small.o_bits(0, kLength, HV - 1));

  const int64_t T = kLength * kCopies;
  ASSERT_GT(T * HV * 128, int64_t{1} << 31);
  const DeviceTensor q(kBF16, {1, T, H, 128}), k(kBF16, {1, T, H, 128}), v(kBF16, {1, T, HV, 128});
  const DeviceTensor o(kBF16, {1, T, HV, 128}), gate(kF32, {1, T, HV}), beta(kF32, {1, T, HV});
  const DeviceTensor initial(kF32, {kCopies, HV, 128, 128}), final(kF32, {kCopies, HV, 128, 128});
  tile_bytes(q, small.q), tile_bytes(k, small.k), tile_bytes(v, small.v);
  tile_bytes(gate, small.gate), tile_bytes(beta, small.beta), tile_bytes(initial, small.initial);
  std::vector<int64_t> rows;
  for (int64_t n = 0; n <= kCopies; ++n) rows.push_back(n * kLength);
  const DeviceTensor cu_seqlens = indices(rows);
  sluice_chunk_forward_args args = small.args();
  args.q = q.view(), args.k = k.view(), args.v = v.view(), args.o = o.view();
  args.gate = gate.view(), args.beta = beta.view(), args.cu_seqlens = cu_seqlens.view();
  args.state.initial = initial.view(), args.state.final = final.view();
  size_t bytes = 0;
  ASSERT_EQ(sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &args, &bytes), SLUICE_OK);
  const DeviceTensor scratch({1, 8}, {static_cast<int64_t>(bytes)});
  ASSERT_EQ(sluice_chunk_forward(&args, {scratch.view().data, bytes}, nullptr), SLUICE_OK)
      << sluice_last_error();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (const DeviceTensor* tensor : {&q, &k, &v, &o, &final, &scratch}) {
    EXPECT_TRUE(tensor->guards_intact());
  }
  const std::vector<std::byte> expected = small.o_bits(), expected_state = small.state_bits();
  std::vector<std::byte> found(expected.size()), state(expected_state.size());
  for (int64_t n = 0; n < kCopies; ++n) {
    const auto at = static_cast<size_t>(n);
    ASSERT_EQ(cudaMemcpy(found.data(), static_cast<std::byte*>(o.view().data) + at * found.size(),
                         found.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    ASSERT_TRUE(found == expected) << "o of sequence " << n;
    ASSERT_EQ(
        cudaMemcpy(state.data(), static_cast<std::byte*>(final.view().data) + at * state.size(),
                   state.size(), cudaMemcpyDeviceToHost),
        cudaSuccess);
    ASSERT_TRUE(state == expected_state) << "state of sequence " << n;
  }
}

/// The same elements as batch entries: entries, not rows, pass 2^31.
TEST_F(CudaLarge, BatchStridesPastTwoToThe31) {
  constexpr int64_t kEntries = 3, kStride = int64_t{1} << 31, kTokens = 70;
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  if (free_bytes < (size_t{20} << 30)) GTEST_SKIP() << "less than 20 GiB of device memory is free";
  GdnCase c = prefill_case("entries", {}, 2, 4);
  c.B = kEntries, c.T = kTokens;
  const GdnInputs inputs = make_inputs(c);
  DeviceScene dense(c, inputs);
  ASSERT_EQ(dense.run(), "");
  const Verdict verdict = judge_run(c, inputs, dense.outputs(), truth_of(c, inputs));
  EXPECT_TRUE(verdict.pass) << verdict.line;
  // One tensor is spread at a time: v, then o.
  const size_t entry = dense.o.size() / kEntries, pitch = size_t{2} * kStride;
  const DeviceTensor wide(kBF16, {kEntries - 1, kStride + 4096});
  auto* const base = static_cast<std::byte*>(wide.view().data);
  const std::vector<std::byte> expected = dense.o_bits();
  ASSERT_EQ(cudaMemcpy2D(base, pitch, dense.v.view().data, entry, entry, kEntries - 1,
                         cudaMemcpyDeviceToDevice),
            cudaSuccess);
  sluice_chunk_forward_args args = dense.args();
  for (sluice_tensor* tensor : {&args.q, &args.k, &args.v, &args.gate, &args.beta, &args.o,
                                &args.state.initial, &args.state.final}) {
    tensor->shape[0] = kEntries - 1;
  }
  args.v.data = base, args.v.stride[0] = kStride;
  dense.poison_outputs();
  ASSERT_EQ(sluice_chunk_forward(&args, dense.workspace(), nullptr), SLUICE_OK)
      << sluice_last_error();
  const std::vector<std::byte> from_wide = dense.o_bits();
  EXPECT_TRUE(std::equal(expected.begin(),
                         expected.begin() + static_cast<std::ptrdiff_t>(entry * (kEntries - 1)),
                         from_wide.begin()));
  args.v = dense.v.view(), args.v.shape[0] = kEntries - 1;
  args.o.data = base, args.o.stride[0] = kStride;
  ASSERT_EQ(cudaMemset(base, 0xff, wide.size()), cudaSuccess);
  ASSERT_EQ(sluice_chunk_forward(&args, dense.workspace(), nullptr), SLUICE_OK)
      << sluice_last_error();
  std::vector<std::byte> to_wide(entry * (kEntries - 1));
  ASSERT_EQ(
      cudaMemcpy2D(to_wide.data(), entry, base, pitch, entry, kEntries - 1, cudaMemcpyDeviceToHost),
      cudaSuccess);
  EXPECT_TRUE(std::equal(to_wide.begin(), to_wide.end(), expected.begin()));
  EXPECT_TRUE(wide.guards_intact());
}

}  // namespace
}  // namespace sluice::check
