// Remembers how objects of each type are read, and asks tensors of torch what no view shows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_TYPES_HPP_
#define SLUICE_PYTHON_TYPES_HPP_

#include "dlpack_abi.hpp"
#include "python.hpp"

namespace sluice::python {

/// How objects of one type are read.
struct TypeEntry {
  PyTypeObject* type;
  const dlpack::ExchangeApi* api;    ///< null: by buffer or capsule
  const PyGetSetDef* requires_grad;  ///< null: no attribute of C's
  const PyMethodDef* is_neg;         ///< null: no method of C's
  bool buffer;
  bool recorded;  ///< tensors may ask for a gradient: they have requires_grad
  bool lazy;      ///< tensors may be negated without their memory being so: they have is_neg()
};

/// The entry of the object's type, which is examined once.
TypeEntry entry_of(PyObject* object) noexcept;

/// Whether a tensor of torch asks for a gradient; false for anything else.
bool asks_for_gradient(PyObject* object) noexcept;

/// Whether the memory of a tensor of a lazy type has the other sign: 1, 0, or -1 with an exception.
int is_negated(PyObject* object, const TypeEntry& entry) noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_TYPES_HPP_
