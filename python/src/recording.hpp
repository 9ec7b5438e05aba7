// Declares what a call tells torch's autograd: which tensors it wrote, and that inputs ask for gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_RECORDING_HPP_
#define SLUICE_PYTHON_RECORDING_HPP_

#include <cstdint>

#include "fields.hpp"

namespace sluice::python {

/// By field: tensors that a call of operator `op` writes, of those that are `given`.
uint64_t written_fields(int op, uint64_t given, const Arguments& arguments) noexcept;

/// Tells the counter of the tensors in `written`; false with an exception.
bool count_writes(uint64_t written, PyObject* const* tensors) noexcept;

/// The inputs of set_recorder(), by field; none where an operator has no gradients.
uint64_t recorded_inputs(int op) noexcept;

/// What the operator's recorder returns for the values of a vectorcall.
PyObject* call_recorder(int op, PyObject* const* values, Py_ssize_t count,
                        PyObject* names) noexcept;

// Functions of the module.

/// count_writes(counter, otherwise): counter(list of tensors that were written) is called after each
/// recorded call that writes, and otherwise(list) where that raises.
PyObject* set_write_counters(PyObject* module, PyObject* arguments) noexcept;

/// record_gradients(op, inputs, function): recorded calls of an operator go to `function` where one of
/// the fields `inputs` asks for a gradient.
PyObject* set_recorder(PyObject* module, PyObject* arguments) noexcept;

/// gradient_makers(like, zeros_like, keywords): how memory for a gradient is made, like(input,
/// **keywords) or zeros_like(input, **keywords).
PyObject* set_gradient_makers(PyObject* module, PyObject* arguments) noexcept;

/// chunk_gradients(saved, needed, options, d_o, d_final_state), all by position: runs the backward pass
/// of a recorded chunk_forward. The tuple of what autograd is to have by each of the operation's
/// arguments, or null with an exception.
/// saved: q, k, v, gate, beta and, all three or none, A_log, dt_bias, initial_state; then
/// cu_seqlens. needed: whether autograd wants a gradient, by argument; the inputs are the last ones.
/// options: chunk_backward's values behind its tensors.
PyObject* chunk_gradients(PyObject* module, PyObject* const* given, Py_ssize_t count) noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_RECORDING_HPP_
