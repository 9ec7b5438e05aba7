// Launches the gated norm kernels.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/launch.h"

#include "cuda/kernels/gated_norm/instances.h"
#include "cuda/kernels/gated_norm/parts.h"

namespace sluice::cuda::gated_norm {
namespace {

const void* kernel_of(Form form, const NormParams& p) noexcept {
  if (form == Form::kAny) return any_form();
  if (form == Form::kOneAxis) return one_axis(p.x.number, p.V);
  return token_rows(p.x.number, form == Form::kFourTokens);
}

}  // namespace

int load_kernels() noexcept {
  int error = load_kernel(any_form());
  for (const Number number : {Number::kBfloat16, Number::kFloat16}) {
    if (error == 0) error = load_kernel(token_rows(number, false));
    if (error == 0) error = load_kernel(token_rows(number, true));
    if (error == 0) error = load_kernel(one_axis(number, 128));
    if (error == 0) error = load_kernel(one_axis(number, 256));
  }
  return error;
}

void launch(const NormParams& params, Launcher& launcher) noexcept {
  in_parts(params, kMaxRows, [&](NormParams p) {
    const Form form = plan_launch(launcher.machine().multiprocessors, &p);
    launcher(kernel_of(form, p), {{ctas_of(form, p)}, kThreads}, p);
  });
}

}  // namespace sluice::cuda::gated_norm
