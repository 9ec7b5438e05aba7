// Describes calls to the kernels of the gated norm and of its gradients: one POD each, passed as a
// __grid_constant__.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_PARAMS_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_PARAMS_H_

#include "cuda/device/views.h"

namespace sluice::cuda::gated_norm {

using device::HeadScalar, device::Number;

inline constexpr int kThreads = 128, kWarps = kThreads / 32;
inline constexpr int kPack = 8;           ///< elements a lane moves at once
inline constexpr int64_t kPackedV = 256;  ///< largest V of packs: 32 lanes

/// Rows [i0,i1,i2,i3] of V elements, innermost stride 1, the others in elements.
struct NormRows {
  void* data;
  int64_t stride[4];
  Number number;
};

/// Bytes from token to token, and between heads, which are groups of members.
struct RowStrides {
  int64_t token, group, member;
};

/// Rows as tokens of heads, where they are evenly spaced; see one_type.cuh.
struct SpacedRows {
  RowStrides x, z, out;
  uint32_t rows, heads, members;  ///< row = token * heads + head; heads of a group
};

/// Rounding on the way; the output is always rounded once more where it is stored.
enum class Rounding : int32_t { kNone, kInput, kInputAndNormalised };

/// Arguments of the gated norm kernels.
struct NormParams {
  NormRows x, z, out;        ///< out may be the memory of x
  NormRows copy;             ///< a copy of x as it was read, data may be null: a layer's core_out
  HeadScalar weight;         ///< [V]
  const uint8_t* row_kinds;  ///< conv1d::RowKind of [i0,i1], may be null: all rows are live
  int64_t row_kinds_stride;  ///< of i0
  int64_t shape[4];
  int64_t V;
  float inverse_V, eps;
  Rounding rounding;
  Number rounded_to;
  bool silu;  ///< else sigmoid
  // Of the launch:
  int64_t rows;
  int32_t lanes;         ///< that share a row: a power of two
  SpacedRows spaced;     ///< of the kernels of one type
  int64_t lane_numbers;  ///< side by side that a lane of the kernel of any form sums up
};

}  // namespace sluice::cuda::gated_norm

namespace sluice::cuda::gated_norm_backward {

using device::Number;
using gated_norm::kPack, gated_norm::kPackedV, gated_norm::kThreads, gated_norm::kWarps;

inline constexpr int64_t kGroupRows = 32;  ///< that a warp, or a part of one, goes through

struct NormGradientParams {
  gated_norm::NormParams forward;  ///< the forward call without out; `lanes`: that share a row
  gated_norm::NormRows d_out, dx, dz;
  void* dweight;  ///< may be null
  int64_t dweight_stride;
  Number dweight_number;
  float* sums;  ///< [ctas, V], of any form [ctas kWarps, V]; null where dweight is
  int64_t sum_rows;
  int64_t ctas;
};

using NormGradientKernel = void (*)(NormGradientParams);

}  // namespace sluice::cuda::gated_norm_backward

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_PARAMS_H_
