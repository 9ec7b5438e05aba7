// Examines types of tensors, and calls what torch declared in C without looking it up by name.
// SPDX-License-Identifier: Apache-2.0
#include "views.hpp"

#include <cstring>

namespace sluice::python {
namespace {

constexpr int kMostTypes = 32;
TypeEntry known_types[kMostTypes];  // under the GIL; types are held
int known_type_count = 0;

const char* name_in(const PyGetSetDef& place) noexcept { return place.name; }
const char* name_in(const PyMethodDef& place) noexcept { return place.ml_name; }

/// What C declared as `name` in a table of the type, or of that which it inherits it from; null if it
/// is not C's. PERF called directly it saves the look-up by name, a quarter of an attribute's price.
template <class Place>
const Place* declared(PyObject* type, const char* name, int slot) noexcept {
  const Ref descriptor(PyObject_GetAttrString(type, name));
  const Ref owner(descriptor ? PyObject_GetAttrString(descriptor.get(), "__objclass__") : nullptr);
  PyErr_Clear();
  if (!owner || PyType_Check(owner.get()) == 0) return nullptr;
  const auto* place =
      static_cast<const Place*>(PyType_GetSlot(reinterpret_cast<PyTypeObject*>(owner.get()), slot));
  PyErr_Clear();
  while (place != nullptr && name_in(*place) != nullptr) {
    if (std::strcmp(name_in(*place), name) == 0) return place;
    ++place;
  }
  return nullptr;
}

TypeEntry examine(PyObject* object, PyTypeObject* type) noexcept {
  TypeEntry entry{type, nullptr, nullptr, nullptr, false, false, false};
  auto* const kind = reinterpret_cast<PyObject*>(type);
  const Ref capsule(PyObject_GetAttrString(kind, "__dlpack_c_exchange_api__"));
  if (capsule && PyCapsule_IsValid(capsule.get(), "dlpack_exchange_api") != 0) {
    const auto* api = static_cast<const dlpack::ExchangeApi*>(
        PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
    while (api != nullptr && api->version.major > dlpack::kMajor) api = api->previous;
    if (api != nullptr && api->version.major == dlpack::kMajor && api->view_from_object) {
      entry.api = api;
    }
  }
  PyErr_Clear();
  entry.buffer = PyObject_CheckBuffer(object) != 0;
  entry.recorded = PyObject_HasAttrString(kind, "requires_grad") != 0;
  entry.lazy = PyObject_HasAttrString(kind, "is_neg") != 0;
  entry.requires_grad = declared<PyGetSetDef>(kind, "requires_grad", Py_tp_getset);
  const auto* is_neg = declared<PyMethodDef>(kind, "is_neg", Py_tp_methods);
  if (is_neg != nullptr && is_neg->ml_flags == METH_NOARGS) entry.is_neg = is_neg;
  return entry;
}

}  // namespace

TypeEntry entry_of(PyObject* object) noexcept {
  PyTypeObject* type = Py_TYPE(object);
  for (int i = 0; i < known_type_count; ++i) {
    if (known_types[i].type == type) return known_types[i];
  }
  const TypeEntry entry = examine(object, type);
  if (known_type_count < kMostTypes) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    known_types[known_type_count++] = entry;
  }
  return entry;
}

bool asks_for_gradient(PyObject* tensor) noexcept {
  const TypeEntry entry = entry_of(tensor);
  if (!entry.recorded) return false;
  static PyObject* const name = PyUnicode_InternFromString("requires_grad");
  const Ref asks(entry.requires_grad != nullptr
                     ? entry.requires_grad->get(tensor, entry.requires_grad->closure)
                     : PyObject_GetAttr(tensor, name));
  PyErr_Clear();
  return asks && asks.get() == Py_True;
}

int is_negated(PyObject* object, const TypeEntry& entry) noexcept {
  static PyObject* const name = PyUnicode_InternFromString("is_neg");
  const Ref negated(entry.is_neg != nullptr ? entry.is_neg->ml_meth(object, nullptr)
                                            : PyObject_CallMethodObjArgs(object, name, nullptr));
  if (!negated) return -1;
  return negated.get() == Py_True ? 1 : 0;
}

}  // namespace sluice::python
