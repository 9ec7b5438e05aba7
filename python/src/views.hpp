// Takes tensors of any framework as views of the C interface, borrowed for the time of one call; remembers
// how objects of each type are read, and asks tensors of torch what no view shows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_VIEWS_HPP_
#define SLUICE_PYTHON_VIEWS_HPP_

#include "dlpack_abi.hpp"
#include "python.hpp"
#include "sluice/sluice.h"

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

/// Keeps what a call's views point to alive until the call is over, and knows its stream.
class Borrowed {
 public:
  Borrowed() = default;
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed();

  /// The stream that the caller named: an integer, or an object that has one. False with an
  /// exception if it has none.
  bool set_stream(PyObject* stream) noexcept;

  /// Whether every tensor is asked for a sign that is not in memory (torch's lazily negated views).
  /// Otherwise only those are asked whose strides are even: such views come of imaginary parts.
  void ask_for_signs(bool ask) noexcept { ask_for_signs_ = ask; }

  /// `object` as a view. Raises, naming op and argument, and returns false if it is no tensor.
  bool view(const char* op, const char* argument, PyObject* object, sluice_tensor* view,
            bool* read_only) noexcept;

  /// `bytes` bytes of a GPU as a view, lent by the framework whose tensors are there for the time of
  /// the call; false without an exception where it lends none in this way. At most once a call.
  bool borrow_memory(sluice_device device, size_t bytes, sluice_tensor* view) noexcept;

  /// The stream of a call on `device`: the named one, else the framework's current one.
  bool stream(sluice_device device, void** stream) noexcept;

  bool stream_named() const noexcept { return stream_named_; }
  /// First tensor on a CUDA device, null before; borrowed.
  PyObject* device_tensor() const noexcept { return device_tensor_; }

 private:
  bool view_from_buffer(const char* op, const char* argument, PyObject* object, sluice_tensor* view,
                        bool* read_only) noexcept;
  /// A capsule of an object whose type has buffers too, but which refused to give one.
  bool view_from_refused(const char* op, const char* argument, PyObject* object,
                         sluice_tensor* view, bool* read_only) noexcept;
  bool view_from_capsule(const char* op, const char* argument, PyObject* object,
                         sluice_tensor* view, bool* read_only) noexcept;
  bool keep(PyObject* object) noexcept;
  bool current_stream_of(PyObject* object) noexcept;

  // More than the tensors of any operator, its workspace included.
  static constexpr int kMost = 48;
  Py_buffer buffers_[kMost];
  dlpack::ManagedVersioned* memory_ = nullptr;  ///< of borrow_memory()
  PyObject* objects_[kMost];
  int buffer_count_ = 0;
  int object_count_ = 0;
  bool stream_named_ = false;
  bool stream_known_ = false;
  bool ask_for_signs_ = false;
  void* stream_ = nullptr;
  PyObject* device_tensor_ = nullptr;
  const dlpack::ExchangeApi* device_api_ = nullptr;
};

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_VIEWS_HPP_
