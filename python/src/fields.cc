// Finds arguments and choices by name in the tables that ops/generate.py makes.
// SPDX-License-Identifier: Apache-2.0
#include "fields.hpp"

#include <cstring>
#include <iterator>
#include <string>
#include <unordered_map>

#include "tables.hpp"

namespace sluice::python {
namespace {

static_assert(std::size(kOperators) == SLUICE_OP_COUNT);

/// Field positions by the address of the interned name: keywords in compiled code are interned.
using Index = std::unordered_map<PyObject*, int>;

const Index& index_of(int op) {
  static Index all[SLUICE_OP_COUNT];  // under the GIL; the names are held for ever
  Index& index = all[op];
  if (index.empty()) {
    int position = 0;
    for (const Field& field : kOperators[op].fields) {
      index.emplace(PyUnicode_InternFromString(field.name), position++);
    }
  }
  return index;
}

int field_index(int op, PyObject* name) {
  const Index& index = index_of(op);
  const auto found = index.find(name);
  if (found != index.end()) return found->second;
  for (const auto& [key, position] : index) {  // a name built at run time
    if (PyUnicode_Compare(key, name) == 0) return position;
  }
  return -1;
}

// PERF: a choice that is written in code is one str, which is held and known again by its address,
// the last one of each slot. Under the GIL. A decode step through ops takes 2.62 us without this and
// 2.53 with it (least of 100 rounds of benchmarks/host_time.py, AVX-512 host, 2026-11-23). The
// names of keywords are looked up at every call: remembering them saved 0.05 us of 1.60.
struct KnownChoice {
  const char* const* choices;
  PyObject* value;
  int position;
};
KnownChoice known_choices[128];

/// Where objects of that address are kept in a table of `size`; `salt` tells its users apart.
size_t slot_of(const void* object, size_t salt, size_t size) noexcept {
  // Objects are aligned to 16 bytes; the product's upper bits depend on all lower ones.
  const auto bits = (reinterpret_cast<uintptr_t>(object) >> 4) + salt;
  return static_cast<size_t>((uint64_t{bits} * 0x9E3779B97F4A7C15u) >> 32) % size;
}

}  // namespace

const Operator& operator_of(int op) noexcept { return kOperators[op]; }

int operator_index(PyObject* name) noexcept {
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, nullptr) : nullptr;
  for (int op = 0; text != nullptr && op < SLUICE_OP_COUNT; ++op) {
    if (std::strcmp(kOperators[op].name, text) == 0) return op;
  }
  if (PyErr_Occurred() != nullptr) return -1;
  std::string names;
  for (int op = 0; op < SLUICE_OP_COUNT; ++op) {
    names += op == 0 ? "" : op + 1 < SLUICE_OP_COUNT ? ", " : " or ";
    names += kOperators[op].name;
  }
  fail(SLUICE_INVALID_ARGUMENT, "sluice: op = %.60s, expected %s", text == nullptr ? "?" : text,
       names.c_str());
  return -1;
}

bool read_names(int op, PyObject* names, Keywords* keywords) noexcept {
  const Py_ssize_t count = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    const int position = i < kMostKeywords ? field_index(op, name) : -1;
    if (position < 0) {
      PyErr_Format(PyExc_TypeError, "%s: unexpected keyword argument '%U'", kOperators[op].name,
                   name);
      return false;
    }
    keywords->position[keywords->count++] = static_cast<signed char>(position);
  }
  return true;
}

int choice_index(const char* const* choices, PyObject* value) noexcept {
  const auto salt = reinterpret_cast<uintptr_t>(choices) >> 3;
  KnownChoice& known = known_choices[slot_of(value, salt, std::size(known_choices))];
  if (known.value == value && known.choices == choices) return known.position;
  const char* text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, nullptr) : nullptr;
  for (int i = 0; text != nullptr && choices[i] != nullptr; ++i) {
    if (std::strcmp(text, choices[i]) != 0) continue;
    PyObject* const old = known.value;
    known = {choices, Py_NewRef(value), i};
    Py_XDECREF(old);
    return i;
  }
  PyErr_Clear();
  return -1;
}

}  // namespace sluice::python
