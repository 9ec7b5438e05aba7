// Chooses the kernel of a norm and fills in its arithmetic. Host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

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

/// Whether rows can be moved by packs: sizes, strides and addresses allow it.
bool by_packs(const NormParams& p) noexcept {
  return p.V % kPack == 0 && p.V <= kPackedV && packed(p.x) && packed(p.z) && packed(p.out) &&
         (p.copy.data == nullptr || packed(p.copy));
}

struct Axis {
  int64_t extent, stride;
};

/// Two axes as one, where their steps allow it.
bool merge(const Axis& outer, const Axis& inner, Axis* out) noexcept {
  *out = {outer.extent * inner.extent, inner.extent == 1 ? outer.stride : inner.stride};
  return outer.extent == 1 || inner.extent == 1 || outer.stride == inner.extent * inner.stride;
}

/// The strides of a tensor as tokens and heads. *one_axis: also those of all its rows as one axis.
bool spaced_strides(const NormParams& p, const NormRows& rows, RowStrides* out, Axis* all,
                    bool* one_axis) noexcept {
  const auto axis = [&](int i) { return Axis{p.shape[i], rows.stride[i]}; };
  Axis tokens{}, heads{};
  if (!merge(axis(0), axis(1), &tokens)) return false;
  *one_axis = merge(axis(2), axis(3), &heads) && merge(tokens, heads, all) && *one_axis;
  *out = {2 * tokens.stride, 2 * rows.stride[2], 2 * rows.stride[3]};
  return true;
}

constexpr int64_t kSideBySide = 32;  ///< rows side by side where all rows are one axis

/// Rows side by side that are close in memory.
/// @param one_axis out: whether all rows are one axis
bool plan_spaced(NormParams* p, bool* one_axis) noexcept {
  const Number type = p->x.number;
  const bool types = type != Number::kFloat32 && p->z.number == type && p->out.number == type &&
                     p->rounded_to == type && p->copy.data == nullptr;
  const bool kinds =
      p->row_kinds == nullptr || p->shape[0] == 1 || p->row_kinds_stride == p->shape[1];
  if (!types || !kinds || p->V != int64_t{p->lanes} * kPack) return false;
  SpacedRows& w = p->spaced;
  Axis x{}, z{}, out{};
  bool spaced = p->row_kinds == nullptr;
  if (!spaced_strides(*p, p->x, &w.x, &x, &spaced) ||
      !spaced_strides(*p, p->z, &w.z, &z, &spaced) ||
      !spaced_strides(*p, p->out, &w.out, &out, &spaced)) {
    return false;
  }
  w.heads = static_cast<uint32_t>(p->shape[2] * p->shape[3]);
  w.members = static_cast<uint32_t>(p->shape[3]);
  *one_axis = spaced;
  if (spaced) {
    const auto side = std::min(int64_t{p->rows}, kSideBySide);
    w.heads = w.members = static_cast<uint32_t>(side);
    w.x = {2 * side * x.stride, 0, 2 * x.stride};
    w.z = {2 * side * z.stride, 0, 2 * z.stride};
    w.out = {2 * side * out.stride, 0, 2 * out.stride};
  }
  return true;
}

/// What one_axis_kernel is for, of rows that are one axis.
bool in_form_of_models(const NormParams& p) noexcept {
  const bool weights = p.weight.stride == 1 &&
                       (p.weight.number == p.x.number || p.weight.number == Number::kFloat32) &&
                       reinterpret_cast<uintptr_t>(p.weight.data) % 16 == 0;
  return weights && p.silu && p.rounding != Rounding::kInputAndNormalised &&
         (p.V == 128 || p.V == 256);
}

}  // namespace

Form plan_launch(int multiprocessors, NormParams* p) noexcept {
  p->rows = static_cast<uint32_t>(p->shape[0] * p->shape[1] * p->shape[2] * p->shape[3]);
  if (p->rows == 0) return Form::kAny;  // and nothing is launched
  p->lanes = 1;
  while (p->lanes * kPack < p->V && p->lanes < 32) p->lanes *= 2;
  const bool packs = by_packs(*p);
  p->lane_numbers = packs ? kPack : 1;
  bool one_axis = false;
  if (!packs || !plan_spaced(p, &one_axis)) {
    for (int axis = 1; axis < 4; ++axis) p->by[axis - 1] = divisor_of(p->shape[axis]);
    return Form::kAny;
  }
  if (one_axis && in_form_of_models(*p)) return Form::kOneAxis;
  // Four together as long as that leaves 28 warps of 16 lanes a row to each multiprocessor.
  const bool four = int64_t{p->rows} / 4 >= int64_t{multiprocessors} * 28 * 16 / p->lanes;
  return four ? Form::kFourTokens : Form::kTokenRows;
}

uint32_t ctas_of(Form form, const NormParams& p) noexcept {
  constexpr uint32_t kMaxGrid = 1u << 20;
  const auto parts = [](uint32_t whole, uint32_t part) { return (whole + part - 1) / part; };
  if (form == Form::kAny) return std::min(parts(p.rows, kWarps), kMaxGrid);
  const auto groups = static_cast<uint32_t>(kThreads / p.lanes);
  if (form != Form::kFourTokens) return parts(p.rows, groups);
  return parts(parts(parts(p.rows, p.spaced.heads), 4) * p.spaced.heads, groups);
}

}  // namespace sluice::cuda::gated_norm
