// Tells torch's autograd what a call wrote, and hands it calls whose inputs ask for gradients.
// SPDX-License-Identifier: Apache-2.0
#include "recording.hpp"

#include <bit>
#include <cstring>

namespace sluice::python {
namespace {

constexpr uint64_t bit(size_t position) noexcept { return uint64_t{1} << position; }

/// Position of the field of that name; the number of fields if there is none.
size_t position_of(const Operator& op, const char* name) noexcept {
  size_t position = 0;
  while (position < op.fields.size() && std::strcmp(op.fields[position].name, name) != 0) {
    ++position;
  }
  return position;
}

/// What an operator may write, by field.
struct Writes {
  bool known = false;
  uint64_t outputs = 0;
  uint64_t pools = 0;        ///< updated in place, in this order, where
  uint64_t places[64] = {};  ///< ... no other place is given, by the pool's position,
  size_t choice = 0;         ///< ... and state_writes, at this offset, is not NONE; 0: always
  bool staged = false;       ///< which outputs there are depends on the stage
};

const Writes& writes_of(int op) noexcept {
  static Writes all[SLUICE_OP_COUNT];  // under the GIL
  Writes& writes = all[op];
  if (writes.known) return writes;
  writes.known = true;
  const Operator& entry = operator_of(op);
  for (size_t i = 0; i < entry.fields.size(); ++i) {
    const Field& field = entry.fields[i];
    if (field.kind == Kind::kOutput) writes.outputs |= bit(i);
    if (field.kind == Kind::kOutput && field.other != 0) writes.staged = true;
    if (field.kind != Kind::kUpdate) continue;
    writes.pools |= bit(i);
    writes.places[i] = bit(position_of(entry, field.unless));
  }
  const size_t choice = position_of(entry, "state_writes");
  if (choice < entry.fields.size()) writes.choice = entry.fields[choice].offset;
  return writes;
}

/// The outputs of a call of chunk_stage.
uint64_t stage_outputs(int op, const Arguments& arguments) noexcept {
  uint64_t found = 0;
  size_t position = 0;
  for (const Field& field : operator_of(op).fields) {
    const bool here = field.other == 0 || (field.other >> arguments.chunk_stage.stage & 1) != 0;
    if (field.kind == Kind::kOutput && here) found |= bit(position);
    ++position;
  }
  return found;
}

PyObject *write_counter = nullptr, *other_counter = nullptr;  // under the GIL; held

struct Recorder {
  uint64_t inputs = 0;
  PyObject* function = nullptr;  ///< held
};
Recorder recorders[SLUICE_OP_COUNT];  // under the GIL

}  // namespace

uint64_t written_fields(int op, uint64_t given, const Arguments& arguments) noexcept {
  const Writes& writes = writes_of(op);
  if (writes.staged) return stage_outputs(op, arguments) & given;
  uint64_t found = writes.outputs;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&arguments);
  int32_t choice = SLUICE_STATE_WRITE_LAST;
  if (writes.choice != 0) std::memcpy(&choice, bytes + writes.choice, sizeof choice);
  if (choice != SLUICE_STATE_WRITE_NONE) {
    for (uint64_t rest = writes.pools; rest != 0; rest &= rest - 1) {
      const int pool = std::countr_zero(rest);
      if ((given & writes.places[pool]) == 0) found |= bit(static_cast<size_t>(pool));
    }
  }
  return found & given;
}

PyObject* set_write_counters(PyObject* /*module*/, PyObject* arguments) noexcept {
  PyObject *counter = nullptr, *otherwise = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &counter, &otherwise) == 0) return nullptr;
  hold(&write_counter, counter);
  hold(&other_counter, otherwise);
  return Py_NewRef(Py_None);
}

bool count_writes(uint64_t written, PyObject* const* tensors) noexcept {
  if (written == 0 || write_counter == nullptr) return true;
  const Ref list(PyList_New(std::popcount(written)));
  if (!list) return false;
  Py_ssize_t at = 0;
  for (uint64_t rest = written; rest != 0; rest &= rest - 1) {
    PyList_SetItem(list.get(), at++, Py_NewRef(tensors[std::countr_zero(rest)]));
  }
  if (Ref(PyObject_CallFunctionObjArgs(write_counter, list.get(), nullptr))) return true;
  PyErr_Clear();
  return static_cast<bool>(Ref(PyObject_CallFunctionObjArgs(other_counter, list.get(), nullptr)));
}

PyObject* set_recorder(PyObject* /*module*/, PyObject* arguments) noexcept {
  PyObject *name = nullptr, *inputs = nullptr, *function = nullptr;
  if (PyArg_ParseTuple(arguments, "OO!O", &name, &PyTuple_Type, &inputs, &function) == 0) {
    return nullptr;
  }
  const int op = operator_index(name);
  Keywords read;
  if (op < 0 || !read_names(op, inputs, &read)) return nullptr;
  recorders[op].inputs = 0;
  for (int i = 0; i < read.count; ++i) {
    recorders[op].inputs |= bit(static_cast<size_t>(read.position[i]));
  }
  hold(&recorders[op].function, function);
  return Py_NewRef(Py_None);
}

uint64_t recorded_inputs(int op) noexcept { return recorders[op].inputs; }

PyObject* call_recorder(int op, PyObject* const* values, Py_ssize_t count,
                        PyObject* names) noexcept {
  const Ref positional(PyTuple_New(count));
  const Ref named(names != nullptr ? PyDict_New() : nullptr);
  if (!positional || (names != nullptr && !named)) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyTuple_SetItem(positional.get(), i, Py_NewRef(values[i]));
  }
  const Py_ssize_t more = names != nullptr ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < more; ++i) {
    PyObject* const name = PyTuple_GetItem(names, i);
    if (PyDict_SetItem(named.get(), name, values[count + i]) != 0) return nullptr;
  }
  return PyObject_Call(recorders[op].function, positional.get(), named.get());
}

}  // namespace sluice::python
