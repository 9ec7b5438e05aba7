// Loads NVIDIA's management library and asks it for clock and driver version.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/clock.hpp"

#include <dlfcn.h>

namespace sluice::tools {
namespace {

constexpr int kSuccess = 0, kMultiprocessorClock = 1;  // NVML_SUCCESS, NVML_CLOCK_SM

}  // namespace

template <class Function>
Function ClockReader::symbol(const char* name) const {
  return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
}

ClockReader::ClockReader(const char* pci_bus) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
  const auto start = symbol<int (*)()>("nvmlInit_v2");
  const auto find = symbol<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  const auto version = symbol<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
  if (start == nullptr || find == nullptr || start() != kSuccess) return;
  if (find(pci_bus, &device_) != kSuccess) device_ = nullptr;
  char text[96] = {};
  if (version != nullptr && version(text, sizeof text) == kSuccess) driver_version_ = text;
}

ClockReader::~ClockReader() {
  if (library_ != nullptr) dlclose(library_);
}

double ClockReader::multiprocessor_mhz() const {
  const auto read = symbol<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
  unsigned mhz = 0;
  if (device_ == nullptr || read == nullptr) return 0;
  return read(device_, kMultiprocessorClock, &mhz) == kSuccess ? mhz : 0;
}

}  // namespace sluice::tools
