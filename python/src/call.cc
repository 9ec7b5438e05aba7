// Makes one operator call: keywords in, struct filled, scratch memory found, library called.
// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "fields.hpp"
#include "recording.hpp"
#include "views.hpp"

namespace sluice::python {
namespace {

constexpr size_t kAlignment = 256;  // of workspaces, by sluice.h
// Scratch memory up to this is kept for the thread's next call, more is given back.
constexpr size_t kKeptScratch = size_t{64} << 20;

/// Host scratch memory of one thread.
class Scratch {
 public:
  ~Scratch() { std::free(data_); }
  /// `bytes` aligned bytes, null if there is no memory.
  void* reserve(size_t bytes) noexcept {
    if (bytes > size_) {
      std::free(data_);
      size_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      data_ = std::aligned_alloc(kAlignment, size_);
      if (data_ == nullptr) size_ = 0;
    }
    return data_;
  }
  /// What is there now: may be nothing.
  sluice_workspace held() const noexcept { return {data_, size_}; }
  void trim() noexcept {
    if (size_ <= kKeptScratch) return;
    std::free(data_);
    data_ = nullptr;
    size_ = 0;
  }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};
thread_local Scratch host_scratch;

// PERF: the operator's last call on a GPU that needed memory. One that looks like it is offered as much
// at once: asking checks all arguments, which costs half as much as a small call without its launches.
// One that does not asks first, where offering none would only be refused. Under the GIL.
struct Known {
  Arguments arguments;  ///< of views the addresses are left out
  size_t bytes = 0;
};
Known known[SLUICE_OP_COUNT];

/// An operator's arguments and what keeps them alive.
struct Call {
  int op = 0;
  Arguments arguments;
  Borrowed borrowed;
  sluice_device device{SLUICE_DEVICE_CPU, 0};
  bool has_device = false;
  uint64_t given = 0;      ///< by field: a value other than None
  uint64_t read_only = 0;  ///< by field: a tensor that may not be written
  bool recorded = false;   ///< gradients are enabled: who asks for one is refused, writes count
  bool differentiates = false;  ///< an input asks for a gradient that the operator has
  PyObject* tensors[64];        ///< by field, where `given`; kept of recorded calls; borrowed
  PyObject* stream = nullptr;
  PyObject* workspace = nullptr;
  Ref scratch;  ///< device scratch allocated for the call

  template <class T>
  T* member(size_t offset) noexcept {
    return reinterpret_cast<T*>(reinterpret_cast<unsigned char*>(&arguments) + offset);
  }
};

constexpr uint64_t bit(int position) noexcept { return uint64_t{1} << position; }

bool read_choice(const char* op, const Field& field, PyObject* value, int32_t* choice) noexcept {
  *choice = choice_index(field.choices, value);
  if (*choice >= 0) return true;
  char list[200] = "";
  for (int i = 0; field.choices[i] != nullptr; ++i) {
    std::strcat(std::strcat(list, i == 0 ? "" : ", "), field.choices[i]);
  }
  const Ref shown(PyObject_Repr(value));
  const char* repr = shown ? PyUnicode_AsUTF8AndSize(shown.get(), nullptr) : nullptr;
  PyErr_Clear();
  return fail(SLUICE_INVALID_ARGUMENT, "%s: %s = %.60s, expected one of %s", op, field.name,
              repr == nullptr ? "?" : repr, list);
}

/// Replaces Python's exception about a number by one that names the argument.
bool refuse_number(const char* op, const Field& field, PyObject* value) noexcept {
  const bool large = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
  PyErr_Clear();
  Ref shown(PyObject_Repr(value));
  PyErr_Clear();
  if (!shown) shown = Ref(PyUnicode_FromString("a number of thousands of digits"));
  const char* expected = large ? "a number within float64's range" : "a number";
  if (field.kind == Kind::kInt) expected = large ? "64 bits" : "an integer";
  if (field.kind == Kind::kInt32) expected = large ? "32 bits" : "an integer";
  const Ref text(
      PyUnicode_FromFormat("%s: %s = %.60S, expected %s", op, field.name, shown.get(), expected));
  if (text) {
    PyErr_SetObject(large ? error_class(SLUICE_INVALID_ARGUMENT) : PyExc_TypeError, text.get());
  }
  return false;
}

bool read_number(const char* op, const Field& field, PyObject* value, Call* call) noexcept {
  if (field.kind == Kind::kInt32) {
    const long long number = PyLong_AsLongLong(value);
    if (number < INT32_MIN || number > INT32_MAX) {
      return fail(SLUICE_INVALID_ARGUMENT, "%s: %s = %lld, expected 32 bits", op, field.name,
                  number);
    }
    *call->member<int32_t>(field.offset) = static_cast<int32_t>(number);
  } else if (field.kind == Kind::kInt) {
    *call->member<int64_t>(field.offset) = PyLong_AsLongLong(value);
  } else {
    *call->member<double>(field.offset) = PyFloat_AsDouble(value);
    if (field.kind == Kind::kScale) *call->member<int32_t>(field.other) = SLUICE_SCALE_VALUE;
  }
  return PyErr_Occurred() == nullptr || refuse_number(op, field, value);
}

/// Whether a call with that tensor may go on: not if it asks for a gradient. Where the operator has
/// one by it, no exception is set and call->differentiates is.
bool check_gradient(const char* op, int position, const Field& field, PyObject* tensor,
                    Call* call) noexcept {
  if (!asks_for_gradient(tensor)) return true;
  call->differentiates = (recorded_inputs(call->op) & bit(position)) != 0;
  return !call->differentiates &&
         fail(SLUICE_UNSUPPORTED,
              "%s: %s.requires_grad = True, expected tensors without gradient, or torch.no_grad() "
              "or torch.inference_mode() (this operator has no backward pass)",
              op, field.name);
}

bool read_field(const char* op, int position, const Field& field, PyObject* value,
                Call* call) noexcept {
  call->given |= bit(position);
  switch (field.kind) {
    case Kind::kInput:
    case Kind::kOutput:
    case Kind::kUpdate: {
      auto* view = call->member<sluice_tensor>(field.offset);
      bool read_only = false;
      if (call->recorded && !check_gradient(op, position, field, value, call)) return false;
      if (!call->borrowed.view(op, field.name, value, view, &read_only)) return false;
      call->tensors[position] = value;
      if (read_only) call->read_only |= bit(position);
      if (!call->has_device) call->device = view->device;
      call->has_device = true;
      return true;
    }
    case Kind::kChoice:
      return read_choice(op, field, value, call->member<int32_t>(field.offset));
    case Kind::kStream:
    case Kind::kWorkspace:
      return true;
    default:
      return read_number(op, field, value, call);
  }
}

/// Refuses read-only tensors where the operator would write.
bool check_writable(const Operator& op, Call* call) noexcept {
  if (call->read_only == 0) return true;
  const uint64_t wrong = call->read_only & written_fields(call->op, call->given, call->arguments);
  if (wrong == 0) return true;
  return fail(SLUICE_INVALID_ARGUMENT,
              "%s: %s = read-only tensor, expected a writable one (it is written)", op.name,
              op.fields[static_cast<size_t>(std::countr_zero(wrong))].name);
}

/// Reads the values of a vectorcall: `count` in the order of the operator's fields, then those that
/// `names` names.
bool read_arguments(PyObject* const* values, Py_ssize_t count, PyObject* names,
                    Call* call) noexcept {
  const Operator& op = operator_of(call->op);
  std::memset(static_cast<void*>(&call->arguments), 0, op.struct_size);
  call->arguments.struct_size = op.struct_size;
  const auto fields = static_cast<int>(op.fields.size());
  if (count > fields) {
    PyErr_Format(PyExc_TypeError, "%s: %zd positional arguments, expected at most %d", op.name,
                 count, fields);
    return false;
  }
  Keywords given;
  if (!read_names(call->op, names, &given)) return false;
  PyObject* const* named = values + count;
  // The stream first: capsules are exported to it.
  if (count > op.stream) call->stream = values[op.stream];
  if (count > op.stream + 1) call->workspace = values[op.stream + 1];
  for (int i = 0; i < given.count; ++i) {
    if (given.position[i] < static_cast<int>(count)) {
      PyErr_Format(PyExc_TypeError, "%s: keyword argument %d is given by position too", op.name, i);
      return false;
    }
    if (given.position[i] == op.stream) call->stream = named[i];
    if (given.position[i] == op.stream + 1) call->workspace = named[i];
  }
  if (call->stream != nullptr && call->stream != Py_None &&
      !call->borrowed.set_stream(call->stream)) {
    return false;
  }
  const auto total = static_cast<int>(count) + given.count;
  for (int i = 0; i < total; ++i) {
    const int position = i < static_cast<int>(count) ? i : given.position[i - count];
    if (values[i] == Py_None) continue;
    const Field& field = op.fields[static_cast<size_t>(position)];
    if (!read_field(op.name, position, field, values[i], call)) return false;
  }
  return check_writable(op, call);
}

/// The caller's workspace tensor.
bool given_workspace(const char* op, Call* call, sluice_workspace* workspace) noexcept {
  sluice_tensor view{};
  bool read_only = false;
  if (!call->borrowed.view(op, "workspace", call->workspace, &view, &read_only)) return false;
  if (view.rank != 1 || (view.shape[0] > 1 && view.stride[0] != 1) || read_only) {
    return fail(SLUICE_INVALID_ARGUMENT,
                "%s: workspace rank = %d, expected 1 (contiguous, writable)", op, view.rank);
  }
  *workspace = {view.data, static_cast<size_t>(view.shape[0]) * view.dtype.bits / 8};
  return true;
}

/// Scratch memory on a CUDA device by sluice._arrays.
bool scratch_by_python(const char* op, size_t bytes, Call* call, sluice_tensor* view) noexcept {
  PyObject* arrays = arrays_module();
  if (arrays == nullptr) return false;
  void* stream = nullptr;
  if (call->borrowed.stream_named() && !call->borrowed.stream(call->device, &stream)) return false;
  const Ref named(call->borrowed.stream_named() ? PyLong_FromVoidPtr(stream) : Py_NewRef(Py_None));
  call->scratch =
      Ref(PyObject_CallMethod(arrays, "device_scratch", "OnO", call->borrowed.device_tensor(),
                              static_cast<Py_ssize_t>(bytes), named.get()));
  bool read_only = false;
  return call->scratch &&
         call->borrowed.view(op, "workspace", call->scratch.get(), view, &read_only);
}

/// Scratch memory on a CUDA device, from the framework whose tensors are there.
bool device_workspace(const char* op, size_t bytes, Call* call,
                      sluice_workspace* workspace) noexcept {
  sluice_tensor view{};
  if (!call->borrowed.borrow_memory(call->device, bytes + kAlignment, &view) &&
      !scratch_by_python(op, bytes + kAlignment, call, &view)) {
    return false;
  }
  const auto start = reinterpret_cast<uintptr_t>(view.data);
  const uintptr_t aligned = (start + kAlignment - 1) / kAlignment * kAlignment;
  *workspace = {static_cast<unsigned char*>(view.data) + (aligned - start), bytes};
  return true;
}

/// A call's arguments without what does not decide the size of its workspace: where its views are.
void leave_out_addresses(const Operator& op, const Call& call, Arguments* arguments) noexcept {
  std::memcpy(static_cast<void*>(arguments), &call.arguments, op.struct_size);
  auto* const bytes = reinterpret_cast<unsigned char*>(arguments);
  for (uint64_t rest = call.given; rest != 0; rest &= rest - 1) {
    const Field& field = op.fields[static_cast<size_t>(std::countr_zero(rest))];
    if (field.kind > Kind::kUpdate) continue;
    auto* const view = reinterpret_cast<sluice_tensor*>(bytes + field.offset);
    view->data = reinterpret_cast<void*>(uintptr_t{1});
  }
}

/// Scratch memory of the size that the operator asks for; none if that is 0. anew: whatever the last
/// call needed.
bool find_workspace(const Operator& op, Call* call, bool anew,
                    sluice_workspace* workspace) noexcept {
  const bool on_gpu = call->device.type == SLUICE_DEVICE_CUDA;
  Known& last = known[call->op];
  Arguments looks;
  if (on_gpu) leave_out_addresses(op, *call, &looks);
  size_t bytes = last.bytes;
  if (!on_gpu || anew || std::memcmp(&looks, &last.arguments, op.struct_size) != 0) {
    if (const int code = sluice_workspace_size(call->op, &call->arguments, &bytes); code != 0) {
      return fail(code, "%s", sluice_last_error());
    }
  }
  if (on_gpu) {
    std::memcpy(static_cast<void*>(&last.arguments), &looks, op.struct_size);
    last.bytes = bytes;
    return bytes == 0 || device_workspace(op.name, bytes, call, workspace);
  }
  *workspace = {host_scratch.reserve(bytes), bytes};
  if (workspace->data != nullptr) return true;
  PyErr_NoMemory();
  return false;
}

/// The status of the operator, run without the GIL.
int execute(const Operator& op, const Call& call, sluice_workspace workspace,
            void* stream) noexcept {
  int code = 0;
  const Entrance entrance;
  Py_BEGIN_ALLOW_THREADS;
  code = op.run(call.arguments, workspace, stream);
  Py_END_ALLOW_THREADS;
  return code;
}

}  // namespace

PyObject* run(int op, PyObject* const* values, Py_ssize_t count, PyObject* names,
              bool recorded) noexcept {
  Call call;
  call.op = op;
  call.recorded = recorded;
  call.borrowed.ask_for_signs(recorded);
  const Operator& entry = operator_of(op);
  sluice_workspace workspace{};
  void* stream = nullptr;
  if (!read_arguments(values, count, names, &call)) {
    return call.differentiates ? call_recorder(op, values, count, names) : nullptr;
  }
  const bool given = call.workspace != nullptr && call.workspace != Py_None;
  if (given) {
    if (!given_workspace(entry.name, &call, &workspace)) return nullptr;
  } else if (call.device.type == SLUICE_DEVICE_CPU) {
    workspace = host_scratch.held();
  } else if (known[op].bytes > 0 && !find_workspace(entry, &call, false, &workspace)) {
    return nullptr;
  }
  if (!call.borrowed.stream(call.device, &stream)) return nullptr;
  // PERF: asking for the size first checks all arguments twice, 0.4 us of a step. A call whose
  // workspace is too small has done nothing.
  int code = execute(entry, call, workspace, stream);
  // WHY more than once: the number of threads may change between the answer and the call.
  for (int tries = 8; tries > 0 && code == SLUICE_WORKSPACE_TOO_SMALL && !given; --tries) {
    if (!find_workspace(entry, &call, true, &workspace)) return nullptr;
    code = execute(entry, call, workspace, stream);
  }
  host_scratch.trim();
  if (code != SLUICE_OK) {
    fail(code, "%s", sluice_last_error());
    return nullptr;
  }
  if (!recorded) return Py_NewRef(Py_None);
  const uint64_t written = written_fields(op, call.given, call.arguments);
  return count_writes(written, call.tensors) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* kernel_for(int op, PyObject* const* values, PyObject* names) noexcept {
  Call call;
  call.op = op;
  if (!read_arguments(values, 0, names, &call)) return nullptr;
  char kernel[128] = "";
  const int code = sluice_supported(op, &call.arguments, kernel, sizeof kernel);
  if (code == SLUICE_OK) return PyUnicode_FromString(kernel);
  fail(code, "%s", sluice_last_error());
  return nullptr;
}

}  // namespace sluice::python
