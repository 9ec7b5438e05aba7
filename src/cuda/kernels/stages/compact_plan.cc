// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <initializer_list>

#include "cuda/kernels/stages/compact.h"
#include "cuda/kernels/stages/config.h"

namespace sluice::cuda::stages {
namespace {

constexpr int64_t kLimit = int64_t{1} << 31;

bool short_strides(std::initializer_list<const TokenRows*> views) noexcept {
  for (const TokenRows* view : views) {
    if (view->token_stride < 0 || view->token_stride >= kLimit || view->head_stride < 0 ||
        view->head_stride >= kLimit) {
      return false;
    }
  }
  return true;
}

/// Whether rows of tokens begin at multiples of 16 bytes.
bool aligned_rows(const TokenRows& rows) noexcept {
  const int64_t each = rows.number == Number::kFloat32 ? 4 : 8;
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.token_stride % each == 0 &&
         rows.batch_stride % each == 0;
}

CompactRows compact(const TokenRows& rows) noexcept {
  return {rows.data, rows.batch_stride, static_cast<int32_t>(rows.token_stride),
          static_cast<int32_t>(rows.head_stride)};
}
CompactNumbers numbers(const TokenRows& rows) noexcept { return {compact(rows), rows.number}; }

/// The shape and the grid that all have; false where these numbers are too large, or there is
/// nothing to do.
bool plan_shape(const StageParams& p, int heads_of_cta, CompactShape* shape,
                CompactLaunch* launch) noexcept {
  constexpr int64_t kMostOfGrid = 65535;
  const bool packed = p.cu_seqlens.data != nullptr;
  const int64_t batch = packed ? 1 : p.N;
  if (p.C != kCompactChunk || p.T >= kLimit || p.N >= kLimit || p.HV >= kLimit) return false;
  if (p.slots > kMostOfGrid || batch > kMostOfGrid || p.slots == 0 || batch == 0) return false;
  if (packed && p.cu_seqlens.stride != 1) return false;
  *shape = {p.cu_seqlens.data,          static_cast<int32_t>(p.N), static_cast<int32_t>(p.T),
            static_cast<int32_t>(p.HV), static_cast<int32_t>(p.H), static_cast<int32_t>(p.r),
            p.cu_seqlens.is_64bit,      p.head_map_cyclic};
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
  if (p.reverse || p.repeats != 1 || p.HV % 4 != 0 || !short_strides({&p.gate, &p.g_cumsum}))
    return false;
  *out = {compact(p.gate), compact(p.g_cumsum), {}};
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
  if (p.K != 128 || (!is_float && matrix.number != p.k.number) || (products && is_float))
    return false;
  if (products && p.V != 128) return false;
  if (!short_strides({&p.k, &matrix, &gate, &p.beta, &p.sums, &p.values, &p.u, &p.w})) return false;
  *out = {compact(p.k),      numbers(gate),
          numbers(p.beta),   {},
          compact(matrix),   compact(p.sums),
          compact(p.values), compact(p.u),
          compact(p.w),      p.g_cumsum.data != nullptr,
          is_float,          static_cast<int32_t>(p.V)};
  if (!plan_shape(p, 1, &out->shape, launch)) return false;
  launch->shared_bytes = (products ? 5 : 2) * kTileBytes + 2 * 4 * kCompactChunk;
  return true;
}

}  // namespace sluice::cuda::stages
