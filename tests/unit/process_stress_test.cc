// Measures that the library bears what processes do to it: forks beside threads that compute, an end
// of the process beside them, calls after the pool has stopped, and many calls without growth.
// How: children under an alarm, whose answers are compared with this process's, and resident memory.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "sluice/sluice.hpp"

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_UNDER_ASAN 1
#endif
#endif

namespace sluice::testing {
namespace {

/// A prefill large enough for several threads, and a step, each on memory of its own.
class Work {
 public:
  Work() : q_(kSize), o_(kSize), state_(kH * kD * kD), workspace_(size_t{64} << 20) {
    for (size_t i = 0; i < q_.size(); ++i) q_[i] = static_cast<float>(i % 31) / 64 - 0.25f;
  }

  bool prefill() {
    ChunkForwardArgs args;
    args.q = args.k = args.v = TensorView(q_.data(), kFloat32, {1, kT, kH, kD});
    args.o = TensorView(o_.data(), kFloat32, {1, kT, kH, kD});
    return chunk_forward(args, workspace()).ok();
  }

  bool step() {
    RecurrentStepArgs args = step_args();
    return recurrent_step(args, workspace()).ok();
  }

  /// A call that is refused, with its message.
  bool refused_step() {
    RecurrentStepArgs args = step_args();
    args.v.shape[3] = kD + 1;
    return recurrent_step(args, workspace()).code == Code::kInvalidArgument;
  }

  const std::vector<float>& output() const { return o_; }

 private:
  static constexpr int64_t kT = 256, kH = 8, kD = 32;
  static constexpr size_t kSize = static_cast<size_t>(kT * kH * kD);

  RecurrentStepArgs step_args() {
    RecurrentStepArgs args;
    args.q = args.k = args.v = TensorView(q_.data(), kFloat32, {1, 1, kH, kD});
    args.o = TensorView(o_.data(), kFloat32, {1, 1, kH, kD});
    args.state.initial = TensorView(state_.data(), kFloat32, {1, kH, kD, kD});
    return args;
  }
  Workspace workspace() {
    void* data = workspace_.data();
    size_t room = workspace_.size();
    std::align(256, room - 256, data, room);
    return {data, room};
  }

  std::vector<float> q_, o_, state_;
  std::vector<std::byte> workspace_;
};

/// Threads that compute until the end of its scope.
class BusyThreads {
 public:
  explicit BusyThreads(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        Work work;
        while (!stop_) work.prefill();
      });
    }
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyThreads(const BusyThreads&) = delete;
  BusyThreads& operator=(const BusyThreads&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

/// Seconds after which a child that hangs is ended.
constexpr unsigned kPatience = 60;

int resident_kib() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  long total = 0, resident = 0;
  const bool read = file != nullptr && std::fscanf(file, "%ld %ld", &total, &resident) == 2;
  if (file != nullptr) std::fclose(file);
  return read ? static_cast<int>(resident * (sysconf(_SC_PAGESIZE) / 1024)) : -1;
}

TEST(ProcessStress, ForksBesideThreadsThatCompute) {
  Work work;
  ASSERT_TRUE(work.prefill());
  const std::vector<float> expected = work.output();
  const BusyThreads busy(3);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kPatience);
      const bool twice = work.prefill() && work.prefill();
      _exit(twice && work.output() == expected ? 0 : 1);
    }
    ASSERT_GT(child, 0);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "child " << i << ": " << status;
  }
}

TEST(ProcessStressDeathTest, TheProcessEndsBesideThreadsThatCompute) {
  for (int i = 0; i < 8; ++i) {
    const auto body = [] {
      alarm(kPatience);
      new BusyThreads(4);  // for good: main ends first
      Work().prefill();
      std::exit(0);
    };
    EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
  }
}

TEST(ProcessStressDeathTest, CallsAreRightAfterThePoolHasStopped) {
  const auto body = [] {
    alarm(kPatience);
    static Work* const work = new Work;
    static std::vector<float>* const expected = new std::vector<float>;
    // Before the pool exists: what was registered first runs last.
    std::atexit([] {
      for (int i = 0; i < 2; ++i) {
        if (!work->prefill() || work->output() != *expected) _exit(1);
      }
    });
    if (!work->prefill()) _exit(2);
    *expected = work->output();
    std::exit(0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

TEST(ProcessStress, ManyCallsDoNotGrow) {
#ifdef SLUICE_UNDER_ASAN
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  Work work;
  const auto calls = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(work.step());
      ASSERT_TRUE(work.refused_step());
      if (i % 64 != 0) continue;
      ASSERT_TRUE(work.prefill());
    }
  };
  calls(1000);
  const int before = resident_kib();
  ASSERT_GT(before, 0);
  calls(20000);
  // An eighth of a byte a call; a leak of the smallest block would be 1250 KiB.
  EXPECT_LE(resident_kib() - before, 256);
}

TEST(ProcessStressDeathTest, ALeakWouldBeSeen) {
#ifndef SLUICE_UNDER_ASAN
  GTEST_SKIP() << "LeakSanitizer comes with AddressSanitizer";
#endif
  const auto body = [] {
    // Many, since the last one may still be in a register.
    static void* volatile block = nullptr;
    for (int i = 0; i < 100; ++i) block = std::malloc(1000);
    block = nullptr;
    std::exit(block == nullptr ? 0 : 1);
  };
  EXPECT_DEATH(body(), "detected memory leaks");
}

}  // namespace
}  // namespace sluice::testing
