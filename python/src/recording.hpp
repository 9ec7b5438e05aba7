// Declares what a call tells torch's autograd: which tensors it wrote, and that inputs ask for gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_RECORDING_HPP_
#define SLUICE_PYTHON_RECORDING_HPP_

#include <cstdint>

#include "fields.hpp"

namespace sluice::python {

/// By field: tensors that a call of operator `op` writes, of those that are `given`.
uint64_t written_fields(int op, uint64_t given, const Arguments& arguments) noexcept;

/// counter(list of tensors that were written) is called after each recorded call that writes, and
/// otherwise(list) where that raises.
void set_write_counters(PyObject* counter, PyObject* otherwise) noexcept;

/// Tells the counter of the tensors in `written`; false with an exception.
bool count_writes(uint64_t written, PyObject* const* tensors) noexcept;

/// Recorded calls of an operator go to `function` where one of the fields `inputs` asks for a
/// gradient.
void set_recorder(int op, uint64_t inputs, PyObject* function) noexcept;

/// The fields of set_recorder(); none where an operator has no gradients.
uint64_t recorded_inputs(int op) noexcept;

/// What the operator's recorder returns for the values of a vectorcall.
PyObject* call_recorder(int op, PyObject* const* values, Py_ssize_t count,
                        PyObject* names) noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_RECORDING_HPP_
