// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_h/instances.h"
#include "cuda/kernels/chunk_h/kernel.cuh"

const sluice::cuda::chunk_h::Instance& sluice::cuda::chunk_h::bf16(bool wide,
                                                                   int columns) noexcept {
  static const Instance instances[2][2] = {{make_instance<Config<__nv_bfloat16, 64, 64>>(),
                                            make_instance<Config<__nv_bfloat16, 64, 128>>()},
                                           {make_instance<Config<__nv_bfloat16, 128, 64>>(),
                                            make_instance<Config<__nv_bfloat16, 128, 128>>()}};
  return instances[wide ? 1 : 0][columns / 128];
}

const sluice::cuda::chunk_h::Instance& sluice::cuda::chunk_h::bf16_back() noexcept {
  static const Instance instance = make_instance<Config<__nv_bfloat16, 128, 64, true>>();
  return instance;
}
