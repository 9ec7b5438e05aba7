// Chooses the form of the convolution's gradients and sizes their launch. Host code.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/gradient_launch.h"

namespace sluice::cuda::conv1d_backward {
namespace {

bool packed(const conv1d::TokenChannels& t, Number type) noexcept {
  if (t.data == nullptr) return true;
  return t.number == type && t.channel_stride == 1 && t.batch_stride % kPack == 0 &&
         t.token_stride % kPack == 0 && t.group_stride % kPack == 0 &&
         reinterpret_cast<uintptr_t>(t.data) % (2 * kPack) == 0;
}

}  // namespace

Form form_of(const ConvGradientParams& p) noexcept {
  const conv1d::TokenChannels& x = p.forward.part[0].x;
  const bool packs = x.number != Number::kFloat32 && p.forward.part[0].C % kPack == 0 &&
                     packed(x, x.number) && packed(p.d_out, x.number) && packed(p.dx, x.number);
  if (!packs) return Form::kAny;
  return x.number == Number::kBfloat16 ? Form::kBfloat16 : Form::kFloat16;
}

void plan_launch(Form form, ConvGradientParams* p) noexcept {
  const int64_t channels = 32 * (form == Form::kAny ? 1 : kPack);
  p->slab_tokens = p->forward.T >= kManyTokens ? kLongSlabTokens : kSlabTokens;
  p->slabs_each = (p->forward.T + p->slab_tokens - 1) / p->slab_tokens;
  p->slabs = p->forward.B * p->slabs_each;
  p->channel_warps = (p->forward.D + channels - 1) / channels;
  const int64_t states = p->dinitial.data == nullptr ? 0 : p->forward.N;
  p->warps = (p->slabs + states) * p->channel_warps;
}

}  // namespace sluice::cuda::conv1d_backward
