// Compiles solve_tril.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/solve.cuh"

#include "cuda/kernels/stages/instances.h"
#include "cuda/kernels/stages/solve_wy.cuh"

namespace sluice::cuda::stages {

const void* solve(int C) noexcept {
  if (C == 16) return reinterpret_cast<const void*>(solve_kernel<16>);
  if (C == 32) return reinterpret_cast<const void*>(solve_kernel<32>);
  if (C == 64) return reinterpret_cast<const void*>(solve_kernel<64>);
  return reinterpret_cast<const void*>(solve_kernel<128>);
}
const void* plain_solve_wy(int C) noexcept {
  if (C == 16) return reinterpret_cast<const void*>(plain_solve_wy_kernel<16>);
  if (C == 32) return reinterpret_cast<const void*>(plain_solve_wy_kernel<32>);
  if (C == 64) return reinterpret_cast<const void*>(plain_solve_wy_kernel<64>);
  return reinterpret_cast<const void*>(plain_solve_wy_kernel<128>);
}

}  // namespace sluice::cuda::stages
