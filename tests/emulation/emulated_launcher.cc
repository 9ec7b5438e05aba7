// Stands in for the CUDA backend's launcher: no driver, kernels run on the emulator.
// SPDX-License-Identifier: Apache-2.0
#include "emulated_launcher.hpp"

#include <cstdio>
#include <cstring>
#include <unordered_map>

namespace emulation {
namespace {

std::unordered_map<const void*, RunKernel>& kernels() {
  static std::unordered_map<const void*, RunKernel> instance;
  return instance;
}

}  // namespace

void add_kernel(const void* kernel, RunKernel run) { kernels()[kernel] = std::move(run); }

}  // namespace emulation

namespace sluice::cuda {

int load_kernel(const void*) noexcept { return 0; }
int grant_shared(const void*, size_t, int) noexcept { return 0; }

void Launcher::clear(void* memory, size_t bytes) noexcept {
  if (ok()) std::memset(memory, 0, bytes);
}

void Launcher::note(int error) noexcept {
  if (error == 0 || !status_.ok()) return;
  status_ = Status::failure(Code::kDeviceError, "%s: launch = %d, expected 0", op_, error);
}

int Launcher::enqueue(const void* kernel, const LaunchShape& shape, void** arguments) noexcept {
  constexpr int kInvalidFunction = 98;
  const auto found = emulation::kernels().find(kernel);
  if (found != emulation::kernels().end()) return found->second(shape, arguments);
  std::fprintf(stderr, "emulation: a launch of a kernel that nobody made known\n");
  return kInvalidFunction;
}

}  // namespace sluice::cuda
