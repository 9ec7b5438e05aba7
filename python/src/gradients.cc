// Runs the backward pass of a recorded chunk_forward: memory for what is wanted, one call, a tuple.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "call.hpp"
#include "recording.hpp"
#include "sluice/sluice.h"

namespace sluice::python {
namespace {

// Of chunk_backward's fields.
enum Position { kCuSeqlens = 7, kInitialState, kDo, kDFinalState, kFirstOutput, kOptions = 19 };
// Where inputs are, in the order of what is saved.
constexpr int kPlaces[] = {0, 1, 2, 3, 4, 5, 6, kInitialState};
constexpr Py_ssize_t kAll = std::size(kPlaces), kFew = kAll - 3;
constexpr Py_ssize_t kMostOptions = 32;

/// Of set_gradient_makers(); under the GIL; held.
struct Makers {
  PyObject *like = nullptr, *zeros_like = nullptr, *keywords = nullptr;
};
Makers makers;

bool is_tuple(PyObject* object, Py_ssize_t least, Py_ssize_t most) noexcept {
  if (PyTuple_Check(object) == 0) return false;
  const Py_ssize_t size = PyTuple_Size(object);
  return least <= size && size <= most;
}

/// function(input, **keywords)
PyObject* make_by(PyObject* function, PyObject* input) noexcept {
  const Ref arguments(PyTuple_Pack(1, input));
  return arguments ? PyObject_Call(function, arguments.get(), makers.keywords) : nullptr;
}

}  // namespace

PyObject* set_gradient_makers(PyObject* /*module*/, PyObject* arguments) noexcept {
  PyObject *like = nullptr, *zeros_like = nullptr, *keywords = nullptr;
  if (PyArg_ParseTuple(arguments, "OOO!", &like, &zeros_like, &PyDict_Type, &keywords) == 0) {
    return nullptr;
  }
  hold(&makers.like, like);
  hold(&makers.zeros_like, zeros_like);
  hold(&makers.keywords, keywords);
  return Py_NewRef(Py_None);
}

PyObject* chunk_gradients(PyObject* /*module*/, PyObject* const* given, Py_ssize_t count) noexcept {
  if (count != 5 || makers.keywords == nullptr || !is_tuple(given[0], kFew + 1, kAll + 1) ||
      !is_tuple(given[1], PyTuple_Size(given[0]) - 1, PY_SSIZE_T_MAX) ||
      !is_tuple(given[2], 0, kMostOptions)) {
    PyErr_SetString(PyExc_TypeError,
                    "chunk_gradients: expected saved, needed, options, d_o, d_final_state");
    return nullptr;
  }
  PyObject *const saved = given[0], *const needed = given[1], *const options = given[2];
  const Py_ssize_t inputs = PyTuple_Size(saved) - 1, arguments = PyTuple_Size(needed);
  const Py_ssize_t others = arguments - inputs;  // of the operation's, in front of its inputs
  PyObject* values[kOptions + kMostOptions];
  std::fill_n(values, std::size(values), Py_None);
  values[kCuSeqlens] = PyTuple_GetItem(saved, inputs);
  values[kDo] = given[3], values[kDFinalState] = given[4];
  // Rows past the last packed sequence have no gradient and are not written.
  PyObject* const function = values[kCuSeqlens] == Py_None ? makers.like : makers.zeros_like;
  Ref results(PyTuple_New(arguments));
  if (!results) return nullptr;
  for (Py_ssize_t i = 0; i < arguments; ++i) {
    PyTuple_SetItem(results.get(), i, Py_NewRef(Py_None));
  }
  for (Py_ssize_t i = 0; i < inputs; ++i) {
    PyObject* const input = PyTuple_GetItem(saved, i);
    values[kPlaces[i]] = input;
    if (input == Py_None || PyTuple_GetItem(needed, others + i) != Py_True) continue;
    PyObject* const made = make_by(function, input);
    if (made == nullptr) return nullptr;
    PyTuple_SetItem(results.get(), others + i, made);
    values[kFirstOutput + i] = made;
  }
  Ref initial;
  if (values[kInitialState] != Py_None) {
    initial = Ref(PyObject_CallMethod(values[kInitialState], "contiguous", nullptr));
    if (!initial) return nullptr;
    values[kInitialState] = initial.get();
  }
  const Py_ssize_t more = PyTuple_Size(options);
  for (Py_ssize_t i = 0; i < more; ++i) values[kOptions + i] = PyTuple_GetItem(options, i);
  const Ref done(run(SLUICE_OP_CHUNK_BACKWARD, values, kOptions + more, nullptr, false));
  return done ? results.release() : nullptr;
}

}  // namespace sluice::python
