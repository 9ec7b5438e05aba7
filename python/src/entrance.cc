// Counts the threads inside operators, and those that wait until there are none.
// SPDX-License-Identifier: Apache-2.0
#include "entrance.hpp"

#include <pthread.h>

#include <atomic>

#include "python.hpp"

namespace sluice::python {
namespace {

// Both grow under the GIL alone.
std::atomic<int> inside{0}, held_up{0};

// The child has none of the threads that were inside or waited.
void after_fork_in_child() noexcept { inside = held_up = 0; }
[[maybe_unused]] const int hooked = pthread_atfork(nullptr, nullptr, after_fork_in_child);

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

Quiet::Quiet() noexcept {
  held_up.fetch_add(1);
  for (int running = inside; running != 0; running = inside) {
    Py_BEGIN_ALLOW_THREADS;
    inside.wait(running);
    Py_END_ALLOW_THREADS;
  }
}

Quiet::~Quiet() {
  held_up.fetch_sub(1);
  held_up.notify_all();
}

}  // namespace sluice::python
