// States the shapes of the stage kernels, and describes a call to them: one POD for all, passed as a
// __grid_constant__.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_STAGE_PARAMS_H_
#define SLUICE_CUDA_DEVICE_STAGE_PARAMS_H_

#include <cstdint>

#include "cuda/device/views.h"
#include "cuda/tile/swizzle.hpp"

namespace sluice::cuda::device {

// ------------------------------------------------------------------- any dtype, any stride ----

inline constexpr int kPlainThreads = 256;
inline constexpr int kPlainRows = 64, kPlainColumns = 32;  ///< of a tile
inline constexpr int64_t kPlainMaxK = 512;                 ///< of stages that carry a state

/// Shared bytes of the plain kernels that carry a state of K x 32.
constexpr int64_t plain_chain_bytes(int64_t K) noexcept { return 4 * kPlainColumns * K; }

// ------------------------------------------------------- 16-bit numbers, by tensor cores ----

inline constexpr int kRows = 64;                      ///< tokens of a block
inline constexpr int kColumns = 64;                   ///< of a tile: 128 bytes a row
inline constexpr int64_t kTileBytes = 8192;           ///< 64 x 64 numbers of 16 bits
inline constexpr int64_t kTileMaxK = 256;             ///< of stages of one chunk
inline constexpr int64_t kChainMaxK = 128;            ///< of stages that carry a state: 64 or this
inline constexpr int kBlockThreads = 128;             ///< of a CTA that has a block of rows
inline constexpr int kWideRing = 2, kNarrowRing = 3;  ///< blocks of chunk_h's 64 or 32 columns
inline constexpr int kChainThreads = 256;             ///< of a CTA that carries a state

// --------------------------------------------------------------------------- parameters ----

/// The states that enter the chunks, [B,chunks,HV,K,V] or [..,V,K]; each matrix dense.
struct ChunkStates {
  void* data;  ///< may be null
  int64_t batch_stride, chunk_stride, head_stride;
  Number number;
  int64_t room;  ///< chunks of a batch entry; those past it are not written, and read as zeros
};

/// How simple GLA is spread over a GPU: sequences cut into segments, whose states come first.
struct Segments {
  int64_t tokens;    ///< of a segment, a multiple of C; 0: sequences are not cut
  int64_t slots;     ///< segments of a batch entry, or a bound on those of all sequences
  float* states;     ///< [slots,HV,K,V]: what a segment adds, then what it starts from
  float* decays;     ///< [slots,HV]: sums of its gates
  bool states_only;  ///< this pass finds what segments add
};

/// Views that a stage does not have are null. Rows are [B,T,HV,..]; q and k [B,T,H,K].
struct StageParams {
  TokenRows q, k;
  TokenRows values;          ///< v, u or v_new: what the stage reads
  TokenRows gate, g_cumsum;  ///< [B,T,HV]; at most one is read
  TokenRows sums;            ///< [B,T,HV] float32: g_cumsum as an output of cumsum_kkt
  TokenRows beta;            ///< [B,T,HV]
  TokenRows A, A_inverse;    ///< [B,T,HV,C]
  TokenRows w, u, v_new, o;
  ChunkStates h;
  StateSlots state;
  IndexVector cu_seqlens;         ///< [N+1]; null: sequence n is batch entry n
  int64_t N, T, H, HV, K, V, r;   ///< those that the stage has
  int64_t slots;                  ///< chunks of a batch entry, or a bound on those of all sequences
  int64_t row_step, column_step;  ///< elements between neighbours in a state
  int32_t C;                      ///< tokens of a chunk
  int32_t columns;                ///< of V that a CTA of chunk_h has by tensor cores: 64 or 32
  float scale;
  bool head_map_cyclic, reverse, upper;
  Segments segments;  ///< of simple GLA
  bool has_gates;     ///< gate or g_cumsum is given
  bool key_gates;     ///< g_cumsum is [B,T,HV,K]
  /// chunk_cumsum: how many times HV heads of gate and of g_cumsum there are, and elements from one
  /// time to the next. Key-wise gates: HV of K channels.
  int64_t repeats, gate_repeat, sums_repeat;
};

/// Places for chunks of all batch entries. BOUND: offsets that do not ascend may make more chunks.
SLUICE_HOST_DEVICE int64_t chunk_slots(const StageParams& p) {
  return p.cu_seqlens.data != nullptr ? p.slots : p.N * p.slots;
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_STAGE_PARAMS_H_
