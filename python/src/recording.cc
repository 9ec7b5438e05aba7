// Tells torch's autograd what a call wrote, hands it calls whose inputs ask for gradients, and runs the
// backward pass of those: memory for what is wanted, one call, a tuple.
// SPDX-License-Identifier: Apache-2.0
#include "recording.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "call.hpp"

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
