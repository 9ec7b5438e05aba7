// Normalises in any form, norm before gate: a warp a row of any V, types, alignment and strides.
// one_type.cuh is for what models have.
//
// Math      out = x rsqrt(mean(x^2) + eps) * weight * act(z) over rows of V, in float32
// Roles     a warp has a row, of which a lane has NormParams::lane_numbers side by side at a time.
// Pipeline  none; the sum over a row is one butterfly of shuffles within a warp.
// Memory    registers only. x is read twice. In place (out is x's memory) every number is read
//           before it is written, by the lane that writes it, and the shuffles of the sum stand
//           between the first reading and the writing.
// Floor     docs/kernels/layer.md
// Rejected  docs/kernels/layer.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_ANY_FORM_CUH_
#define SLUICE_CUDA_KERNELS_GATED_NORM_ANY_FORM_CUH_

#include "cuda/device/follow.cuh"
#include "cuda/kernels/gated_norm/rows.cuh"

namespace sluice::cuda::gated_norm {

/// Calls visit(column) for the lane's numbers of a row, in ascending order.
template <class Visit>
__device__ __forceinline__ void for_lane_columns(const NormParams& p, int lane,
                                                 const Visit& visit) {
  for (int64_t base = lane * p.lane_numbers; base < p.V; base += 32 * p.lane_numbers) {
    for (int64_t j = base; j < base + p.lane_numbers; ++j) visit(j);
  }
}

__device__ __forceinline__ void norm_row(const NormParams& p, const Place& place, int kind,
                                         int lane) {
  const int64_t x_at = place.in(p.x), z_at = place.in(p.z), out_at = place.in(p.out);
  float squares[1] = {};
  for_lane_columns(p, lane, [&](int64_t j) {
    const float x = norm_input(p, device::load_written(p.x.data, x_at + j, p.x.number));
    squares[0] = fmaf(x, x, squares[0]);
  });
  sum_over_group(squares, 32);
  const float factor = factor_of(p, squares[0]);
  for_lane_columns(p, lane, [&](int64_t j) {
    const float x = device::load_written(p.x.data, x_at + j, p.x.number);
    if (p.copy.data != nullptr) {
      device::store_number(p.copy.data, place.in(p.copy) + j, p.copy.number, x);
    }
    // WHY a choice: a padded row is zeros whatever z and the weights hold.
    float y = 0.0f;
    if (kind == kLiveRow) {
      const float w = device::load_number(p.weight.data, j * p.weight.stride, p.weight.number);
      const float z = device::load_number(p.z.data, z_at + j, p.z.number);
      y = norm_output(p, norm_input(p, x), factor, w, z);
    }
    device::store_number(p.out.data, out_at + j, p.out.number, y);
  });
}

__global__ void __launch_bounds__(kThreads) any_form_kernel(const __grid_constant__ NormParams p) {
  device::follow();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; row < p.rows; row += step) {
    const Place place = place_of(p, row);
    const int kind = kind_of(p, place);
    if (kind != kNobodysRow) norm_row(p, place, kind, lane);
  }
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_ANY_FORM_CUH_
