// Turns an error of the CUDA runtime into an exception that names the call.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CUDA_ERROR_HPP_
#define SLUICE_TOOLS_BENCH_CUDA_ERROR_HPP_

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <stdexcept>

namespace sluice::tools {

/// Throws std::runtime_error "what: name (text)" unless the call succeeded.
inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(
      fmt::format("{}: {} ({})", what, cudaGetErrorName(error), cudaGetErrorString(error)));
}

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CUDA_ERROR_HPP_
