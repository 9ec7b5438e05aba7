// Makes the module sluice._core: the operators of the C interface by keyword, and the library
// functions.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>

#include "call.hpp"
#include "fields.hpp"
#include "python.hpp"
#include "recording.hpp"
#include "sluice/sluice.h"

namespace sluice::python {
namespace {

constexpr int kCodes = SLUICE_INTERNAL + 1;
PyObject* error_classes[kCodes];  // set once, at import

template <int op, bool recorded>
PyObject* run_operator(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  return run(op, values, count, names, recorded);
}

PyObject* supported(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  if (count != 1) {
    PyErr_SetString(PyExc_TypeError, "supported: expected one operator name, then keywords");
    return nullptr;
  }
  const int op = operator_index(values[0]);
  return op < 0 ? nullptr : kernel_for(op, values + 1, names);
}

PyObject* fields(PyObject*, PyObject* name) {
  static const char* const kKinds[] = {"input", "output", "update", "double", "scale",
                                       "int",   "int",    "choice", "stream", "workspace"};
  const int op = operator_index(name);
  if (op < 0) return nullptr;
  Ref list(PyList_New(0));
  for (const Field& field : operator_of(op).fields) {
    const char* first = field.choices != nullptr ? field.choices[0] : nullptr;
    const Ref item(Py_BuildValue("(szzz)", field.name, kKinds[static_cast<int>(field.kind)], first,
                                 field.unless));
    if (!list || !item || PyList_Append(list.get(), item.get()) != 0) return nullptr;
  }
  return list.release();
}

PyObject* version(PyObject*, PyObject*) { return PyUnicode_FromString(sluice_version()); }

PyObject* capability(PyObject*, PyObject*) {
  std::string text(sluice_capability(nullptr, 0) + 1, '\0');
  const size_t length = sluice_capability(text.data(), text.size());
  return PyUnicode_FromStringAndSize(text.data(),
                                     static_cast<Py_ssize_t>(std::min(length, text.size() - 1)));
}

PyObject* implementations(PyObject*, PyObject*) {
  sluice_implementation_info found[16];
  const int count = std::min(sluice_implementations(found, std::size(found)), 16);
  Ref list(PyList_New(0));
  for (int i = 0; i < count; ++i) {
    const Ref item(Py_BuildValue("{s:s,s:s,s:s,s:O}", "name", found[i].name, "description",
                                 found[i].description, "requirement", found[i].requirement,
                                 "available", found[i].available != 0 ? Py_True : Py_False));
    if (!list || !item || PyList_Append(list.get(), item.get()) != 0) return nullptr;
  }
  return list.release();
}

PyObject* last_kernel(PyObject*, PyObject*) { return PyUnicode_FromString(sluice_last_kernel()); }

PyObject* set_num_threads(PyObject*, PyObject* number) {
  const long threads = PyLong_AsLong(number);
  if (threads == -1 && PyErr_Occurred() != nullptr) return nullptr;
  if (threads < 0 || threads > 4096) {
    fail(SLUICE_INVALID_ARGUMENT, "set_num_threads: threads = %ld, expected 1 to 4096", threads);
    return nullptr;
  }
  const int code = use_threads(static_cast<int>(threads));
  if (code == SLUICE_OK) return Py_NewRef(Py_None);
  fail(code, "set_num_threads: %s", sluice_last_error());
  return nullptr;
}

PyObject* warm_up(PyObject*, PyObject* arguments) {
  int cuda = 0, index = 0;
  if (PyArg_ParseTuple(arguments, "pi", &cuda, &index) == 0) return nullptr;
  const int code = sluice_warm_up({cuda != 0 ? SLUICE_DEVICE_CUDA : SLUICE_DEVICE_CPU, index});
  if (code == SLUICE_OK) return Py_NewRef(Py_None);
  fail(code, "%s", sluice_last_error());
  return nullptr;
}

template <class Function>
PyCFunction as_method(Function* function) noexcept {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

constexpr int kFast = METH_FASTCALL | METH_KEYWORDS;

/// Adds each operator twice: the second form is for calls while gradients are enabled.
template <int... op>
bool add_operators(PyObject* module, std::integer_sequence<int, op...>) {
  static const std::string recorded[] = {std::string(operator_of(op).name) + "_recorded" ...};
  static PyMethodDef added[] = {
      PyMethodDef{operator_of(op).name, as_method(run_operator<op, false>), kFast, nullptr}...,
      PyMethodDef{recorded[op].c_str(), as_method(run_operator<op, true>), kFast, nullptr}...,
      {nullptr, nullptr, 0, nullptr}};
  return PyModule_AddFunctions(module, added) == 0;
}

PyMethodDef methods[] = {{"supported", as_method(supported), kFast, nullptr},
                         {"fields", fields, METH_O, nullptr},
                         {"count_writes", set_write_counters, METH_VARARGS, nullptr},
                         {"record_gradients", set_recorder, METH_VARARGS, nullptr},
                         {"gradient_makers", set_gradient_makers, METH_VARARGS, nullptr},
                         {"chunk_gradients", as_method(chunk_gradients), METH_FASTCALL, nullptr},
                         {"version", version, METH_NOARGS, nullptr},
                         {"capability", capability, METH_NOARGS, nullptr},
                         {"implementations", implementations, METH_NOARGS, nullptr},
                         {"last_kernel", last_kernel, METH_NOARGS, nullptr},
                         {"set_num_threads", set_num_threads, METH_O, nullptr},
                         {"warm_up", warm_up, METH_VARARGS, nullptr},
#ifdef SLUICE_WITH_TOOL
                         {"tool", tool, METH_O, nullptr},
#endif
                         {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_core",
                          "The operators of the C interface by keyword; sluice.ops documents them.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

/// The package that holds this extension: "sluice", or the name under which a kernel of the Hub is loaded.
std::string package;

PyObject* import_beside(const char* name) noexcept {
  return PyImport_ImportModule((package + "." + name).c_str());
}

/// sluice._errors.refusal(): an exception in the words of the function that the caller named.
PyObject* make_refusal = nullptr;

bool load_error_classes() noexcept {
  const Ref errors(import_beside("_errors"));
  const Ref classes(errors ? PyObject_GetAttrString(errors.get(), "BY_CODE") : nullptr);
  if (!classes || PyTuple_Check(classes.get()) == 0 || PyTuple_Size(classes.get()) != kCodes) {
    if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ImportError, "sluice._errors.BY_CODE");
    return false;
  }
  for (int code = 0; code < kCodes; ++code) {
    error_classes[code] = Py_NewRef(PyTuple_GetItem(classes.get(), code));
  }
  make_refusal = PyObject_GetAttrString(errors.get(), "refusal");
  return make_refusal != nullptr;
}

}  // namespace

PyObject* error_class(int code) noexcept {
  return error_classes[code >= 0 && code < kCodes ? code : SLUICE_INTERNAL];
}

bool fail(int code, const char* format, ...) noexcept {
  char message[512];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(message, sizeof message, format, values);
  va_end(values);
  const Ref refusal(PyObject_CallFunction(make_refusal, "Os", error_class(code), message));
  if (refusal) PyErr_SetObject(error_class(code), refusal.get());
  return false;
}

PyObject* arrays_module() noexcept {
  static PyObject* module = nullptr;  // under the GIL
  if (module == nullptr) module = import_beside("_arrays");
  return module;
}

}  // namespace sluice::python

PyMODINIT_FUNC PyInit__core(void) {
  using namespace sluice::python;
  if (sluice_abi_version() != SLUICE_ABI_VERSION) return nullptr;
  // Created under its full name, whatever the package is called.
  Ref module(PyModule_Create(&definition));
  const char* const name = module ? PyModule_GetName(module.get()) : nullptr;
  if (name == nullptr) return nullptr;
  package = name;
  package.resize(package.rfind('.'));
  using Every = std::make_integer_sequence<int, SLUICE_OP_COUNT>;
  return add_operators(module.get(), Every()) && load_error_classes() ? module.release() : nullptr;
}
