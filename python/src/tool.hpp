// Declares the entry of the command-line tool, in wheels that carry it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_TOOL_HPP_
#define SLUICE_PYTHON_TOOL_HPP_

#include "python.hpp"

namespace sluice::python {

/// tool(words) runs the command `words`, its own name first, and returns the exit status.
PyObject* tool(PyObject* module, PyObject* words) noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_TOOL_HPP_
