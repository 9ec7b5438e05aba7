// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/chain_tiles.cuh"
#include "cuda/kernels/backward/gradient_tiles.cuh"
#include "cuda/kernels/backward/instances.h"
#include "cuda/kernels/backward/local_tiles.cuh"

namespace sluice::cuda::backward {
using Io = __half;

const void* fp16_local() noexcept { return reinterpret_cast<const void*>(local_tiles_kernel<Io>); }
const void* fp16_chain(bool narrow) noexcept {
  return narrow ? reinterpret_cast<const void*>(chain_tiles_kernel<Io, 2>)
                : reinterpret_cast<const void*>(chain_tiles_kernel<Io, 4>);
}
const void* fp16_gradients() noexcept {
  return reinterpret_cast<const void*>(gradient_tiles_kernel<Io>);
}

}  // namespace sluice::cuda::backward
