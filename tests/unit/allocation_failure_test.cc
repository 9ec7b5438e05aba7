// Measures what running out of memory does to operators, to the writing of files and to the search for
// a quota: every allocation fails in turn, and each time there is an answer and no crash. (Headers are another
// matter: the JSON library's destructors allocate, and end the process where they cannot.)
// SPDX-License-Identifier: Apache-2.0
//
// WHY not under sanitizers: they have operators of their own, whose checks these would hide.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "cpu/cpu_quota.hpp"
#include "io/whole_file.hpp"
#include "sluice/sluice.hpp"

namespace {

// Allocations of this thread that succeed before all others fail; negative: none fails.
thread_local long allocations_left = -1;

bool fails() {
  if (allocations_left < 0) return false;
  return allocations_left == 0 || --allocations_left < 0;
}

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  void* const memory = fails() ? nullptr : std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace sluice::io {
namespace {

/// Runs `call` with 0, 1, 2, .. allocations until it succeeds; how often it was refused.
template <class Call>
int refusals_of(Call call) {
  for (int allowed = 0; allowed < 5000; ++allowed) {
    allocations_left = allowed;
    const Status status = call();
    allocations_left = -1;
    if (status.ok()) return allowed;
    EXPECT_NE(status.message[0], '\0') << "refused without a word after " << allowed;
  }
  ADD_FAILURE() << "never succeeded";
  return 0;
}

TEST(AllocationFailures, OfWritingLeaveTheOldFile) {
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice-alloc-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::string path = pattern + "/a name that is longer than short strings are";
  std::ofstream(path) << "old";
  const std::string text = "the new content";
  const int refused = refusals_of([&] {
    const Status status = write_whole_file(path, std::as_bytes(std::span(text)));
    allocations_left = -1;
    EXPECT_TRUE(status.ok() || std::filesystem::file_size(path) == 3) << "the old file is gone";
    return status;
  });
  EXPECT_GT(refused, 1);
  const auto entries = std::filesystem::directory_iterator(pattern);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "a part was left behind";
  std::filesystem::remove_all(pattern);
}

TEST(AllocationFailures, OfTheQuotaAreNoQuota) {
  for (int allowed = 0; allowed < 50; ++allowed) {
    allocations_left = allowed;
    const int cpus = cpu::quota_cpus();
    allocations_left = -1;
    EXPECT_GE(cpus, 0);
  }
}

/// Threads are what operators allocate: without them the result is the same.
/// In a process of its own: a pool that cannot start its threads does without them from then on.
void run_operators_without_memory() {
  constexpr int64_t kT = 70, kH = 4, kD = 32;
  const std::vector<float> x(static_cast<size_t>(kT * kH * kD), 0.1f);
  std::vector<float> o(x.size()), expected(x.size());
  ChunkForwardArgs args;
  args.q = args.k = args.v = TensorView(const_cast<float*>(x.data()), kFloat32, {1, kT, kH, kD});
  args.o = TensorView(o.data(), kFloat32, {1, kT, kH, kD});
  Result<WorkspaceSize> size = workspace_size(args);
  ASSERT_TRUE(size.ok()) << size.status.message;
  std::vector<std::byte> scratch(size.value.bytes + 256);
  const auto misfit = reinterpret_cast<uintptr_t>(scratch.data()) % 256;
  const Workspace workspace{scratch.data() + (256 - misfit) % 256, size.value.bytes};
  for (int allowed = 0; allowed < 50; ++allowed) {
    std::fill(o.begin(), o.end(), -1.0f);
    allocations_left = allowed;
    const Status status = chunk_forward(args, workspace);
    char text[64];
    sluice_capability(text, sizeof text);
    allocations_left = -1;
    ASSERT_TRUE(status.ok()) << status.message;
    if (allowed == 0) expected = o;
    EXPECT_EQ(o, expected) << "after " << allowed << " allocations";
  }
}

TEST(AllocationFailures, OfOperatorsChangeNothing) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    run_operators_without_memory();
    _exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "what failed is printed above";
}

}  // namespace
}  // namespace sluice::io

#endif  // not sanitized
