// Launches the generic kernel: one CTA for each slice of a head of a sequence.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/generic/launch.h"

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
    if (const int error = load_kernel(kernel_for(K)); error != 0) return error;
  }
  return 0;
}

void launch(const GenericParams& params, Launcher& launcher) noexcept {
  const int64_t slice = slice_of(params.K), slices = (params.V + slice - 1) / slice,
                items = params.N * params.HV * slices;
  if (items == 0) return;
  constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;
  LaunchShape shape{{static_cast<unsigned>(std::min(items, kMaxGrid))}, kThreads};
  shape.shared_bytes = params.key_gate.data != nullptr ? key_bytes(params.K) : 0;
  shape.follows = false;
  launcher(kernel_for(params.K), shape, params, items, slices);
}

}  // namespace sluice::cuda::generic
