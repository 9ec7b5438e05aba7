// Describes stages of one chunk in the case of models, in little code: what kernels are told, and
// when they go.
//
// PERF A stage of few chunks is over in a few microseconds, most of which pass with fetching code
// and parameters that no cache has: kernels that know sizes and dtypes are a quarter of the others,
// and have a tenth of their parameters. Chunks of 64 tokens, one a CTA: grid (heads, chunks,
// batch).
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_COMPACT_H_
#define SLUICE_CUDA_KERNELS_STAGES_COMPACT_H_

#include "cuda/kernels/stages/launch.h"

namespace sluice::cuda::stages {

using device::Number, device::StageParams, device::TokenRows;

inline constexpr int kCompactChunk = 64;        ///< tokens
inline constexpr int kCompactHeads = 16;        ///< of a CTA of chunk_cumsum
inline constexpr int kCompactSumThreads = 256;  ///< likewise
/// Floats of a head there, padded so that both ways through them meet a bank twice at most.
inline constexpr int kCompactSumRow = kCompactChunk + 4;

/// Rows of tokens; batch entries are as far apart as so many tokens.
struct CompactRows {
  void* data;  ///< may be null
  uint32_t batch_tokens, token_stride, head_stride;
};

/// Numbers [B,T,HV].
struct CompactNumbers {
  CompactRows rows;
  Number number;
};

/// How tokens make up chunks, and which keys a value head has.
struct CompactShape {
  const int32_t* cu_seqlens;  ///< [N+1], or the low halves; null: sequence n is batch entry n
  int32_t cu_step;            ///< words from one to the next
  int32_t N, T, HV, H, r;
  bool head_map_cyclic;
};

struct CompactSumParams {
  CompactRows gate, sums;  ///< float32, heads next to each other
  CompactShape shape;
};

/// Of scaled_dot_kkt, cumsum_kkt and wy_fast.
struct CompactParams {
  CompactRows k;
  CompactNumbers gate;  ///< or sums of gates
  CompactNumbers beta;
  CompactShape shape;
  CompactRows matrix;  ///< A as an output, A_inverse as an input
  CompactRows sums;    ///< G as an output
  CompactRows values, u, w;
  bool is_summed;  ///< gate holds sums
  bool is_float;   ///< A is float32, else of k's dtype
};

/// A launch of one of these kernels: 128 threads, or kCompactSumThreads.
struct CompactLaunch {
  unsigned heads, chunks, batch;
  int64_t shared_bytes;
};

/// Whether such a kernel takes the problem, of Kernel::kCumsum, kKkt or kWy; fills in its
/// arguments. Host code, tested without a GPU.
bool plan_compact_sums(const StageParams& params, CompactSumParams* out,
                       CompactLaunch* launch) noexcept;
bool plan_compact(Kernel kernel, const StageParams& params, CompactParams* out,
                  CompactLaunch* launch) noexcept;
/// Whether one of them may: asked first, since lowering a problem costs more.
constexpr bool has_compact_form(Kernel kernel) noexcept {
  return kernel == Kernel::kCumsum || kernel == Kernel::kKkt || kernel == Kernel::kWy;
}
/// The same without arguments.
bool is_compact(Kernel kernel, const StageParams& params, const SumGates& gates) noexcept;

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_COMPACT_H_
