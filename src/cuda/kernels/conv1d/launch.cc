// Launches the convolution kernels: finds the instance of a body and the size of its grid.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/conv1d/launch.h"

#include <initializer_list>

#include "cuda/kernels/conv1d/instances.h"
#include "cuda/kernels/conv1d/pieces.h"

namespace sluice::cuda::conv1d {
namespace {

constexpr int64_t kMaxWarps = int64_t{1} << 32;  ///< of a launch: 2^30 CTAs

/// By Body.
constexpr const void* (*kKernels[])() noexcept = {
    rows_of_floats,  rows_of_bfloats,   rows_of_halves,  rows_of_elements, lines_of_bfloats,
    lines_of_halves, lines_of_elements, heads_of_floats, heads_of_bfloats, heads_of_halves};

const void* kernel_of(Body body, const ConvParams& p) noexcept {
  const Number number = p.part[0].x.number;
  if (body == Body::kUpdates) return updates(number, update_form_of(p));
  if (is_whole(body)) return patches(number, body == Body::kCutPatches);
  return kKernels[static_cast<int>(body)]();
}

/// Calls visit(kernel) for all of them; the first result other than 0 ends it.
template <class Visit>
int for_all_kernels(const Visit& visit) noexcept {
  int error = 0;
  for (const auto kernel : kKernels) {
    if (error == 0) error = visit(kernel());
  }
  for (const Number number : {Number::kBfloat16, Number::kFloat16}) {
    for (const bool flag : {false, true}) {
      if (error == 0) error = visit(patches(number, flag));
    }
    for (int form = 0; form < 8 && error == 0; ++form) {
      error = visit(updates(number, {(form & 1) != 0, (form & 2) != 0, (form & 4) != 0}));
    }
  }
  return error;
}

}  // namespace

int load_kernels() noexcept { return for_all_kernels(load_kernel); }

void launch(const ConvParams& params, Launcher& launcher) noexcept {
  const auto launch_one = [&](Body body, const ConvParams& p) {
    launcher(kernel_of(body, p), {grid_of(body, p), kThreads, shared_bytes(body, p)}, p);
  };
  in_launches(params, launcher.machine().multiprocessors, kMaxWarps, launch_one);
}

}  // namespace sluice::cuda::conv1d
