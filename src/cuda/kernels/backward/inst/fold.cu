// Compiles the fold of segments of chunk_backward.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/instances.h"
#include "cuda/kernels/backward/segment_fold.cuh"

namespace sluice::cuda::backward {
namespace {

template <int kK>
device::Instance make_fold() noexcept {
  return {device::address_of(segment_fold_kernel<kK>), sizeof(FoldShared<kK>), kFoldThreads<kK>};
}

}  // namespace

device::Instance segment_fold(bool narrow) noexcept {
  return narrow ? make_fold<64>() : make_fold<128>();
}

}  // namespace sluice::cuda::backward
