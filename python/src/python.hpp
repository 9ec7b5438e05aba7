// Includes Python's stable interface, and adds the little that every file here needs of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_PYTHON_HPP_
#define SLUICE_PYTHON_PYTHON_HPP_

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000  // 3.11: the first with buffers in the stable interface
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <utility>

namespace sluice::python {

struct GiveBack {
  void operator()(PyObject* object) const noexcept { Py_DECREF(object); }
};
/// Owns one reference.
using Ref = std::unique_ptr<PyObject, GiveBack>;

/// Holds `object` where another object was held.
inline void hold(PyObject** place, PyObject* object) noexcept {
  const Ref old(std::exchange(*place, Py_NewRef(object)));
}

/// sluice's exception class for a sluice_code; borrowed.
PyObject* error_class(int code) noexcept;

/// Raises sluice's exception for `code` with a message of printf's form; always returns false.
bool fail(int code, const char* format, ...) noexcept;

/// sluice._arrays, the part of a call that is written in Python; borrowed, null with an exception.
PyObject* arrays_module() noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_PYTHON_HPP_
