// Declares the structures of DLPack 1.x that tensors travel in, as its specification lays them out
// in memory (https://dmlc.github.io/dlpack/latest/c_api.html). Only what this extension reads.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_DLPACK_ABI_HPP_
#define SLUICE_PYTHON_DLPACK_ABI_HPP_

#include <cstdint>

namespace sluice::python::dlpack {

struct Device {
  int32_t type;
  int32_t index;
};
constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

/// Strides count elements; null = compact, row-major.
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

/// What a capsule "dltensor" holds.
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct Version {
  uint32_t major;
  uint32_t minor;
};
constexpr uint32_t kMajor = 1;
constexpr uint64_t kReadOnly = 1;

/// What a capsule "dltensor_versioned" holds.
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;
};

/// What the capsule type(x).__dlpack_c_exchange_api__, "dlpack_exchange_api", holds: borrowed views
/// of Python tensors in some 30 ns, and the framework's current stream.
struct ExchangeApi {
  Version version;
  ExchangeApi* previous;
  /// A new tensor of the prototype's shape, type and device; else it tells set_error why not.
  int (*allocate)(Tensor* prototype, ManagedVersioned** made, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  void* managed_from_object;
  void* managed_to_object;
  int (*view_from_object)(void* object, Tensor* view);  ///< may be null; borrowed
  int (*current_stream)(int32_t device_type, int32_t device_index, void** stream);
};

}  // namespace sluice::python::dlpack

#endif  // SLUICE_PYTHON_DLPACK_ABI_HPP_
