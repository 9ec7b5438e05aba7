// Describes calls to the kernels of the gated norm and of its gradients, one POD each, passed as a
// __grid_constant__; chooses the kernels and launches them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_

#include "cuda/device/views.h"
#include "cuda/launch.h"

namespace sluice::cuda::gated_norm {

using device::GradientForm, device::HeadScalar, device::Number, device::RowKind;

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

/// Rows as tokens of heads, where they are evenly spaced: of token_rows_kernel and one_axis_kernel.
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
  const RowKind* row_kinds;  ///< of [i0,i1], may be null: all rows are live
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

using NormKernel = void (*)(NormParams);

/// A kernel, by the form that it is for.
enum class Form {
  kAny,         ///< any type, stride and V
  kTokenRows,   ///< one 16-bit type and packs, tokens evenly spaced
  kFourTokens,  ///< likewise, four tokens at a time, where there are many rows
  kOneAxis,     ///< rows as one axis, in the form of models
};

/// A launch: lowered parameters, and what plan_launch() makes of them.
struct PlannedNorm {
  Form form;
  unsigned ctas;  ///< nothing is launched where there are none
  NormParams params;
};

inline constexpr int64_t kGroupRows = 32;  ///< that a warp, or a part of one, goes through

struct NormGradientParams {
  NormParams forward;  ///< the forward call without out; `lanes`: that share a row
  NormRows d_out, dx, dz;
  NormRows dweight;   ///< [V], stride[0] apart; data may be null
  float* sums;        ///< [sum_rows, V]; null where dweight is
  int64_t sum_rows;   ///< a CTA, of any form a warp
  int64_t most_sums;  ///< rows of sums of any form, which has the most
  int64_t ctas;
};

using NormGradientKernel = void (*)(NormGradientParams);

/// Lowered parameters, and what plan_launch() makes of them.
struct PlannedGradients {
  GradientForm form;
  NormGradientParams params;
};

/// Fill in all but the lowered parameters, for the fastest kernel that takes them. Bits do not depend on
/// `multiprocessors`.
void plan_launch(int multiprocessors, PlannedNorm* norm) noexcept;
void plan_launch(PlannedGradients* gradients) noexcept;

/// Load the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;
int load_gradient_kernels() noexcept;

/// Enqueue what was planned. Nothing is allocated and nothing waits for the device.
void launch(const PlannedNorm& norm, Launcher& launcher) noexcept;
void launch(const PlannedGradients& gradients, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_LAUNCH_H_
