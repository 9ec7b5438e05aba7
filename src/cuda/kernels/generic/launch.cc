// Launches the generic kernel: one CTA for each slice of a head of a sequence.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/generic/launch.h"

#include "cuda/kernels/generic/config.h"

namespace sluice::cuda::generic {
namespace {

const void* kernel_for(int64_t K, bool key_wise) noexcept {
  if (K <= 32) return kernel_k32(key_wise);
  if (K <= 64) return kernel_k64(key_wise);
  if (K <= 128) return kernel_k128(key_wise);
  return K <= 256 ? kernel_k256(key_wise) : kernel_k512(key_wise);
}

}  // namespace

int load_kernels() noexcept {
  KernelLoader load;
  for (const int64_t K : {32, 64, 128, 256, 512}) {
    for (const bool key_wise : {false, true}) load(kernel_for(K, key_wise));
  }
  return load.error();
}

void launch(const GenericParams& params, Launcher& launcher) noexcept {
  const int64_t slice = slice_of(params.K), slices = (params.V + slice - 1) / slice,
                items = params.N * params.HV * slices;
  if (items == 0) return;
  LaunchShape shape{grid_of(items), kThreads};
  const bool key_wise = params.key_gate.data != nullptr;
  shape.shared_bytes = key_wise ? key_bytes(params.K) : 0;
  shape.follows = false;
  launcher(kernel_for(params.K, key_wise), shape, params, items, slices);
}

}  // namespace sluice::cuda::generic
