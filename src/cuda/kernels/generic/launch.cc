// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/generic/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/generic/config.h"
#include "cuda/kernels/generic/instances.h"

namespace sluice::cuda::generic {
namespace {

const void* kernel_for(int64_t K) noexcept {
  if (K <= 32) return kernel_k32();
  if (K <= 64) return kernel_k64();
  if (K <= 128) return kernel_k128();
  return K <= 256 ? kernel_k256() : kernel_k512();
}

}  // namespace

int load_kernels() noexcept {
  for (const int64_t K : {32, 64, 128, 256, 512}) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel_for(K));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(const GenericParams& params, void* stream) noexcept {
  const int64_t slice = slice_of(params.K);
  int64_t slices = (params.V + slice - 1) / slice;
  int64_t items = params.N * params.HV * slices;
  if (items == 0) return cudaSuccess;
  constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;
  const dim3 grid(static_cast<unsigned>(std::min(items, kMaxGrid)));
  GenericParams copy = params;
  void* arguments[] = {&copy, &items, &slices};
  const size_t dynamic_bytes = params.key_gate.data != nullptr ? key_bytes(params.K) : 0;
  return cudaLaunchKernel(kernel_for(params.K), grid, dim3(kThreads), arguments, dynamic_bytes,
                          static_cast<cudaStream_t>(stream));
}

}  // namespace sluice::cuda::generic
