// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_h/instances.h"
#include "cuda/kernels/chunk_h/kernel.cuh"

const sluice::cuda::chunk_h::Instance& sluice::cuda::chunk_h::fp16(bool wide,
                                                                   int columns) noexcept {
  static const Instance instances[2][2] = {
      {make_instance<Config<__half, 64, 64>>(), make_instance<Config<__half, 64, 128>>()},
      {make_instance<Config<__half, 128, 64>>(), make_instance<Config<__half, 128, 128>>()}};
  return instances[wide ? 1 : 0][columns / 128];
}

const sluice::cuda::chunk_h::Instance& sluice::cuda::chunk_h::fp16_back() noexcept {
  static const Instance instance = make_instance<Config<__half, 128, 64, true>>();
  return instance;
}
