// Moves o from registers to global memory, by a state warpgroup.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_OUTPUT_ROWS_CUH_
#define SLUICE_CUDA_DEVICE_OUTPUT_ROWS_CUH_

#include "cuda/device/work_items.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/fragment.cuh"

namespace sluice::cuda::device {

/// Named barriers of outputs: a warpgroup's half of o is in its tile; the tile may be written.
enum class OutputBarrier : uint32_t { kOutputLow = 2, kOutputHigh, kParkLow, kParkHigh, kCount };

/// Writes `rows` rows of one half of o by hand, by the 128 threads of a warpgroup; null source:
/// zeros.
__device__ __forceinline__ void store_rows(const PrefillParams& p, const WorkItem& item, int first,
                                           int rows, int half, const uint8_t* source) {
  int thread = tile::thread_of_group(), batch = item.batch, head = item.head;
  int64_t token = int64_t{item.row} + first;
  // WHY: keeps this rare path's addresses out of the registers of the loop around it.
  asm volatile("" : "+r"(thread), "+r"(batch), "+r"(head), "+l"(token));
  uint16_t* out = static_cast<uint16_t*>(p.o_data) + batch * p.o_batch_stride +
                  token * p.o_token_stride + head * p.o_head_stride + item.column + half * 64;
#pragma unroll 1
  for (int row = thread >> 3; row < rows; row += 16) {
    const uint32_t piece = static_cast<uint32_t>(thread & 7);
    uint4 value = make_uint4(0, 0, 0, 0);
    if (source != nullptr) {
      value = *reinterpret_cast<const uint4*>(
          source + tile::swizzled_piece(static_cast<uint32_t>(row), piece));
    }
    *reinterpret_cast<uint4*>(out + row * p.o_token_stride + piece * 8) = value;
  }
}

/// Places and slots of the output that a state warpgroup has in hand.
struct OutputPlace {
  int half;           ///< half of V
  uint32_t v_offset;  ///< lane's part in moving 16 tokens x 16 columns of a v tile, transposed

  __device__ __forceinline__ explicit OutputPlace(int half_) : half(half_) {
    v_offset = static_cast<uint32_t>(half) * 64 * tile::kRowBytes + tile::turned_piece();
  }
};

/// Waits until the last store has read the o tile. The warpgroup's next barrier tells the others.
__device__ __forceinline__ void wait_for_store() {
  if (tile::is_first_of_group()) ptx::bulk_wait_read();
}

/// O^T of a chunk to the o tile. Shared: the kernel's shared memory.
template <class Shared, class Io>
__device__ __forceinline__ void park_output(Shared& s, const OutputPlace& at,
                                            const tile::Operand<Io, 64>& o) {
  o.store_turned(s.o.address() + at.v_offset);
}

/// The o tile, chunk c, to global memory: whole chunks by the copy engine, a partial one by hand.
template <class C, class Shared>
__device__ __forceinline__ void store_output(const PrefillParams& p, Shared& s,
                                             const OutputPlace& at, const WorkItem& item, int c) {
  ptx::fence_proxy_async();
  const auto barrier = static_cast<uint32_t>(OutputBarrier::kOutputLow) + at.half;
  const uint8_t* source = s.o.block(at.half);
  if (item.rows(c) < C::kChunk) {
    // SYNC kOutputLow, kOutputHigh: the warpgroup waits for all of its half of o
    ptx::named_barrier_sync(barrier, 128);
    store_rows(p, item, c * C::kChunk, item.rows(c), at.half, source);
  } else if (tile::warp_of_group() == 0) {
    // SYNC kOutputLow, kOutputHigh: the first warp waits for the others' columns of o
    ptx::named_barrier_sync(barrier, 128);
    if (tile::is_first_lane()) {
      ptx::tma_store(
          &p.o, source,
          {0, item.row + c * C::kChunk, item.column / 64 + at.half, item.head, item.batch});
      ptx::bulk_commit();
    }
  } else {
    // SYNC kOutputLow, kOutputHigh: this warp's columns of o are written
    ptx::named_barrier_arrive(barrier, 128);
  }
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_OUTPUT_ROWS_CUH_
