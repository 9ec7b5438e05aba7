// Steps one token of every sequence on heads of 128 x 128 in one launch: heads in tiles, heads one
// after the other, or whole layers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_KERNEL_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_KERNEL_CUH_

#include "cuda/kernels/decode/single/layer.cuh"
#include "cuda/kernels/decode/single/step.cuh"
#include "cuda/kernels/decode/single/stream.cuh"

namespace sluice::cuda::decode {

/// Dynamic shared memory of a CTA.
template <class C>
constexpr size_t single_shared_bytes() noexcept {
  if (C::kCut == SingleCut::kLayer) return sizeof(LayerShared<C>);
  if (C::kCut == SingleCut::kStream) return sizeof(StreamShared<C>);
  return C::kWarps > 1 || C::kKeyGates ? sizeof(SingleShared<C>) : 0;
}

/// @param p by value, in constant memory. Launch with CTAs of C::kThreads threads and
///          single_shared_bytes() of dynamic shared memory, in a grid of r C::kTilesOfHead /
///          C::kTiles x H x N; of kStream p.ctas of them; of kLayer r x H x N in clusters of r.
template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kResident)
    single_kernel(const __grid_constant__ typename C::Params p) {
  if constexpr (C::kCut == SingleCut::kLayer) {
    run_single_layer<C>(p);
  } else if constexpr (C::kCut == SingleCut::kStream) {
    run_single_stream<C>(p);
  } else {
    run_single_tiles<C>(p);
  }
}

template <class State, class Io, SingleCut kCut, bool kKeyGates, bool kVk, bool kPacked = false>
SingleInstance single_instance() noexcept {
  using C = SingleConfig<State, Io, kCut, kKeyGates, kVk, kPacked>;
  return {reinterpret_cast<const void*>(&single_kernel<C>), C::kTilesOfHead / C::kTiles,
          C::kThreads, static_cast<uint32_t>(single_shared_bytes<C>())};
}

template <class State, class Io, bool kKeyGates>
SingleInstance single_instance_kv(SingleCut cut) noexcept {
  // In float32 the registers of many CTAs are no others than those of few.
  constexpr SingleCut kMany = sizeof(State) == 4 ? SingleCut::kWide : SingleCut::kMany;
  switch (cut) {
    case SingleCut::kNarrow:
      return single_instance<State, Io, SingleCut::kNarrow, kKeyGates, false>();
    case SingleCut::kStream:
      return single_instance<State, Io, SingleCut::kStream, kKeyGates, false>();
    case SingleCut::kMany:
      return single_instance<State, Io, kMany, kKeyGates, false>();
    case SingleCut::kLayer:
      return single_instance<State, Io, SingleCut::kLayer, kKeyGates, false>();
    default:
      return single_instance<State, Io, SingleCut::kWide, kKeyGates, false>();
  }
}

/// None for the cuts that plan_single_vk() does not know.
template <class State, class Io, bool kKeyGates>
SingleInstance single_instance_vk(SingleCut cut, bool packed) noexcept {
  if (cut == SingleCut::kNarrow) {
    return packed ? single_instance<State, Io, SingleCut::kNarrow, kKeyGates, true, true>()
                  : single_instance<State, Io, SingleCut::kNarrow, kKeyGates, true>();
  }
  if constexpr (sizeof(State) == 2) {
    if (cut == SingleCut::kStream && !packed) {
      return single_instance<State, Io, SingleCut::kStream, kKeyGates, true>();
    }
  }
  return {};
}

template <class State, class Io, bool kKeyGates, bool kVk>
SingleInstance single_instance(SingleCut cut, bool packed) noexcept {
  if constexpr (kVk) {
    return single_instance_vk<State, Io, kKeyGates>(cut, packed);
  } else {
    return packed ? SingleInstance{} : single_instance_kv<State, Io, kKeyGates>(cut);
  }
}

/// The instances for tokens of type Io, and states of that type or in float32.
template <class Io, bool kKeyGates, bool kVk>
SingleInstance single_instance(const SingleKind& kind) noexcept {
  return kind.state == Number::kFloat32
             ? single_instance<float, Io, kKeyGates, kVk>(kind.cut, kind.packed)
             : single_instance<Io, Io, kKeyGates, kVk>(kind.cut, kind.packed);
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_KERNEL_CUH_
