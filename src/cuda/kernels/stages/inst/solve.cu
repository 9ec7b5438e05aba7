// Compiles solve_tril, and solve_wy for any dtype and stride.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/solve.cuh"

#include "cuda/kernels/stages/instances.h"
#include "cuda/kernels/stages/solve_wy.cuh"

namespace sluice::cuda::stages {
namespace {

template <int C>
const void* solver(Kernel kernel) noexcept {
  return device::address_of(kernel == Kernel::kSolve ? solve_kernel<C> : plain_solve_wy_kernel<C>);
}

}  // namespace

const void* solve_instance(Kernel kernel, const Variant& variant) noexcept {
  if (variant.C == 16) return solver<16>(kernel);
  if (variant.C == 32) return solver<32>(kernel);
  return variant.C == 64 ? solver<64>(kernel) : solver<128>(kernel);
}

}  // namespace sluice::cuda::stages
