// Runs what the CUDA backend launches on the emulator: kernels are made known with the types of
// their parameters, and a launch of one runs it there.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_LAUNCHER_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_LAUNCHER_HPP_

#include <functional>
#include <tuple>
#include <utility>

#include "cuda/launch.h"
#include "emulator.hpp"

namespace emulation {

/// What a launch does instead. Returns a cudaError_t.
using RunKernel = std::function<int(const sluice::cuda::LaunchShape&, void** arguments)>;

/// Says what launches of `kernel` do; the last word counts.
void add_kernel(const void* kernel, RunKernel run);

/// The grid of a launch.
inline Grid grid_of(const sluice::cuda::LaunchShape& shape) {
  Grid grid{};
  grid.x = shape.grid.x, grid.y = shape.grid.y;
  grid.ctas = shape.grid.x * shape.grid.y * shape.grid.z;
  grid.threads = shape.threads;
  grid.cluster = shape.cluster;
  grid.shared_bytes = shape.shared_bytes;
  return grid;
}

/// The arguments of a launch, of a kernel's own types.
template <class... Parameters>
std::tuple<Parameters...> unpacked(void** arguments) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::tuple<Parameters...>{*static_cast<Parameters*>(arguments[I])...};
  }(std::index_sequence_for<Parameters...>{});
}

/// Makes a kernel known to launches.
/// @param run int(const Grid&, const std::function<void()>& thread, const Parameters&...): runs the
///        grid, of which each thread calls `thread`
/// @return the kernel, as launches name it
template <class... Parameters, class Run>
const void* known(void (*kernel)(Parameters...), Run run) {
  const void* const address = reinterpret_cast<const void*>(kernel);
  add_kernel(address, [kernel, run](const sluice::cuda::LaunchShape& shape, void** arguments) {
    const auto parameters = unpacked<Parameters...>(arguments);
    const std::function<void()> thread = [&] { std::apply(kernel, parameters); };
    return std::apply([&](const auto&... p) { return run(grid_of(shape), thread, p...); },
                      parameters);
  });
  return address;
}

}  // namespace emulation

#endif  // SLUICE_TESTS_EMULATION_EMULATED_LAUNCHER_HPP_
