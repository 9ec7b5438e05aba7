// Measures whether parallel_for() runs each item exactly once, on workers that never overlap,
// whoever calls it. How: items count themselves, from one caller, several, inside items, through an
// executor and after fork(); the sanitizer builds look for races in the same runs.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cpu/parallel_for.hpp"
#include "sluice/sluice.hpp"

#if defined(__SANITIZE_THREAD__)
#define SLUICE_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_UNDER_TSAN 1
#endif
#endif

namespace sluice::cpu {
namespace {

class CpuThreads : public ::testing::Test {
 protected:
  // More threads than small machines have CPUs; read at the first use of the pool in a process.
  static void SetUpTestSuite() { setenv("SLUICE_NUM_THREADS", "5", 0); }
  void TearDown() override { ASSERT_TRUE(set_executor(nullptr, nullptr, 0).ok()); }
};

// Runs one call and says what was wrong with it: "" if nothing.
std::string faults_of_call(int64_t items, int workers) {
  std::vector<int> runs(static_cast<size_t>(items), 0);  // plain: a race is the sanitizer's to find
  std::vector<std::atomic<bool>> in_use(static_cast<size_t>(workers));
  std::atomic<bool> wrong_worker{false}, overlap{false};
  auto body = [&](int64_t item, int worker) {
    if (worker < 0 || worker >= workers || worker >= items) {
      wrong_worker = true;
      return;
    }
    if (in_use[static_cast<size_t>(worker)].exchange(true)) overlap = true;
    ++runs[static_cast<size_t>(item)];
    in_use[static_cast<size_t>(worker)] = false;
  };
  parallel_for(items, workers, body);
  if (wrong_worker) return "a worker out of range";
  if (overlap) return "two calls at once on one worker";
  for (const int count : runs) {
    if (count != 1) return "an item ran " + std::to_string(count) + " times";
  }
  return "";
}

TEST_F(CpuThreads, EachItemRunsOnce) {
  for (const int64_t items : {0, 1, 2, 3, 7, 64, 5000}) {
    for (const int workers : {1, 2, 3, 5, 64}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        ASSERT_EQ(faults_of_call(items, workers), "") << items << " items, " << workers;
      }
    }
  }
}

TEST_F(CpuThreads, ManyShortCallsInARow) {
  for (int repeat = 0; repeat < 3000; ++repeat) ASSERT_EQ(faults_of_call(6, 5), "");
}

/// Waits for what another thread has to do; false where it does not. Patience is counted in naps: on a
/// busy machine they take longer, as everything does.
template <class Done>
bool wait_until(const Done& done) {
  for (int naps = 0; naps < 5000 && !done(); ++naps) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return done();
}

/// Whether two items wait for each other, and meet.
bool two_items_meet() {
  std::atomic<int> started{0}, met{0};
  auto body = [&](int64_t, int) {
    ++started;
    met += wait_until([&] { return started == 2; });
  };
  parallel_for(2, 2, body);
  return met == 2;
}

TEST_F(CpuThreads, ItemsRunAtTheSameTime) {
  if (worker_count() < 2) GTEST_SKIP() << "one worker";
  EXPECT_TRUE(two_items_meet());
}

TEST_F(CpuThreads, ACallEndsAfterItsLastItem) {
  if (worker_count() < 2) GTEST_SKIP() << "one worker";
  // WHY static: a call that ends too early leaves a thread behind.
  static std::atomic<int> started, ended;
  started = ended = 0;
  static auto body = [](int64_t, int worker) {
    ++started;
    wait_until([] { return started == 2; });
    if (worker > 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++ended;
  };
  parallel_for(2, 2, body);
  EXPECT_EQ(ended, started);
}

/// The first item waits for a third thread, which has scratch memory of nobody.
TEST_F(CpuThreads, NoMoreThreadsThanWorkers) {
  if (worker_count() < 3) GTEST_SKIP() << "two workers";
  std::atomic<int> highest{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  auto body = [&](int64_t, int worker) {
    if (worker > highest) highest = worker;
    while (highest < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  };
  parallel_for(1000, 2, body);
  EXPECT_LE(highest, 1);
}

TEST_F(CpuThreads, SleepingThreadsWakeAgain) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_EQ(faults_of_call(500, 5), "");
  }
}

TEST_F(CpuThreads, CallersDoNotDisturbEachOther) {
  std::vector<std::string> faults(4);
  std::vector<std::thread> callers;
  for (std::string& fault : faults) {
    callers.emplace_back([&fault] {
      for (int repeat = 0; repeat < 300 && fault.empty(); ++repeat) fault = faults_of_call(40, 5);
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

/// A caller that finds the pool busy is joined by its threads when the other caller is done.
TEST_F(CpuThreads, AWaitingCallerSharesThePoolOnceItIsFree) {
  std::atomic<bool> held{false}, release{false}, shared{false};
  std::thread holder([&] {
    auto wait = [&](int64_t, int) {
      held = true;
      held.notify_all();
      release.wait(false);
    };
    parallel_for(2, 2, wait);
  });
  held.wait(false);
  auto body = [&](int64_t item, int worker) {
    if (worker > 0) shared = true;
    if (item == 3) {
      EXPECT_EQ(worker, 0) << "the pool was another caller's";
      release = true;
      release.notify_all();
      holder.join();
    }
    // The pool is free: somebody else takes one of the other items.
    if (item == 4) wait_until([&] { return shared.load(); });
  };
  parallel_for(40, 5, body);
  EXPECT_TRUE(shared);
}

TEST_F(CpuThreads, ThreadsOfThePoolTakeNoSignals) {
  sigset_t before;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  EXPECT_EQ(sigismember(&before, SIGUSR1), 0) << "the caller's own mask is as it was";
  std::atomic<int> seen{0}, open{0};
  const std::thread::id here = std::this_thread::get_id();
  auto body = [&](int64_t item, int) {
    if (std::this_thread::get_id() != here) {
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
        open += sigismember(&mask, signal) == 0;
      }
      open += sigismember(&mask, SIGSEGV) == 1;
      ++seen;
    }
    if (item == 0) wait_until([&] { return seen > 0; });
  };
  parallel_for(20, 5, body);
  EXPECT_GT(seen, 0);
  EXPECT_EQ(open, 0);
}

struct Recorder {
  std::atomic<int> calls{0};
  std::atomic<int64_t> tasks{0};
};

// An executor with a thread per task.
void run_on_threads(void* user, int64_t count, void (*task)(void*, int64_t), void* context) {
  auto* recorder = static_cast<Recorder*>(user);
  ++recorder->calls;
  recorder->tasks += count;
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i) threads.emplace_back(task, context, i);
  for (std::thread& thread : threads) thread.join();
}

// The poorest executor that the interface allows.
void run_backwards(void*, int64_t count, void (*task)(void*, int64_t), void* context) {
  for (int64_t i = count; i-- > 0;) task(context, i);
}

// Calls parallel_for() inside items; counts inner items that left their caller's thread.
int strayed_inner_items() {
  std::atomic<int> inner_items{0}, strayed{0};
  auto outer = [&](int64_t, int) {
    const std::thread::id here = std::this_thread::get_id();
    auto inner = [&](int64_t, int worker) {
      ++inner_items;
      if (worker != 0 || std::this_thread::get_id() != here) ++strayed;
    };
    parallel_for(10, 5, inner);
  };
  parallel_for(20, 5, outer);
  EXPECT_EQ(inner_items, 200);
  return strayed;
}

TEST_F(CpuThreads, CallsInsideItemsStayOnTheirThread) {
  EXPECT_EQ(strayed_inner_items(), 0);
  Recorder recorder;
  ASSERT_TRUE(set_executor(run_on_threads, &recorder, 3).ok());
  EXPECT_EQ(strayed_inner_items(), 0);
  EXPECT_EQ(recorder.calls, 1);
}

TEST_F(CpuThreads, ExecutorRunsTheItems) {
  Recorder recorder;
  ASSERT_TRUE(set_executor(run_on_threads, &recorder, 3).ok());
  EXPECT_EQ(worker_count(), 3);
  EXPECT_EQ(faults_of_call(100, 64), "");
  EXPECT_EQ(recorder.calls, 1);
  EXPECT_EQ(recorder.tasks, 3);
  EXPECT_EQ(faults_of_call(2, 64), "");
  EXPECT_EQ(recorder.tasks, 5);
  ASSERT_TRUE(set_executor(run_backwards, nullptr, 8).ok());
  EXPECT_EQ(faults_of_call(100, 8), "");
  ASSERT_TRUE(set_executor(nullptr, nullptr, 0).ok());
  EXPECT_EQ(faults_of_call(100, 8), "");
  EXPECT_EQ(recorder.calls, 2);
}

TEST_F(CpuThreads, ExecutorWithoutThreadsIsRefused) {
  const int before = worker_count();
  const Status status = set_executor(run_backwards, nullptr, 0);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_STREQ(status.message, "set_executor: threads = 0, expected at least 1");
  EXPECT_EQ(worker_count(), before);
}

/// One gated RMSNorm of rows enough for threads, through the C interface.
Status norm_of_rows() {
  static std::vector<float> memory(3 * 4096 * 32, 1.0f);
  GatedRmsNormArgs args;
  args.x = TensorView(memory.data(), {4096, 32});
  args.z = TensorView(memory.data() + 4096 * 32, {4096, 32});
  args.out = TensorView(memory.data() + 2 * 4096 * 32, {4096, 32});
  args.weight = args.z.sliced(0, 0, 1);
  args.weight.rank = 1, args.weight.shape[0] = 32, args.weight.stride[0] = 1;
  return gated_rms_norm(args);
}

TEST_F(CpuThreads, AnExecutorThatThrowsIsAnErrorOfThatCall) {
  const auto throws = [](void*, int64_t, void (*)(void*, int64_t), void*) {
    throw std::runtime_error("no threads");
  };
  ASSERT_EQ(sluice_set_executor(throws, nullptr, 4), SLUICE_OK);
  const Status status = norm_of_rows();
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_STREQ(status.message,
               "cpu: executor = threw an exception, expected one that returns "
               "(sluice_set_executor; outputs are incomplete)");
  ASSERT_EQ(sluice_set_executor(nullptr, nullptr, 0), SLUICE_OK);
  EXPECT_TRUE(norm_of_rows().ok());
}

TEST_F(CpuThreads, ExecutorsAreNotReplacedWhileOperatorsRun) {
  static std::string message;
  const auto replaces = [](void*, int64_t count, void (*task)(void*, int64_t), void* context) {
    if (sluice_set_executor(nullptr, nullptr, 0) != SLUICE_OK) message = sluice_last_error();
    for (int64_t i = 0; i < count; ++i) task(context, i);
  };
  ASSERT_EQ(sluice_set_executor(replaces, nullptr, 4), SLUICE_OK);
  EXPECT_TRUE(norm_of_rows().ok());
  EXPECT_EQ(message, "set_executor: operators running = 1, expected none");
  ASSERT_EQ(sluice_set_executor(nullptr, nullptr, 0), SLUICE_OK);
}

TEST_F(CpuThreads, AForkedChildStartsItsOwnThreads) {
#ifdef SLUICE_UNDER_TSAN
  GTEST_SKIP() << "ThreadSanitizer does not allow threads after a fork";
#endif
  ASSERT_EQ(faults_of_call(100, 5), "");
  const pid_t child = fork();
  if (child == 0) {
    const bool right = faults_of_call(100, 5).empty() && faults_of_call(100, 5).empty();
    _exit(right && (worker_count() < 2 || two_items_meet()) ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace sluice::cpu
