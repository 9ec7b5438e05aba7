// Chooses the kernel of a norm and fills in its arithmetic, and the form of the gradients. Host code, tested
// without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/gated_norm/launch.h"

namespace sluice::cuda::gated_norm {
namespace {

int64_t parts_of(int64_t whole, int64_t part) noexcept { return (whole + part - 1) / part; }

int64_t rows_of(const NormParams& p) noexcept {
  return p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3];
}

/// That share a row in packs.
int32_t lanes_of(int64_t V) noexcept {
  int32_t lanes = 1;
  while (lanes * kPack < V && lanes < 32) lanes *= 2;
  return lanes;
}

bool packed(const NormRows& rows) noexcept {
  if (reinterpret_cast<uintptr_t>(rows.data) % 16 != 0) return false;
  for (const int64_t stride : rows.stride) {
    if (stride % kPack != 0) return false;
  }
  return true;
}

/// Whether rows can be moved by packs: sizes, strides and addresses allow it.
bool by_packs(const NormParams& p) noexcept {
  return p.V % kPack == 0 && p.V <= kPackedV && packed(p.x) && packed(p.z) && packed(p.out) &&
         packed(p.copy);
}

struct Axis {
  int64_t extent, stride;
};

/// Two axes as one, where their steps allow it.
bool merge(const Axis& outer, const Axis& inner, Axis* out) noexcept {
  *out = {outer.extent * inner.extent, inner.extent == 1 ? outer.stride : inner.stride};
  return outer.extent == 1 || inner.extent == 1 || outer.stride == inner.extent * inner.stride;
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
  // BOUND: row numbers plus a grid's worth of rows stay within 32 bits.
  const bool few = p->rows < int64_t{1} << 31;
  if (!types || !kinds || !few || p->V != int64_t{p->lanes} * kPack) return false;
  SpacedRows& w = p->spaced;
  w.rows = static_cast<uint32_t>(p->rows);
  const NormRows* const rows[] = {&p->x, &p->z, &p->out};
  RowStrides* const strides[] = {&w.x, &w.z, &w.out};
  Axis tokens{}, heads{}, all[3];
  *one_axis = p->row_kinds == nullptr;
  for (int i = 0; i < 3; ++i) {  // tokens have to be one axis; heads and they may be
    const auto axis = [&](int at) { return Axis{p->shape[at], rows[i]->stride[at]}; };
    if (!merge(axis(0), axis(1), &tokens)) return false;
    *one_axis = merge(axis(2), axis(3), &heads) && merge(tokens, heads, &all[i]) && *one_axis;
    *strides[i] = {2 * tokens.stride, 2 * rows[i]->stride[2], 2 * rows[i]->stride[3]};
  }
  w.heads = static_cast<uint32_t>(p->shape[2] * p->shape[3]);
  w.members = static_cast<uint32_t>(p->shape[3]);
  if (!*one_axis) return true;
  const auto side = std::min(p->rows, kSideBySide);
  w.heads = w.members = static_cast<uint32_t>(side);
  for (int i = 0; i < 3; ++i) *strides[i] = {2 * side * all[i].stride, 0, 2 * all[i].stride};
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

/// The fastest kernel for these strides, types and addresses.
Form choose_form(int multiprocessors, NormParams* p) noexcept {
  p->lanes = lanes_of(p->V);
  const bool packs = by_packs(*p);
  p->lane_numbers = packs ? kPack : 1;
  bool one_axis = false;
  if (!packs || !plan_spaced(p, &one_axis)) return Form::kAny;
  if (one_axis && in_form_of_models(*p)) return Form::kOneAxis;
  // Four together as long as that leaves 28 warps of 16 lanes a row to each multiprocessor.
  const bool four = p->rows / 4 >= int64_t{multiprocessors} * 28 * 16 / p->lanes;
  return four ? Form::kFourTokens : Form::kTokenRows;
}

int64_t ctas_of(Form form, const NormParams& p) noexcept {
  constexpr int64_t kMaxGrid = 1 << 20;  // warps take further rows in turn
  if (form == Form::kAny) return std::min(parts_of(p.rows, kWarps), kMaxGrid);
  const int64_t groups = kThreads / p.lanes, heads = p.spaced.heads;
  if (form != Form::kFourTokens) return parts_of(p.rows, groups);
  return parts_of(parts_of(parts_of(p.rows, heads), 4) * heads, groups);
}

GradientForm form_of(const NormGradientParams& p) noexcept {
  const NormParams& f = p.forward;
  const Number type = f.x.number;
  const auto packs = [&](const NormRows& rows) {
    return rows.data == nullptr || (rows.number == type && packed(rows));
  };
  const bool all = type != Number::kFloat32 && f.V % kPack == 0 && f.V <= kPackedV && packs(f.x) &&
                   packs(f.z) && packs(p.d_out) && packs(p.dx) && packs(p.dz);
  if (!all) return GradientForm::kAny;
  return type == Number::kBfloat16 ? GradientForm::kBfloat16 : GradientForm::kFloat16;
}

}  // namespace

void plan_launch(int multiprocessors, PlannedNorm* norm) noexcept {
  NormParams& p = norm->params;
  p.rows = rows_of(p);
  norm->form = p.rows == 0 ? Form::kAny : choose_form(multiprocessors, &p);
  norm->ctas = static_cast<unsigned>(ctas_of(norm->form, p));
}

void plan_launch(PlannedGradients* gradients) noexcept {
  NormGradientParams* const p = &gradients->params;
  NormParams& f = p->forward;
  gradients->form = form_of(*p);
  const bool any = gradients->form == GradientForm::kAny;
  f.rows = rows_of(f);
  f.lanes = any ? 32 : lanes_of(f.V);
  p->ctas = parts_of(f.rows, kThreads / f.lanes * kGroupRows);
  p->most_sums = parts_of(f.rows, kWarps * kGroupRows) * kWarps;
  p->sum_rows = any ? p->most_sums : p->ctas;
}

}  // namespace sluice::cuda::gated_norm
