// Declares the memory that a backend's kernels read and write, so that cases need not know the
// device.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CHECKSUMS_DEVICE_HPP_
#define SLUICE_TESTS_CHECKSUMS_DEVICE_HPP_

#include <cstddef>
#include <string>

#include "sluice/sluice.h"

namespace sluice::checksums {

class Device {
 public:
  virtual ~Device() = default;
  /// What views of this memory say.
  [[nodiscard]] virtual sluice_device name() const = 0;
  /// 256-byte aligned memory.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual void fill(void* memory, int byte, size_t bytes) = 0;
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;
  /// Waits for the kernels; what went wrong, empty if nothing.
  virtual std::string wait() = 0;
  /// What the results depend on besides the kernel, e.g. "sm90x132"; empty on the CPU.
  [[nodiscard]] virtual std::string model() const = 0;
};

Device& cpu_device();
/// Null where there is no GPU or the program was built without CUDA.
Device* cuda_device();

}  // namespace sluice::checksums

#endif  // SLUICE_TESTS_CHECKSUMS_DEVICE_HPP_
