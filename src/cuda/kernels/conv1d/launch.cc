// Launches the convolution kernels: finds the instance of a form and the size of its grid.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/launch.h"

#include "cuda/kernels/conv1d/instances.h"

namespace sluice::cuda::conv1d {
namespace {

constexpr int64_t kMaxWarps = int64_t{1} << 32;  ///< of a launch: 2^30 CTAs

const void* kernel_of(Form form, const ConvParams& p) noexcept {
  const Number number = p.part[0].x.number;
  switch (form) {
    case Form::kAny:
      return any_form();
    case Form::kChannelFirst:
      return channel_first(number);
    case Form::kChannelLast:
      return channel_last(number, has_groups_apart(p));
    default:
      return update(number, update_form_of(p));
  }
}

}  // namespace

int load_kernels() noexcept {
  int error = load_kernel(any_form());
  const auto load = [&](const void* kernel) {
    if (error == 0) error = load_kernel(kernel);
  };
  for (const Number number : {Number::kBfloat16, Number::kFloat16}) {
    load(channel_first(number));
    for (const bool apart : {false, true}) load(channel_last(number, apart));
    for (int i = 0; i < 8; ++i) {
      load(update(number, {false, (i & 1) != 0, (i & 2) != 0, (i & 4) != 0}));
    }
    load(update(number, {true, false, true, true}));
  }
  return error;
}

void launch(Form form, const ConvParams& params, Launcher& launcher) noexcept {
  ConvParams planned = params;
  plan_launch(form, launcher.machine().multiprocessors, &planned);
  in_grids(form, planned, kMaxWarps, [&](const ConvParams& p) {
    launcher(kernel_of(form, p), {grid_of(form, p), kThreads}, p);
  });
}

}  // namespace sluice::cuda::conv1d
