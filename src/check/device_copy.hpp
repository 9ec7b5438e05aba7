// Puts a call's tensors on another device, behind an interface, so that whoever makes calls stays
// free of CUDA. cuda_device_copy.cc implements it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_DEVICE_COPY_HPP_
#define SLUICE_CHECK_DEVICE_COPY_HPP_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sluice/sluice.h"

namespace sluice::check {

/// Device copies of one call's tensors. Views that share host memory share device memory, gaps
/// between elements are copied too, and addresses keep their alignment.
class DeviceCopy {
 public:
  virtual ~DeviceCopy() = default;
  /// Points the tensors at device copies of their memory.
  virtual void upload(const std::vector<sluice_tensor*>& tensors) = 0;
  /// Waits for the device; what went wrong up to here, empty if nothing.
  virtual std::string wait() = 0;
  /// Device scratch, filled with `fill`, with guard bytes behind it.
  virtual sluice_workspace workspace(size_t bytes, int fill) = 0;
  /// Waits, copies everything back to where it came from; what went wrong, empty if nothing.
  virtual std::string download() = 0;
};

/// Makes a DeviceCopy; null (the default) where this executable has no device.
using MakeDeviceCopy = std::unique_ptr<DeviceCopy> (*)();
inline MakeDeviceCopy make_device_copy = nullptr;

}  // namespace sluice::check

#endif  // SLUICE_CHECK_DEVICE_COPY_HPP_
