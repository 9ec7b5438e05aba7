// Runs the CPU backend on a number of threads that Python chose, by the library's executor hook.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_THREADS_HPP_
#define SLUICE_PYTHON_THREADS_HPP_

namespace sluice::python {

/// `threads` >= 1 from now on; 0 = the library's own pool again. A sluice_code. No operator may be
/// running.
int use_threads(int threads) noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_THREADS_HPP_
