// Computes extents of launches: host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/stages/config.h"
#include "cuda/kernels/stages/launch.h"

namespace sluice::cuda::stages {
namespace {

constexpr int64_t kNumbers = 4 * 128;  ///< bytes of one float32 for each token of a chunk

constexpr int64_t parts(int64_t whole, int64_t part) noexcept { return (whole + part - 1) / part; }

/// Slots of segments in all.
int64_t segment_slots(const StageParams& p) noexcept {
  return p.cu_seqlens.data != nullptr ? p.segments.slots : p.N * p.segments.slots;
}

/// Any dtype, any stride.
Launch plan_plain(Kernel kernel, const StageParams& p) noexcept {
  constexpr int64_t kOperands = 4 * 16 * (kPlainRows + 4 + kPlainColumns + 2);
  constexpr int64_t kChain =
      kOperands + kNumbers + 4 * (kPlainRows * (kPlainColumns + 1) + 128 * kPlainColumns);
  const int64_t slots = device::chunk_slots(p), chunks = slots * p.HV, sequences = p.N * p.HV,
                slices = parts(p.V, kPlainColumns);
  switch (kernel) {
    case Kernel::kCumsum:
      return {slots * p.repeats * parts(p.HV, kSumHeads), kSumThreads, 4 * kSumHeads * (128 + 1)};
    case Kernel::kSolve:
      return {chunks, kSolveThreads, triangle_bytes(p.C)};
    case Kernel::kPlainSolveWy:
      return {chunks, kPlainThreads, triangle_bytes(p.C) + kOperands + 2 * kNumbers};
    case Kernel::kPlainChain:
      return {sequences * slices, kPlainThreads, kChain + plain_chain_bytes(p.K)};
    case Kernel::kPlainOutputs:
      return {chunks * slices, kPlainThreads, kChain};
    case Kernel::kJoin:
      return {sequences * (p.K * p.V / (4 * kJoinThreads)), kJoinThreads, 0};
    case Kernel::kScaleKeys:
      return {chunks, kPlainThreads, 0};
    default:
      return {chunks, kPlainThreads, kOperands + 2 * kNumbers};
  }
}

/// 16-bit numbers by tensor cores.
Launch plan_tiles(Kernel kernel, const StageParams& p) noexcept {
  const int64_t chunks = device::chunk_slots(p) * p.HV, sequences = p.N * p.HV,
                blocks = p.C / kRows, widths = p.K / kColumns,
                ring = p.columns < kColumns ? kNarrowRing : kWideRing;
  switch (kernel) {
    case Kernel::kSolveWy:
      return {chunks, kBlockThreads, solve_wy_bytes(blocks * kRows)};
    case Kernel::kKkt:
      return {chunks * blocks, kBlockThreads, blocks * widths * kTileBytes + 2 * kNumbers};
    case Kernel::kWy:
      return {chunks * blocks, kBlockThreads, (4 * blocks + 1) * kTileBytes + 2 * kNumbers};
    case Kernel::kOutputs:
      return {chunks * blocks, kBlockThreads,
              (2 * widths + blocks * (widths + 1) + 1) * kTileBytes + kNumbers};
    case Kernel::kStates:
    case Kernel::kKeyStates:  // a ring of blocks of two operands and values; S, v_new
      return {sequences * (p.V / p.columns), kChainThreads,
              (ring * (2 * widths + 1) + widths + 1) * kTileBytes + 2 * kNumbers};
    default:  // kGla: two blocks of two operands and values, S, v_new or o
      return {(p.segments.tokens == 0 ? sequences : segment_slots(p) * p.HV) * (p.V / kColumns),
              kBlockThreads, (2 * (2 * widths + 1) + widths + 1) * kTileBytes + kNumbers};
  }
}

}  // namespace

Launch plan_launch(Kernel kernel, const StageParams& p) noexcept {
  return is_plain(kernel) ? plan_plain(kernel, p) : plan_tiles(kernel, p);
}

int64_t grid_of(Kernel kernel, int64_t items, int multiprocessors) noexcept {
  constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1;
  const int64_t each = kernel != Kernel::kKkt          ? 1
                       : items >= 64 * multiprocessors ? 4
                       : items >= 8 * multiprocessors  ? 2
                                                       : 1;
  const int64_t ctas = parts(items, each);
  return ctas < kMaxGrid ? ctas : kMaxGrid;
}

int32_t state_columns(const StageParams& p, int multiprocessors) noexcept {
  return 2 * p.N * p.HV * (p.V / kColumns) <= multiprocessors ? kColumns / 2 : kColumns;
}

int64_t segment_tokens(const StageParams& p, int multiprocessors) noexcept {
  const int64_t units = p.N * p.HV * (p.V / kColumns);
  const int64_t tokens = p.cu_seqlens.data != nullptr ? p.T : p.N * p.T;
  if (units >= multiprocessors || p.T < 2 * kLeastSegment) return 0;
  // Two CTAs for each multiprocessor, and whole chunks.
  const int64_t work = tokens * p.HV * (p.V / kColumns);
  const int64_t fair = parts(parts(work, 2 * int64_t{multiprocessors}), 128) * 128;
  return fair > kLeastSegment ? fair : kLeastSegment;
}

void cut(int64_t tokens, void* memory, StageParams* p) noexcept {
  const bool packed = p->cu_seqlens.data != nullptr;
  p->segments.tokens = tokens;
  p->segments.slots = packed ? p->T / tokens + p->N : parts(p->T, tokens);
  p->segments.states = static_cast<float*>(memory);
  if (memory == nullptr) return;
  p->segments.decays = p->segments.states + segment_slots(*p) * p->HV * p->K * p->V;
}

int64_t segment_bytes(const StageParams& params, int64_t tokens) noexcept {
  if (tokens == 0) return 0;
  StageParams p = params;
  cut(tokens, nullptr, &p);
  return 4 * segment_slots(p) * p.HV * (p.K * p.V + 1);
}

}  // namespace sluice::cuda::stages
