// Contexts of fibers and of the scheduler between them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_CONTEXT_HPP_
#define SLUICE_TESTS_EMULATION_CONTEXT_HPP_

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>

namespace emulation {

/// Where a fiber goes on.
class Context {
 public:
  /// Will begin with `entry` on this stack.
  void prepare(char* stack, size_t bytes, void (*entry)()) {
    getcontext(&start_);
    start_.uc_stack.ss_sp = stack;
    start_.uc_stack.ss_size = bytes;
    start_.uc_link = nullptr;
    makecontext(&start_, entry, 0);
    begins_ = true;
  }
  /// Goes on at `to`, until somebody switches back. WHY jumps: swapcontext() asks the system for
  /// the signal mask each time, and tests switch millions of times.
  [[gnu::noinline]] void switch_to(Context& to) {
    if (_setjmp(here_) != 0) return;
    if (!to.begins_) _longjmp(to.here_, 1);
    to.begins_ = false;
    setcontext(&to.start_);
  }

 private:
  ucontext_t start_;
  jmp_buf here_;
  bool begins_ = false;
};

}  // namespace emulation

#endif  // SLUICE_TESTS_EMULATION_CONTEXT_HPP_
