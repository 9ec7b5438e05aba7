// Declares the backward pass of a recorded chunk_forward, with memory for the gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_GRADIENTS_HPP_
#define SLUICE_PYTHON_GRADIENTS_HPP_

#include "python.hpp"

namespace sluice::python {

/// How memory for a gradient is made: like(input, **keywords), or zeros_like(input, **keywords).
void set_gradient_makers(PyObject* like, PyObject* zeros_like, PyObject* keywords) noexcept;

/// chunk_gradients(saved, needed, options, d_o, d_final_state), all by position: the tuple of what
/// autograd is to have by each of the operation's arguments, or null with an exception.
/// saved: q, k, v, gate, beta and, all three or none, A_log, dt_bias, initial_state; then
/// cu_seqlens. needed: whether autograd wants a gradient, by argument; the inputs are the last ones.
/// options: chunk_backward's values behind its tensors.
PyObject* chunk_gradients(PyObject* const* given, Py_ssize_t count) noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_GRADIENTS_HPP_
