// Runs a team of threads that start with the first job, and counts the threads inside operators. A
// caller who finds the team busy runs its job alone.
// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "sluice/sluice.h"

namespace sluice::python {
namespace {

using Task = void (*)(void* context, int64_t i);

class Team {
 public:
  explicit Team(int threads) noexcept : size_(threads) {}

  ~Team() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int size() const noexcept { return size_; }

  void run(int64_t count, Task task, void* context) noexcept {
    std::unique_lock<std::mutex> alone(caller_, std::try_to_lock);
    if (!alone.owns_lock() || count <= 1 || size_ <= 1) {
      for (int64_t i = 0; i < count; ++i) task(context, i);
      return;
    }
    start();
    {
      const std::lock_guard lock(mutex_);
      task_ = task;
      context_ = context;
      count_ = count;
      next_ = 0;
    }
    wake_.notify_all();
    std::unique_lock lock(mutex_);
    work(lock);
    done_.wait(lock, [this] { return active_ == 0; });
  }

 private:
  void start() noexcept {
    try {
      while (threads_.size() + 1 < static_cast<size_t>(size_)) {
        threads_.emplace_back([this] { serve(); });
      }
    } catch (const std::exception&) {
      // WHY: results do not depend on the number of threads, so fewer are slower, not an error.
    }
  }

  /// Draws tasks until none is left; the lock is held on entry and on return.
  void work(std::unique_lock<std::mutex>& lock) noexcept {
    ++active_;
    while (next_ < count_) {
      const int64_t i = next_++;
      lock.unlock();
      task_(context_, i);
      lock.lock();
    }
    --active_;
  }

  void serve() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stopping_ || next_ < count_; });
      if (stopping_) return;
      work(lock);
      if (active_ == 0) done_.notify_one();
    }
  }

  const int size_;
  std::mutex caller_;  // held by the caller whose job runs
  std::mutex mutex_;   // of all below
  std::condition_variable wake_, done_;
  std::vector<std::thread> threads_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  int64_t next_ = 0;
  int active_ = 0;
  bool stopping_ = false;
};

// Not deleted at exit: a thread may be inside when the process ends.
std::atomic<Team*> team{nullptr};
Team* forgotten_team = nullptr;

void run_on_team(void*, int64_t count, Task task, void* context) {
  team.load(std::memory_order_acquire)->run(count, task, context);
}

// Threads inside operators, and those that wait until there are none. Both grow under the GIL alone.
std::atomic<int> inside{0}, held_up{0};

// A child process has none of the threads, whether of the team, inside or waiting: it goes on with a
// new team, which starts when needed.
void after_fork_in_child() noexcept {
  inside = held_up = 0;
  Team* old = team.load(std::memory_order_relaxed);
  if (old == nullptr) return;
  forgotten_team = old;
  Team* fresh = new (std::nothrow) Team(old->size());
  if (fresh == nullptr) sluice_set_executor(nullptr, nullptr, 0);
  team.store(fresh, std::memory_order_release);
}
const int hooked = pthread_atfork(nullptr, nullptr, after_fork_in_child);

/// While it lives, no thread is inside an operator: it waits for those that are, and others wait at
/// the entrance. Made and ended under the GIL, which its wait gives away.
class Quiet {
 public:
  Quiet() noexcept {
    held_up.fetch_add(1);
    for (int running = inside; running != 0; running = inside) {
      Py_BEGIN_ALLOW_THREADS;
      inside.wait(running);
      Py_END_ALLOW_THREADS;
    }
  }
  ~Quiet() {
    held_up.fetch_sub(1);
    held_up.notify_all();
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

}  // namespace

Entrance::Entrance() noexcept {
  for (int waiting = held_up; waiting != 0; waiting = held_up) {
    Py_BEGIN_ALLOW_THREADS;
    held_up.wait(waiting);
    Py_END_ALLOW_THREADS;
  }
  inside.fetch_add(1, std::memory_order_relaxed);
}

Entrance::~Entrance() {
  if (inside.fetch_sub(1) == 1 && held_up != 0) inside.notify_all();
}

int use_threads(int threads) noexcept {
  const Quiet quiet;
  if (hooked != 0) return SLUICE_INTERNAL;
  Team* fresh = nullptr;
  if (threads > 0) {
    fresh = new (std::nothrow) Team(threads);
    if (fresh == nullptr) return SLUICE_INTERNAL;
  }
  const int code = sluice_set_executor(fresh != nullptr ? run_on_team : nullptr, nullptr, threads);
  if (code != SLUICE_OK) {
    delete fresh;
    return code;
  }
  delete team.exchange(fresh, std::memory_order_acq_rel);
  return SLUICE_OK;
}

}  // namespace sluice::python
