// Declares what the module's functions do: an operator call, from keywords to the library, the number of
// threads, and the command-line tool, in wheels that carry it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_CALL_HPP_
#define SLUICE_PYTHON_CALL_HPP_

#include "python.hpp"

namespace sluice::python {

/// Runs operator `op` on the values of a vectorcall: `count` positional ones in the order of its
/// fields, stream and workspace, then keywords (the tuple `names` or null); None, or null with an
/// exception. The GIL is released while the library works. recorded: gradients are enabled, so tensors
/// whose requires_grad is True are refused or the call goes to the operator's recorder, and tensors that
/// were written are counted.
PyObject* run(int op, PyObject* const* values, Py_ssize_t count, PyObject* names,
              bool recorded) noexcept;

/// The name of the kernel that would run, as str; or null with the exception of the call.
PyObject* kernel_for(int op, PyObject* const* values, PyObject* names) noexcept;

/// `threads` >= 1 from now on; 0 = the library's own pool again. A sluice_code. Waits until no thread is
/// inside an operator, and lets none in meanwhile.
int use_threads(int threads) noexcept;

/// While it lives, this thread is inside an operator; waits for use_threads() to end first. Made and
/// ended under the GIL, which its wait gives away.
class Entrance {
 public:
  Entrance() noexcept;
  ~Entrance();
  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;
};

/// tool(words) runs the command `words`, its own name first, and returns the exit status.
PyObject* tool(PyObject* module, PyObject* words) noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_CALL_HPP_
