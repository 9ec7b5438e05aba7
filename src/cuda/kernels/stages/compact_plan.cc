// Says which stages the compact kernels take, and cuts their launches: host code.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <initializer_list>

#include "cuda/kernels/stages/compact.h"
#include "cuda/kernels/stages/config.h"

namespace sluice::cuda::stages {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;

/// Rows with short strides; false where theirs are longer. What is absent has none.
bool compact(const TokenRows& rows, int64_t batch, CompactRows* out) noexcept {
  constexpr int64_t kLongest = int64_t{1} << 25;  // of a chunk's tokens: offsets of 32 bits
  *out = {};
  if (rows.data == nullptr) return true;
  const int64_t step = rows.token_stride, apart = batch > 1 ? rows.batch_stride : 0;
  if (step <= 0 || step >= kLongest || rows.head_stride < 0 || rows.head_stride >= kLimit) {
    return false;
  }
  if (apart < 0 || apart % step != 0 || apart / step * batch >= kLimit) return false;
  *out = {rows.data, static_cast<uint32_t>(apart / step), static_cast<uint32_t>(step),
          static_cast<uint32_t>(rows.head_stride)};
  return true;
}
bool compact(const TokenRows& rows, int64_t batch, CompactNumbers* out) noexcept {
  out->number = rows.number;
  return compact(rows, batch, &out->rows);
}

/// Whether rows of tokens begin at multiples of 16 bytes.
bool aligned_rows(const TokenRows& rows) noexcept {
  const int64_t each = rows.number == Number::kFloat32 ? 4 : 8;
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.token_stride % each == 0 &&
         rows.batch_stride % each == 0;
}

int64_t batch_of(const StageParams& p) noexcept { return p.cu_seqlens.data != nullptr ? 1 : p.N; }

/// The shape and the grid that all have; false where these numbers are too large, or there is
/// nothing to do.
bool plan_shape(const StageParams& p, int heads_of_cta, CompactShape* shape,
                CompactLaunch* launch) noexcept {
  constexpr int64_t kMostOfGrid = 65535;
  const int64_t batch = batch_of(p), step = p.cu_seqlens.stride * (p.cu_seqlens.is_64bit ? 2 : 1);
  if (p.C != kCompactChunk || p.T >= kLimit || p.N >= kLimit || p.HV >= kLimit) return false;
  if (p.slots > kMostOfGrid || batch > kMostOfGrid || p.slots == 0 || batch == 0) return false;
  if (step < 0 || step * (p.N + 1) >= kLimit) return false;
  *shape = {static_cast<const int32_t*>(p.cu_seqlens.data),
            static_cast<int32_t>(step),
            static_cast<int32_t>(p.N),
            static_cast<int32_t>(p.T),
            static_cast<int32_t>(p.HV),
            static_cast<int32_t>(p.H),
            static_cast<int32_t>(p.r),
            p.head_map_cyclic};
  *launch = {static_cast<unsigned>((p.HV + heads_of_cta - 1) / heads_of_cta),
             static_cast<unsigned>(p.slots), static_cast<unsigned>(batch), 0};
  return true;
}

}  // namespace

bool plan_compact_sums(const StageParams& p, CompactSumParams* out,
                       CompactLaunch* launch) noexcept {
  for (const TokenRows* rows : {&p.gate, &p.g_cumsum}) {
    if (rows->number != Number::kFloat32 || rows->head_stride != 1 || !aligned_rows(*rows)) {
      return false;
    }
  }
  const int64_t batch = batch_of(p);
  if (p.reverse || p.repeats != 1 || p.HV % 4 != 0 || !compact(p.gate, batch, &out->gate) ||
      !compact(p.g_cumsum, batch, &out->sums)) {
    return false;
  }
  if (!plan_shape(p, kCompactHeads, &out->shape, launch)) return false;
  launch->shared_bytes = int64_t{4} * kCompactHeads * kCompactSumRow;
  return true;
}

bool plan_compact(Kernel kernel, const StageParams& p, CompactParams* out,
                  CompactLaunch* launch) noexcept {
  const bool products = kernel == Kernel::kWy;
  if (kernel != Kernel::kKkt && !products) return false;
  const TokenRows& matrix = products ? p.A_inverse : p.A;
  const TokenRows& gate = p.g_cumsum.data != nullptr ? p.g_cumsum : p.gate;
  const bool is_float = matrix.number == Number::kFloat32;
  if (p.K != 128 || (!is_float && matrix.number != p.k.number)) return false;
  if (products && (p.V != 128 || is_float)) return false;
  const int64_t batch = batch_of(p);
  if (!compact(p.k, batch, &out->k) || !compact(gate, batch, &out->gate) ||
      !compact(p.beta, batch, &out->beta) || !compact(matrix, batch, &out->matrix) ||
      !compact(p.sums, batch, &out->sums) || !compact(p.values, batch, &out->values) ||
      !compact(p.u, batch, &out->u) || !compact(p.w, batch, &out->w)) {
    return false;
  }
  out->is_summed = p.g_cumsum.data != nullptr, out->is_float = is_float;
  if (!plan_shape(p, 1, &out->shape, launch)) return false;
  launch->shared_bytes = (products ? 5 : 2) * kTileBytes + 2 * 4 * kCompactChunk;
  return true;
}

bool is_compact(Kernel kernel, const StageParams& p, const SumGates& gates) noexcept {
  if (gates.form != device::GateForm::kLog) return false;
  CompactLaunch launch;
  if (kernel == Kernel::kCumsum) {
    CompactSumParams sums;
    return plan_compact_sums(p, &sums, &launch);
  }
  CompactParams params;
  return plan_compact(kernel, p, &params, &launch);
}

}  // namespace sluice::cuda::stages
