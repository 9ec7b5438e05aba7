// Which kernel runs, and with what arithmetic: host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/launch.h"

namespace sluice::cuda::gated_norm {
namespace {

bool packed(const NormRows& rows) noexcept {
  if (reinterpret_cast<uintptr_t>(rows.data) % 16 != 0) return false;
  for (const int64_t stride : rows.stride) {
    if (stride % kPack != 0) return false;
  }
  return true;
}

/// factor = ceil(2^(32+shift) / d) - 2^32 with shift = ceil(log2 d). For n < 2^31, n / d is
/// (n + (n factor >> 32)) >> shift; the sum stays below 2^32 (Granlund and Montgomery 1994).
FastDivisor divisor_of(int64_t d) noexcept {
  FastDivisor out{static_cast<uint32_t>(d), 0, 0};
  while ((int64_t{1} << out.shift) < d) ++out.shift;
  const auto wide = static_cast<uint64_t>(d);
  const uint64_t excess = (uint64_t{1} << out.shift) - wide;  // below d: 2^shift < 2 d
  out.factor = static_cast<uint32_t>(((excess << 32) + wide - 1) / wide);
  return out;
}

}  // namespace

bool by_packs(const NormParams& p) noexcept {
  return p.V % kPack == 0 && p.V <= kPackedV && packed(p.x) && packed(p.z) && packed(p.out) &&
         (p.copy.data == nullptr || packed(p.copy));
}

void plan_launch(NormParams* p) noexcept {
  p->rows = static_cast<uint32_t>(p->shape[0] * p->shape[1] * p->shape[2] * p->shape[3]);
  for (int axis = 1; axis < 4; ++axis) p->by[axis - 1] = divisor_of(p->shape[axis]);
  p->lanes = 1;
  while (p->lanes * kPack < p->V && p->lanes < 32) p->lanes *= 2;
}

}  // namespace sluice::cuda::gated_norm
