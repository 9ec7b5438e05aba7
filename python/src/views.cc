// Takes tensors in three ways, fastest first: DLPack's C exchange table (torch >= 2.10), the buffer
// protocol (NumPy), DLPack capsules (everybody else).
// SPDX-License-Identifier: Apache-2.0
#include "views.hpp"

#include <cstring>
#include <utility>

namespace sluice::python {
namespace {

// Address of tensors without elements, which may come without one: the C interface takes null for
// an absent view. Never read.
alignas(256) unsigned char no_elements[256];

/// The pending exception as an object, which is no longer pending; null if there is none.
Ref take_exception() noexcept {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value != nullptr && trace != nullptr) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return Ref(value);
}

void raise(Ref exception) noexcept {
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception.get()))), exception.get(),
                nullptr);
  exception.release();
}

/// Raises that `object` is no tensor, with what a producer of tensors raised itself as the cause.
bool name_type(const char* op, const char* argument, PyObject* object) noexcept {
  auto* const kind = reinterpret_cast<PyObject*>(Py_TYPE(object));
  Ref cause = take_exception();
  if (cause && PyErr_GivenExceptionMatches(cause.get(), PyExc_Exception) == 0) {
    raise(std::move(cause));  // KeyboardInterrupt
    return false;
  }
  const bool producer = PyObject_HasAttrString(kind, "__dlpack_device__") != 0;
  const Ref name(PyObject_GetAttrString(kind, "__name__"));
  const char* text = name ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
  PyErr_Clear();
  PyErr_Format(PyExc_TypeError,
               "%s: %s = %s, expected a torch tensor, a NumPy array or a DLPack producer", op,
               argument, text == nullptr ? "?" : text);
  if (cause && producer) {
    Ref error = take_exception();
    if (!error) return false;
    PyException_SetCause(error.get(), cause.release());
    raise(std::move(error));
  }
  return false;
}

bool set_device(const char* op, const char* argument, dlpack::Device device,
                sluice_tensor* view) noexcept {
  switch (device.type) {
    case dlpack::kCpu:
    case dlpack::kCudaHost:
      view->device = {SLUICE_DEVICE_CPU, 0};
      return true;
    case dlpack::kCuda:
    case dlpack::kCudaManaged:
      view->device = {SLUICE_DEVICE_CUDA, device.index};
      return true;
    default:
      return fail(SLUICE_UNSUPPORTED, "%s: %s DLPack device type = %d, expected CPU or CUDA", op,
                  argument, device.type);
  }
}

bool convert(const char* op, const char* argument, const dlpack::Tensor& from,
             sluice_tensor* view) noexcept {
  if (from.ndim > SLUICE_MAX_RANK) {
    return fail(SLUICE_INVALID_ARGUMENT, "%s: %s rank = %d, expected at most %d", op, argument,
                from.ndim, SLUICE_MAX_RANK);
  }
  if (from.dtype.lanes != 1) {
    return fail(SLUICE_UNSUPPORTED, "%s: %s dtype lanes = %d, expected 1", op, argument,
                from.dtype.lanes);
  }
  if (!set_device(op, argument, from.device, view)) return false;
  view->dtype = {from.dtype.code, from.dtype.bits};
  view->rank = static_cast<uint16_t>(from.ndim);
  int64_t compact = 1;
  for (int axis = from.ndim - 1; axis >= 0; --axis) {
    view->shape[axis] = from.shape[axis];
    view->stride[axis] = from.strides != nullptr ? from.strides[axis] : compact;
    compact *= from.shape[axis];
  }
  view->data =
      compact == 0 ? no_elements : static_cast<unsigned char*>(from.data) + from.byte_offset;
  return true;
}

/// Element type of a buffer's format; bits 0 if the C interface has none.
sluice_dtype dtype_of(const char* format, Py_ssize_t size) noexcept {
  const auto bits = static_cast<uint8_t>(size * 8);
  if (format == nullptr) return {1, 8};
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return {0, 0};
  if (std::strchr("efd", *format) != nullptr) return {2, bits};
  if (std::strchr("bhilqn", *format) != nullptr) return {0, bits};
  if (std::strchr("BHILQN", *format) != nullptr) return {1, bits};
  if (*format == '?') return {6, 8};
  return {0, 0};
}

/// Whether object.dtype is bfloat16 (ml_dtypes), which buffers cannot express.
bool is_bfloat16(PyObject* object) noexcept {
  const Ref dtype(PyObject_GetAttrString(object, "dtype"));
  const Ref name(dtype ? PyObject_GetAttrString(dtype.get(), "name") : nullptr);
  const char* text =
      name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8AndSize(name.get(), nullptr) : nullptr;
  PyErr_Clear();
  return text != nullptr && std::strcmp(text, "bfloat16") == 0;
}

/// Whether the object's CUDA array interface says that its memory may be written, as CuPy's does.
bool says_writable(PyObject* object) noexcept {
  const Ref interface(PyObject_GetAttrString(object, "__cuda_array_interface__"));
  const Ref data(interface ? PyMapping_GetItemString(interface.get(), "data") : nullptr);
  const Ref read_only(data ? PySequence_GetItem(data.get(), 1) : nullptr);
  PyErr_Clear();
  return read_only && read_only.get() == Py_False;
}

/// Whether object.view() is NumPy's, which copies nothing. JAX's makes a new array, on the default
/// device and not on that of the object.
bool is_numpy(PyObject* object) noexcept {
  return PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)),
                                "__array_interface__") != 0;
}

/// Whether each step between elements is over an even number of them, as in the imaginary part of a
/// complex tensor and in views of it. Of one element, whether any stride is.
bool even_strides(const sluice_tensor& view) noexcept {
  bool single = true, any = false;
  for (int axis = 0; axis < view.rank; ++axis) {
    const bool even = (view.stride[axis] & 1) == 0;
    if (view.shape[axis] > 1 && !even) return false;
    single = single && view.shape[axis] <= 1;
    any = any || even;
  }
  return !single || any || view.rank == 0;
}

/// Refuses a lazily negated view: its memory holds the values without their sign.
bool check_sign(const char* op, const char* argument, PyObject* object,
                const TypeEntry& entry) noexcept {
  const int negated = is_negated(object, entry);
  if (negated <= 0) return negated == 0;
  return fail(SLUICE_UNSUPPORTED,
              "%s: %s.is_neg() = True, expected False (the memory of a lazily negated view has the "
              "other sign; pass %s.resolve_neg())",
              op, argument, argument);
}

/// What object.__dlpack_device__() says; false with an exception set if there is no such answer.
bool device_of(PyObject* object, dlpack::Device* device) noexcept {
  const Ref pair(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  if (!pair) return false;
  if (PyTuple_Check(pair.get()) == 0 || PyTuple_Size(pair.get()) != 2) {
    PyErr_SetString(PyExc_TypeError, "__dlpack_device__() is no pair");
    return false;
  }
  const Ref type(PyNumber_Long(PyTuple_GetItem(pair.get(), 0)));
  const Ref index(PyNumber_Long(PyTuple_GetItem(pair.get(), 1)));
  if (!type || !index) return false;
  *device = {static_cast<int32_t>(PyLong_AsLong(type.get())),
             static_cast<int32_t>(PyLong_AsLong(index.get()))};
  return PyErr_Occurred() == nullptr;
}

/// The capsule of object.__dlpack__: DLPack 1's where the producer knows it.
Ref export_capsule(PyObject* object, PyObject* stream) noexcept {
  const Ref method(PyObject_GetAttrString(object, "__dlpack__"));
  if (!method) return Ref();
  const Ref none(PyTuple_New(0));
  Ref arguments(Py_BuildValue("{s:O,s:(ii)}", "stream", stream, "max_version",
                              static_cast<int>(dlpack::kMajor), 0));
  Ref capsule(PyObject_Call(method.get(), none.get(), arguments.get()));
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    PyErr_Clear();
    arguments = Ref(Py_BuildValue("{s:O}", "stream", stream));
    capsule = Ref(PyObject_Call(method.get(), none.get(), arguments.get()));
  }
  return capsule;
}

}  // namespace

Borrowed::~Borrowed() {
  if (memory_ != nullptr && memory_->deleter != nullptr) memory_->deleter(memory_);
  for (int i = 0; i < buffer_count_; ++i) PyBuffer_Release(&buffers_[i]);
  for (int i = 0; i < object_count_; ++i) Py_DECREF(objects_[i]);
}

bool Borrowed::keep(PyObject* object) noexcept {
  if (object_count_ == kMost) return fail(SLUICE_INTERNAL, "python: too many tensors in a call");
  objects_[object_count_++] = object;
  return true;
}

bool Borrowed::set_stream(PyObject* stream) noexcept {
  Ref handle;
  if (PyLong_Check(stream) == 0) {
    PyObject* arrays = arrays_module();
    if (arrays == nullptr) return false;
    handle = Ref(PyObject_CallMethod(arrays, "stream_handle", "O", stream));
    if (!handle) return false;
    stream = handle.get();
  }
  stream_ = PyLong_AsVoidPtr(stream);
  stream_named_ = stream_known_ = true;
  return PyErr_Occurred() == nullptr;
}

bool Borrowed::current_stream_of(PyObject* object) noexcept {
  if (stream_known_) return true;
  PyObject* arrays = arrays_module();
  if (arrays == nullptr) return false;
  const Ref handle(PyObject_CallMethod(arrays, "current_stream", "O", object));
  if (!handle) return false;
  stream_ = PyLong_AsVoidPtr(handle.get());
  stream_known_ = PyErr_Occurred() == nullptr;
  return stream_known_;
}

bool Borrowed::stream(sluice_device device, void** stream) noexcept {
  if (!stream_known_ && device.type == SLUICE_DEVICE_CUDA) {
    if (device_api_ != nullptr) {
      if (device_api_->current_stream(dlpack::kCuda, device.index, &stream_) != 0) return false;
      stream_known_ = true;
    } else if (device_tensor_ != nullptr && !current_stream_of(device_tensor_)) {
      return false;
    }
  }
  *stream = stream_;
  return true;
}

bool Borrowed::view(const char* op, const char* argument, PyObject* object, sluice_tensor* view,
                    bool* read_only) noexcept {
  const TypeEntry entry = entry_of(object);
  bool good = false;
  *read_only = false;
  if (entry.api != nullptr) {
    dlpack::Tensor borrowed;
    good = entry.api->view_from_object(object, &borrowed) == 0 &&
           convert(op, argument, borrowed, view);
  } else if (entry.buffer) {
    good = view_from_buffer(op, argument, object, view, read_only);
  } else {
    good = view_from_capsule(op, argument, object, view, read_only);
  }
  // PERF: asking costs a fortieth of a small decode step for each tensor, so that calls without
  // gradients ask suspects alone.
  if (good && entry.lazy && (ask_for_signs_ || even_strides(*view))) {
    good = check_sign(op, argument, object, entry);
  }
  if (good && view->device.type == SLUICE_DEVICE_CUDA && device_tensor_ == nullptr) {
    device_tensor_ = object;
    device_api_ = entry.api;
  }
  return good;
}

bool Borrowed::borrow_memory(sluice_device device, size_t bytes, sluice_tensor* view) noexcept {
  // WHY: torch orders what it lends by its current stream.
  if (stream_named_ || memory_ != nullptr) return false;
  if (device_api_ == nullptr || device_api_->allocate == nullptr) return false;
  auto count = static_cast<int64_t>(bytes);
  int64_t step = 1;
  dlpack::Tensor prototype{nullptr, {dlpack::kCuda, device.index}, 1, {1, 8, 1}, &count, &step, 0};
  const auto ignore = [](void*, const char*, const char*) noexcept {};
  if (device_api_->allocate(&prototype, &memory_, nullptr, ignore) != 0) memory_ = nullptr;
  PyErr_Clear();
  return memory_ != nullptr && memory_->version.major == dlpack::kMajor &&
         convert("workspace", "memory", memory_->tensor, view);
}

bool Borrowed::view_from_buffer(const char* op, const char* argument, PyObject* object,
                                sluice_tensor* view, bool* read_only) noexcept {
  if (buffer_count_ == kMost) return fail(SLUICE_INTERNAL, "python: too many tensors in a call");
  Py_buffer& buffer = buffers_[buffer_count_];
  bool bfloat16 = false;
  if (PyObject_GetBuffer(object, &buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    // WHY: the type of JAX arrays has both ways in; those on a device refuse the buffer.
    dlpack::Device device{dlpack::kCpu, 0};
    if (device_of(object, &device) && device.type != dlpack::kCpu) {
      return view_from_refused(op, argument, object, view, read_only);
    }
    PyErr_Clear();
    bfloat16 = is_bfloat16(object);
    if (!bfloat16) return name_type(op, argument, object);
    if (!is_numpy(object)) return view_from_refused(op, argument, object, view, read_only);
    PyObject* bits = PyObject_CallMethod(object, "view", "s", "uint16");
    if (bits == nullptr || !keep(bits)) return false;
    if (PyObject_GetBuffer(bits, &buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) return false;
  }
  ++buffer_count_;
  const sluice_dtype dtype =
      bfloat16 ? sluice_dtype{4, 16} : dtype_of(buffer.format, buffer.itemsize);
  if (dtype.bits == 0) {
    return fail(SLUICE_INVALID_ARGUMENT,
                "%s: %s format = \"%s\", expected native float32, float16, bfloat16 (ml_dtypes), "
                "int32, int64, bool or uint8",
                op, argument, buffer.format);
  }
  dlpack::Tensor tensor{
      buffer.buf, {dlpack::kCpu, 0}, buffer.ndim, {dtype.code, dtype.bits, 1}, nullptr, nullptr, 0};
  int64_t shape[SLUICE_MAX_RANK], stride[SLUICE_MAX_RANK];
  for (int axis = 0; axis < buffer.ndim && axis < SLUICE_MAX_RANK; ++axis) {
    shape[axis] = buffer.shape[axis];
    stride[axis] = buffer.strides[axis] / buffer.itemsize;
    if (buffer.strides[axis] % buffer.itemsize != 0 && buffer.shape[axis] > 1) {
      return fail(SLUICE_UNSUPPORTED, "%s: %s.stride[%d] = %lld bytes, expected whole elements", op,
                  argument, axis, static_cast<long long>(buffer.strides[axis]));
    }
  }
  tensor.shape = shape;
  tensor.strides = stride;
  *read_only = buffer.readonly != 0;
  return convert(op, argument, tensor, view);
}

bool Borrowed::view_from_refused(const char* op, const char* argument, PyObject* object,
                                 sluice_tensor* view, bool* read_only) noexcept {
  if (!view_from_capsule(op, argument, object, view, read_only)) return false;
  // WHY: JAX's buffers are read-only, and its capsules do not say so.
  if (!says_writable(object)) *read_only = true;
  return true;
}

bool Borrowed::view_from_capsule(const char* op, const char* argument, PyObject* object,
                                 sluice_tensor* view, bool* read_only) noexcept {
  dlpack::Device where{0, 0};
  if (!device_of(object, &where)) return name_type(op, argument, object);
  Ref stream;
  if (where.type == dlpack::kCuda || where.type == dlpack::kCudaManaged) {
    if (!current_stream_of(object)) return false;
    // DLPack: 1 is the legacy default stream; 0 is not allowed.
    stream = Ref(stream_ == nullptr ? PyLong_FromLong(1) : PyLong_FromVoidPtr(stream_));
  }
  Ref capsule = export_capsule(object, stream ? stream.get() : Py_None);
  if (!capsule) return false;
  const dlpack::Tensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule.get(), "dltensor_versioned") != 0) {
    const auto* managed = static_cast<const dlpack::ManagedVersioned*>(
        PyCapsule_GetPointer(capsule.get(), "dltensor_versioned"));
    if (managed->version.major != dlpack::kMajor) {
      return fail(SLUICE_UNSUPPORTED, "%s: %s DLPack version = %u, expected %u", op, argument,
                  managed->version.major, dlpack::kMajor);
    }
    *read_only = (managed->flags & dlpack::kReadOnly) != 0;
    tensor = &managed->tensor;
  } else if (PyCapsule_IsValid(capsule.get(), "dltensor") != 0) {
    tensor = &static_cast<const dlpack::Managed*>(PyCapsule_GetPointer(capsule.get(), "dltensor"))
                  ->tensor;
  } else {
    return name_type(op, argument, object);
  }
  // The capsule is not consumed: its destructor frees the tensor when the call is over.
  return keep(capsule.release()) && convert(op, argument, *tensor, view);
}

}  // namespace sluice::python
