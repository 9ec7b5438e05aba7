// Finds by what power of two the gradients of a sequence and head are multiplied inside, so that
// float16 keeps their digits: they are linear in d_o and d_final.
//
// Roles     a CTA of 128 threads has one (chunk, head)
// Memory    registers; a number a warp of shared memory
// Floor     bytes of d_o
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_SCALE_TILES_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_SCALE_TILES_CUH_

#include "cuda/kernels/backward/segments.cuh"
#include "cuda/kernels/backward/tile_numbers.cuh"

namespace sluice::cuda::backward {

inline constexpr int kScaleThreads = 128;

__device__ __forceinline__ float warp_maximum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

/// The number of a chunk among all of the call.
__device__ __forceinline__ int64_t chunk_number(const StageParams& p, int64_t batch, int64_t seq,
                                                int64_t number) {
  const int64_t before = device::chunks_before(p, seq);
  return (p.cu_seqlens.data != nullptr ? before : batch * p.slots) + number;
}

/// The power of two of a sequence and head whose first chunk is `first`. Near 1 nothing is gained,
/// and of what is no number nothing can be said. Whole warps; all lanes get it.
__device__ __forceinline__ float gradient_scale(const BackwardParams& b, int64_t first, int chunks,
                                                int64_t head) {
  float largest = 0.0f;
  const auto there = static_cast<int>(min(int64_t{chunks}, device::chunk_slots(b.stage) - first));
  for (int i = tile::lane(); i < there; i += 32) {
    largest = fmaxf(largest, b.maxima[(first + i) * b.stage.HV + head]);
  }
  largest = warp_maximum(largest);
  if (!(largest > 0.0f && largest < 0x1p100f) || (largest >= 0x1p-4f && largest <= 0x1p4f)) {
    return 1.0f;
  }
  // 2^-e of a number from 2^e on.
  return __uint_as_float((254u << 23) - (__float_as_uint(largest) & 0x7F800000u));
}

/// Items are slots x heads.
template <class Io>
__global__ void __launch_bounds__(kScaleThreads)
    maxima_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  auto& warps = *reinterpret_cast<float(*)[kScaleThreads / 32]>(ptx::dynamic_memory());
  const StageParams& p = b.stage;
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = device::chunk_of(p, first_slot(b) + item / p.HV);
    const int64_t head = item % p.HV;
    if (chunk.tokens == 0 || !is_inside(b.window, chunk)) continue;
    const auto* const d_o =
        static_cast<const uint16_t*>(b.d_o.data) + at(b.d_o, chunk.batch, chunk.row, head);
    float largest = 0.0f;
    const int pieces = static_cast<int>(p.V) / 8;  // 8 or 16 of a row
    for (int i = static_cast<int>(threadIdx.x); i < pieces * chunk.tokens; i += kScaleThreads) {
      const int token = pieces == 16 ? i / 16 : i / 8;
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(d_o + token * b.d_o.token_stride +
                                                           (i - token * pieces) * 8));
      for (const uint32_t pair : {x.x, x.y, x.z, x.w}) {
        largest = fmaxf(largest, fmaxf(fabsf(tile::Packed<Io>::first(pair)),
                                       fabsf(tile::Packed<Io>::second(pair))));
      }
    }
    const device::StatePool& pool = b.d_final.pool;
    if (chunk.number == 0 && pool.data != nullptr) {
      const int64_t count = p.K * p.V, start = chunk.seq * pool.slot_stride + head * count;
      for (int64_t i = threadIdx.x; i < count; i += kScaleThreads) {
        largest = fmaxf(largest, fabsf(device::load_number(pool.data, start + i, pool.number)));
      }
    }
    largest = warp_maximum(largest);
    if (tile::is_first_lane()) warps[tile::warp()] = largest;
    __syncthreads();
    const int64_t number = chunk_number(p, chunk.batch, chunk.seq, chunk.number);
    if (threadIdx.x == 0 && number < device::chunk_slots(p)) {
      for (const float x : warps) largest = fmaxf(largest, x);
      b.maxima[number * p.HV + head] = largest;
    }
    __syncthreads();
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_SCALE_TILES_CUH_
