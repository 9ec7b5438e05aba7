// Chooses between the instances of one type and K of the prefill with key-wise gates.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_INSTANCES_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_INSTANCES_CUH_

#include "cuda/kernels/chunk_forward/key_kernel.cuh"

namespace sluice::cuda::chunk_forward {

template <class Io, bool kL2Norm>
const Instance& key_preparation(int K) noexcept {
  static const Instance large = make_key_preparation<KeyPrepareConfig<Io, kL2Norm, 128>>();
  static const Instance small = make_key_preparation<KeyPrepareConfig<Io, kL2Norm, 64>>();
  return K == 128 ? large : small;
}

/// The transition pass has no items wider than K.
template <class Io, bool kDelta, int kK>
const Instance& key_instance(int columns, bool output) noexcept {
  static const Instance wide = make_key_instance<KeyConfig<Io, kDelta, kK, 128>>();
  static const Instance narrow = make_key_instance<KeyConfig<Io, kDelta, kK, 64>>();
  static const Instance transition = make_key_instance<KeyConfig<Io, kDelta, kK, kK, false>>();
  if constexpr (kK == 128) {
    static const Instance narrow_transition =
        make_key_instance<KeyConfig<Io, kDelta, 128, 64, false>>();
    if (!output && columns == 64) return narrow_transition;
  }
  if (!output) return transition;
  return columns == 128 ? wide : narrow;
}

template <class Io, int kK>
const Instance& key_instance(bool delta, int columns, bool output) noexcept {
  return delta ? key_instance<Io, true, kK>(columns, output)
               : key_instance<Io, false, kK>(columns, output);
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_INSTANCES_CUH_
