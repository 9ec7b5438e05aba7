// Describes where a summary of pieces goes: what chunk_summary asks for besides a prefill.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SUMMARY_PARAMS_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SUMMARY_PARAMS_H_

#include "cuda/device/segments.hpp"
#include "cuda/device/views.h"

namespace sluice::cuda::chunk_forward {

/// A piece is a sequence. It is cut into leaves of cut.length chunks or more, each with a boundary of
/// its own, and has one boundary more: its tail, the last chunks, of heads that forget what came before these.
struct SummaryParams {
  float *transition, *addend;  ///< [N,HV,K,K] and [N,HV,K,V], dense inside a piece; may be null
  int64_t transition_stride, addend_stride;
  uint8_t* forgotten;  ///< [N,HV], may be null
  int64_t forgotten_piece, forgotten_head;
  device::IndexVector wanted;  ///< [N] of bits, may be null
};
/// Most leaves of a piece: they are joined one after the other.
inline constexpr int kMostLeaves = 24;
/// Columns of N or M that a CTA of the join carries.
inline constexpr int kSummaryColumns = 16;
inline constexpr int64_t kWantsAddend = 1, kWantsTransition = 2;

/// First boundary of piece n whose first row is `row`. WHY so: pieces that ascend never share one,
/// whatever their lengths, and each finds its own without asking the others.
SLUICE_HOST_DEVICE constexpr int64_t first_boundary(int64_t n, int64_t row, int64_t length) {
  return ((row + 63 * n) / 64 + (length - 1) * n) / length + n;
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_SUMMARY_PARAMS_H_
