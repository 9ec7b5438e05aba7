// Chooses the form of the gated norm's gradients and sizes their launch. Host code.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/gradient_launch.h"

namespace sluice::cuda::gated_norm_backward {
namespace {

bool packed(const gated_norm::NormRows& rows, Number type) noexcept {
  if (rows.data == nullptr) return true;
  if (rows.number != type || reinterpret_cast<uintptr_t>(rows.data) % 16 != 0) return false;
  for (const int64_t stride : rows.stride) {
    if (stride % kPack != 0) return false;
  }
  return true;
}

}  // namespace

Form form_of(const NormGradientParams& p) noexcept {
  const gated_norm::NormParams& f = p.forward;
  const Number type = f.x.number;
  const bool packs = type != Number::kFloat32 && f.V % kPack == 0 && f.V <= kPackedV &&
                     packed(f.x, type) && packed(f.z, type) && packed(p.d_out, type) &&
                     packed(p.dx, type) && packed(p.dz, type);
  if (!packs) return Form::kAny;
  return type == Number::kBfloat16 ? Form::kBfloat16 : Form::kFloat16;
}

void plan_launch(Form form, NormGradientParams* p) noexcept {
  gated_norm::NormParams& f = p->forward;
  f.rows = f.shape[0] * f.shape[1] * f.shape[2] * f.shape[3];
  f.lanes = 1;
  while (f.lanes * kPack < f.V && f.lanes < 32) f.lanes *= 2;
  if (form == Form::kAny) f.lanes = 32;
  const int64_t rows = kThreads / f.lanes * kGroupRows;
  p->ctas = (f.rows + rows - 1) / rows;
  p->sum_rows = form == Form::kAny ? p->ctas * kWarps : p->ctas;
}

}  // namespace sluice::cuda::gated_norm_backward
