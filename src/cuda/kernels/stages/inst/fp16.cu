// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/gla.cuh"
#include "cuda/kernels/stages/instances.h"
#include "cuda/kernels/stages/kkt.cuh"
#include "cuda/kernels/stages/solve_wy.cuh"
#include "cuda/kernels/stages/states.cuh"
#include "cuda/kernels/stages/wy.cuh"

namespace sluice::cuda::stages {
using Io = __half;

const void* fp16_kkt() noexcept { return reinterpret_cast<const void*>(kkt_kernel<Io>); }
const void* fp16_wy() noexcept { return reinterpret_cast<const void*>(wy_kernel<Io>); }
const void* fp16_solve_wy(int C) noexcept {
  return C == 128 ? reinterpret_cast<const void*>(solve_wy_kernel<Io, 128>)
                  : reinterpret_cast<const void*>(solve_wy_kernel<Io, 64>);
}
const void* fp16_outputs() noexcept { return reinterpret_cast<const void*>(outputs_kernel<Io>); }
const void* fp16_states(bool wide, bool narrow) noexcept {
  if (narrow) {
    return wide ? reinterpret_cast<const void*>(states_kernel<Io, 2, 2>)
                : reinterpret_cast<const void*>(states_kernel<Io, 1, 2>);
  }
  return wide ? reinterpret_cast<const void*>(states_kernel<Io, 2, 4>)
              : reinterpret_cast<const void*>(states_kernel<Io, 1, 4>);
}
const void* fp16_gla(bool wide) noexcept {
  return wide ? reinterpret_cast<const void*>(gla_kernel<Io, 2>)
              : reinterpret_cast<const void*>(gla_kernel<Io, 1>);
}

}  // namespace sluice::cuda::stages
