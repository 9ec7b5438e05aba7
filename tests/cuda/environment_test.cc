// Measures what SLUICE_CUDA_SPLIT and SLUICE_CUDA_HISTORY change, which a process reads once: each
// value in a child process, by the kernel named for a call or the message that refuses it, with and
// where the call itself asks for none.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>

#include "device_scene.hpp"

namespace sluice::check {
namespace {

constexpr const char* kKernel = "cuda.chunk_forward.sm_90a.bf16.k128.v128";

/// Two packed sequences of 4096 rows in all; the views lie nowhere.
sluice_chunk_forward_args some_call() {
  uintptr_t address = 0;
  const auto view = [&](sluice_dtype dtype, std::initializer_list<int64_t> shape) {
    sluice_tensor t{};
    t.data = reinterpret_cast<void*>(address += 4096);
    t.device = {SLUICE_DEVICE_CUDA, 0};
    t.dtype = dtype;
    for (const int64_t n : shape) t.shape[t.rank++] = n;
    int64_t stride = 1;
    for (int axis = t.rank; axis-- > 0; stride *= t.shape[axis]) t.stride[axis] = stride;
    return t;
  };
  sluice_chunk_forward_args args{};
  args.struct_size = sizeof args;
  args.q = view(kBF16, {1, 4096, 4, 128}), args.k = view(kBF16, {1, 4096, 4, 128});
  args.v = view(kBF16, {1, 4096, 8, 128}), args.o = view(kBF16, {1, 4096, 8, 128});
  args.cu_seqlens = view(kI32, {3});
  return args;
}

/// Whether `found` is `expected`, of which a star at the end stands for anything.
bool is_expected(const std::string& found, const std::string& expected) {
  if (expected.back() != '*') return found == expected;
  return found.compare(0, expected.size() - 1, expected, 0, expected.size() - 1) == 0;
}

/// Ends the process with 0 if the library answers `expected` to a call that asks for this itself.
[[noreturn]] void expect_in_child(const char* variable, const char* value, sluice_split own,
                                  const std::string& expected) {
  setenv(variable, value, 1);
  sluice_chunk_forward_args args = some_call();
  args.split = own;
  if (own == SLUICE_SPLIT_SEGMENTS) args.split_value = 3;
  char kernel[128] = "";
  const int code = sluice_supported(SLUICE_OP_CHUNK_FORWARD, &args, kernel, sizeof kernel);
  const std::string found = code == SLUICE_OK ? kernel : sluice_last_error();
  std::fprintf(stderr, "%s\n", found.c_str());
  std::_Exit(is_expected(found, expected) ? 0 : 1);
}

struct ForcedCut {
  const char *variable, *value;
  sluice_split own;
  std::string expected;
};

void PrintTo(const ForcedCut& forced, std::ostream* out) {
  *out << forced.variable << "=" << forced.value << " beside split " << forced.own;
}

class CudaEnvironmentDeathTest : public ::testing::TestWithParam<ForcedCut> {
 protected:
  void SetUp() override { SLUICE_SKIP_WITHOUT_GPU(); }
};

TEST_P(CudaEnvironmentDeathTest, DecidesWhereTheCallDoesNot) {
  const ForcedCut& forced = GetParam();
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(expect_in_child(forced.variable, forced.value, forced.own, forced.expected),
              ::testing::ExitedWithCode(0), "");
}

const char* const kSplit = "SLUICE_CUDA_SPLIT";
const std::string kWhole = kKernel, kColumns = kWhole + ".columns", kCut = kWhole + ".segments";
const ForcedCut kForcedCuts[] = {
    {kSplit, "never", SLUICE_SPLIT_AUTO, kWhole},
    {kSplit, "columns", SLUICE_SPLIT_AUTO, kColumns},
    {kSplit, "length", SLUICE_SPLIT_AUTO, kCut},
    {kSplit, "4", SLUICE_SPLIT_AUTO, kCut},
    {kSplit, "auto", SLUICE_SPLIT_AUTO, kWhole + "*"},
    {kSplit, "", SLUICE_SPLIT_AUTO, kWhole + "*"},
    {kSplit, "4", SLUICE_SPLIT_NEVER, kWhole},
    {kSplit, "never", SLUICE_SPLIT_COLUMNS, kColumns},
    {kSplit, "never", SLUICE_SPLIT_SEGMENTS, kCut},
    {kSplit, "columns", SLUICE_SPLIT_LENGTH, kCut},
    {kSplit, "often", SLUICE_SPLIT_AUTO,
     "cuda: SLUICE_CUDA_SPLIT = often, expected auto, never, columns, length, cluster2, "
     "cluster4, cluster6, cluster8, prefix1, prefix2, prefix4 or 2 to 4096 segments"},
    {kSplit, "cluster4", SLUICE_SPLIT_AUTO, kWhole + "*"},  // of linear attention alone
    {kSplit, "prefix1", SLUICE_SPLIT_AUTO, kWhole + "*"},   // likewise
    {"SLUICE_CUDA_HISTORY", "short", SLUICE_SPLIT_AUTO,
     "cuda: SLUICE_CUDA_HISTORY = short, expected auto or strict"},
    {"SLUICE_CUDA_HISTORY", "strict", SLUICE_SPLIT_SEGMENTS, kCut},
};
INSTANTIATE_TEST_SUITE_P(All, CudaEnvironmentDeathTest, ::testing::ValuesIn(kForcedCuts));

}  // namespace
}  // namespace sluice::check
