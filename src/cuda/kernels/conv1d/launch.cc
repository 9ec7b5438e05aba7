// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/conv1d/instances.h"

namespace sluice::cuda::conv1d {
namespace {

/// By Body.
constexpr const void* (*kKernels[])() noexcept = {rows_of_floats, rows_of_shorts, rows_of_elements,
                                                  lines_of_shorts, lines_of_elements};

}  // namespace

int load_kernels() noexcept {
  for (const auto kernel : kKernels) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(ConvParams params, void* stream) noexcept {
  int device = 0, multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error != cudaSuccess) return error;
  const Body body = choose_body(params);
  plan_launch(body, multiprocessors, &params);
  if (params.warps == 0) return cudaSuccess;
  constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;
  const int64_t ctas = (params.warps + kWarps - 1) / kWarps;
  const dim3 grid(static_cast<unsigned>(std::min(ctas, kMaxGrid)));
  void* arguments[] = {&params};
  return cudaLaunchKernel(kKernels[static_cast<int>(body)](), grid, dim3(kThreads), arguments, 0,
                          static_cast<cudaStream_t>(stream));
}

}  // namespace sluice::cuda::conv1d
