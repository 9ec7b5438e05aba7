// Reads a GPU's clock and driver version through NVIDIA's management library, loaded at run time,
// so that nothing has to be linked.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CLOCK_HPP_
#define SLUICE_TOOLS_BENCH_CLOCK_HPP_

#include <string>

namespace sluice::tools {

class ClockReader {
 public:
  /// pci_bus: as cudaDeviceGetPCIBusId() writes it.
  explicit ClockReader(const char* pci_bus);
  ClockReader(const ClockReader&) = delete;
  ClockReader& operator=(const ClockReader&) = delete;
  ~ClockReader();

  /// 0 if it cannot be asked.
  double multiprocessor_mhz() const;
  /// "580.159.04", empty if it cannot be asked.
  const std::string& driver_version() const { return driver_version_; }

 private:
  template <class Function>
  Function symbol(const char* name) const;

  void* library_ = nullptr;
  void* device_ = nullptr;
  std::string driver_version_;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CLOCK_HPP_
