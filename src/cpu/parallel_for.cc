// Runs jobs on a pool of threads: a caller that finds it free becomes worker 0 of a job and wakes
// as many threads as the job has seats; all of them draw items from one counter. A caller that
// finds it busy begins alone and shares what is left when the pool is free; one that is itself a
// worker stays alone. No lock is held while items run.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel_for.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "core/environment.hpp"
#include "cpu/cpu_quota.hpp"

namespace sluice::cpu {
namespace {

// Longest wait, in pauses of about 10 to 40 ns, before a thread sleeps: about the gap between two
// operators of a decode step, against some 10 us for a wake-up through the kernel.
constexpr int kSpinPauses = 1000;

void pause_briefly() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Set while this thread runs items: a call from inside an item must not wait for other workers.
thread_local bool inside_item = false;

struct Job {
  int64_t items;
  void (*body)(void* context, int64_t item, int worker);
  void* context;
  std::atomic<int64_t> next{0};

  /// Whether there was an item left to run.
  bool run_one(int worker) noexcept {
    const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
    if (item >= items) return false;
    const bool outer = inside_item;
    inside_item = true;
    body(context, item, worker);
    inside_item = outer;
    return true;
  }
  void work(int worker) noexcept {
    while (run_one(worker)) {
    }
  }
  [[nodiscard]] bool done() const noexcept { return next.load(std::memory_order_relaxed) >= items; }
};

/// Keeps signals of the process from the threads that are created in its scope. Those that a thread
/// raises itself, and a profiler's, stay.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) {
      sigdelset(&all, own);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

class Pool {
 public:
  /// Starts up to `threads` threads; fewer where the system refuses.
  explicit Pool(int threads) noexcept {
    const SignalsBlocked blocked;
    try {
      threads_.reserve(static_cast<size_t>(threads));
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
    } catch (const std::exception&) {
      // WHY: results do not depend on the number of threads, so fewer are slower, not an error.
    }
  }

  /// Runs the job, at first alone if another one is running, else on `workers` threads, the caller
  /// among them.
  void run(Job& job, int workers) noexcept {
    bool free = enter();
    while (!free && job.run_one(0)) free = enter();
    if (!free) return;
    const int seats = std::min(workers - 1, static_cast<int>(threads_.size()));
    if (seats > 0 && !job.done()) {
      open(job, seats);
      job.work(0);
      close();
    } else {
      job.work(0);
    }
    busy_.store(false, std::memory_order_release);
  }

  /// Ends the threads; calls from now on run serially in run()'s caller.
  void stop() noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  /// Whether the pool was free and is the caller's now. PERF: looks before it writes, as a caller that
  /// waits asks after each of its items.
  bool enter() noexcept {
    return !busy_.load(std::memory_order_relaxed) &&
           !busy_.exchange(true, std::memory_order_acquire);
  }

  void open(Job& job, int seats) noexcept {
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      seats_ = seats;
      taken_ = 0;
      generation_.fetch_add(1, std::memory_order_release);
    }
    if (seats == 1) {
      wake_.notify_one();
    } else {
      wake_.notify_all();
    }
  }

  /// Lets no further thread in and waits for those inside.
  void close() noexcept {
    {
      const std::lock_guard lock(mutex_);
      job_ = nullptr;
    }
    for (int i = 0; i < kSpinPauses; ++i) {
      if (active_.load(std::memory_order_acquire) == 0) return;
      pause_briefly();
    }
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return active_.load(std::memory_order_acquire) == 0; });
  }

  void serve() noexcept {
    uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpinPauses; ++i) {
        if (generation_.load(std::memory_order_acquire) != seen) break;
        pause_briefly();
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock,
                 [&] { return stopping_ || generation_.load(std::memory_order_relaxed) != seen; });
      seen = generation_.load(std::memory_order_relaxed);
      if (job_ == nullptr || taken_ == seats_) {
        if (stopping_) return;
        continue;
      }
      Job& job = *job_;
      const int worker = ++taken_;
      active_.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      job.work(worker);
      lock.lock();
      if (active_.fetch_sub(1, std::memory_order_release) == 1) idle_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::atomic<bool> busy_{false};
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> active_{0};
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  Job* job_ = nullptr;  // this and the next three: under mutex_
  int seats_ = 0;
  int taken_ = 0;
  bool stopping_ = false;
};

// The process' pool. Never deleted: a thread may be inside when the process ends.
std::atomic<Pool*> current_pool{nullptr};
std::mutex start_mutex;
// Calls of operators, of all threads.
std::atomic<int> running_calls{0};
// After fork() the child has no threads of the parent's pool: it forgets the pool (kept reachable
// here for leak checkers) and starts its own at its next call.
Pool* forgotten_pool = nullptr;

void before_fork() noexcept { start_mutex.lock(); }
void after_fork_in_parent() noexcept { start_mutex.unlock(); }
void after_fork_in_child() noexcept {
  forgotten_pool = current_pool.exchange(nullptr);
  running_calls = 0;  // those of the parent's other threads
  start_mutex.unlock();
}

struct StopAtExit {
  StopAtExit() noexcept { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }
  // WHY: threads must not outlive the code they run if the library is unloaded.
  ~StopAtExit() {
    Pool* pool = current_pool.load(std::memory_order_acquire);
    if (pool != nullptr) pool->stop();
  }
};

struct Executor {
  sluice_parallel_for function = nullptr;
  void* user = nullptr;
  int threads = 0;
};
Executor executor;
// Set where the executor threw in a call of this thread; the call reports it.
thread_local bool executor_threw = false;

/// CPUs that the process may run on.
int affine_cpus() noexcept {
  // The kernel refuses a mask smaller than its own, so try growing ones.
  for (size_t cpus = 1024; cpus <= (size_t{1} << 20); cpus *= 2) {
    cpu_set_t* mask = CPU_ALLOC(cpus);
    if (mask == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const int count = sched_getaffinity(0, bytes, mask) == 0 ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

constexpr long kMaxThreads = 4096;

/// SLUICE_NUM_THREADS: 0 where it says nothing, -1 where it is no number from 1 to kMaxThreads.
long wanted_threads() noexcept {
  const char* text = core::variable(core::Variable::kNumThreads);
  if (text == nullptr) return 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 1 && value <= kMaxThreads ? value : -1;
}

int configured_threads() noexcept {
  const long wanted = wanted_threads();
  return wanted > 0 ? static_cast<int>(wanted) : cpus_within_quota(affine_cpus());
}

int own_threads() noexcept {
  static const int count = configured_threads();
  return count;
}

Pool* started_pool() noexcept {
  Pool* pool = current_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return pool;
  static const StopAtExit stop_at_exit;
  const std::lock_guard lock(start_mutex);
  pool = current_pool.load(std::memory_order_relaxed);
  if (pool != nullptr) return pool;
  pool = new (std::nothrow) Pool(own_threads() - 1);
  current_pool.store(pool, std::memory_order_release);
  return pool;
}

// The executor's task i is worker i: all tasks of one call draw from one counter, so an executor
// that runs them one after the other is served as well as one that runs them at once.
void run_on_executor(Job& job, int workers) noexcept {
  try {
    executor.function(
        executor.user, workers,
        [](void* context, int64_t worker) {
          static_cast<Job*>(context)->work(static_cast<int>(worker));
        },
        &job);
  } catch (...) {
    executor_threw = true;
  }
}

}  // namespace

int worker_count() noexcept {
  return executor.function != nullptr ? executor.threads : own_threads();
}

Status threads_request() noexcept {
  static const Status status = []() noexcept {
    if (wanted_threads() >= 0) return ok_status();
    return Status::failure(Code::kInvalidArgument,
                           "cpu: SLUICE_NUM_THREADS = %s, expected a number from 1 to %ld",
                           core::variable(core::Variable::kNumThreads), kMaxThreads);
  }();
  return status;
}

Status start_workers() noexcept {
  if (executor.function != nullptr || own_threads() <= 1) return ok_status();
  if (started_pool() == nullptr) {
    return Status::failure(Code::kInternal, "warm_up: out of memory for the thread pool");
  }
  return ok_status();
}

Status set_executor(sluice_parallel_for function, void* user, int threads) noexcept {
  if (function != nullptr && threads < 1) {
    return Status::failure(Code::kInvalidArgument,
                           "set_executor: threads = %d, expected at least 1", threads);
  }
  if (const int running = running_calls.load(std::memory_order_relaxed); running > 0) {
    return Status::failure(Code::kInvalidArgument,
                           "set_executor: operators running = %d, expected none", running);
  }
  executor = function != nullptr ? Executor{function, user, threads} : Executor{};
  return ok_status();
}

void parallel_for(int64_t items, int workers, void (*body)(void* context, int64_t item, int worker),
                  void* context) noexcept {
  if (items <= 0) return;
  Job job{items, body, context};
  const int lanes = static_cast<int>(std::min<int64_t>(std::min(workers, worker_count()), items));
  if (lanes <= 1 || inside_item) return job.work(0);
  if (executor.function != nullptr) return run_on_executor(job, lanes);
  Pool* pool = started_pool();
  pool != nullptr ? pool->run(job, lanes) : job.work(0);
}

RunningCall::RunningCall() noexcept {
  running_calls.fetch_add(1, std::memory_order_relaxed);
  executor_threw = false;
}

RunningCall::~RunningCall() { running_calls.fetch_sub(1, std::memory_order_relaxed); }

bool RunningCall::lost_items() const noexcept { return executor_threw; }

}  // namespace sluice::cpu
