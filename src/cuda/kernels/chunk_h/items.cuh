// Deals out work items of chunk_h, and moves a warpgroup's tiles.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_H_ITEMS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_H_ITEMS_CUH_

#include "cuda/device/chunk_numbers.cuh"
#include "cuda/device/output_rows.cuh"
#include "cuda/device/state_io.cuh"
#include "cuda/kernels/chunk_h/config.h"
#include "cuda/ptx/matrix.cuh"
#include "cuda/tile/fragment.cuh"
#include "cuda/tile/products.cuh"
#include "cuda/tile/shared_tile.cuh"

namespace sluice::cuda::chunk_h {

/// A sequence, a head and the first of the columns.
struct Item {
  device::Chunk sequence;  ///< all of its tokens as one chunk
  int head, column;
  bool padded;
  int64_t read, write;  ///< slots of states, or -1
};

template <class C>
__device__ __forceinline__ Item item_at(const device::StageParams& p, int64_t number) {
  const int64_t slices = p.V / C::kV, seq = number / slices / p.HV;
  Item item{};
  item.sequence.tokens = static_cast<int>(device::tokens_of(p, seq, &item.sequence));
  const device::Sequence slots = device::slots_of(p, seq);
  item.padded = slots.padded, item.read = slots.read, item.write = slots.write;
  item.head = static_cast<int>(number / slices % p.HV);
  item.column = static_cast<int>(number % slices) * C::kV;
  return item;
}

__device__ __forceinline__ int chunks_of(const Item& item) {
  return item.padded ? 0 : (item.sequence.tokens + 63) / 64;
}

/// Places of a warpgroup of states.
struct Place {
  int half;          ///< 64 columns of the item's
  uint32_t barrier;  ///< named, of this warpgroup
  uint32_t offset;   ///< tile::turned_piece()
  int turn = 0;      ///< which tiles this chunk's h and v_new go through
};

/// A warpgroup's 64 columns of v_new of a partial chunk, by hand; null tile: zeros.
__device__ __forceinline__ void store_values(const device::TokenRows& v_new, const Item& item,
                                             int column, int row, int rows, const uint8_t* tile) {
  auto* const out = static_cast<uint16_t*>(v_new.data) +
                    device::at(v_new, item.sequence.batch, item.sequence.row + row, item.head) +
                    column;
#pragma unroll 1
  for (int i = tile::thread_of_group(); i < rows * 8; i += 128) {
    const auto r = static_cast<uint32_t>(i / 8), piece = static_cast<uint32_t>(i % 8);
    *reinterpret_cast<uint4*>(out + r * v_new.token_stride + 8 * piece) =
        tile == nullptr ? uint4{}
                        : *reinterpret_cast<const uint4*>(tile + tile::swizzled_piece(r, piece));
  }
}

/// What a warpgroup has written of chunk c to its tiles, to memory. On return those of the chunk
/// before may be written.
template <class C>
__device__ __forceinline__ void send(const StatesParams& p, SharedMemoryPlan<C>& s,
                                     const Place& place, const Item& item, int c, int64_t state,
                                     int rows) {
  ptx::fence_proxy_async();
  if (tile::is_first_of_group()) ptx::bulk_wait_read();
  // SYNC place.barrier: the tiles are written, and those of the chunk before have been read
  ptx::named_barrier_sync(place.barrier, 128);
  const int column = item.column + 64 * place.half, row = c * C::kChunk;
  const uint8_t* const v_new = s.v_new[place.half][place.turn].bytes;
  const bool values = p.stage.v_new.data != nullptr;
  if (values && rows < C::kChunk) {
    store_values(p.stage.v_new, item, column, row, rows, v_new);
  }
  if (!tile::is_first_of_group()) return;
  if (p.stage.h.data != nullptr) {
    ptx::tma_store(&p.h, s.h[place.half][place.turn].bytes,
                   {0, 0, column / 64, item.head, static_cast<int32_t>(state)});
  }
  if (values && rows == C::kChunk) {
    ptx::tma_store(&p.v_new, v_new,
                   {0, static_cast<int32_t>(item.sequence.row) + row, column / 64, item.head,
                    static_cast<int32_t>(item.sequence.batch)});
  }
  ptx::bulk_commit();
}

}  // namespace sluice::cuda::chunk_h

#endif  // SLUICE_CUDA_KERNELS_CHUNK_H_ITEMS_CUH_
