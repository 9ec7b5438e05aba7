// Reads case files: inputs and recorded results of Sluice's operators in one safetensors file. The
// format is described in docs/case-format.md.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_CASE_FILE_HPP_
#define SLUICE_IO_CASE_FILE_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/delta_options.hpp"
#include "io/safetensors_reader.hpp"
#include "sluice/sluice.h"
#include "sluice/status.hpp"

namespace sluice::io {

/// The metadata key that holds the descriptions.
constexpr const char* kCasesKey = "sluice.cases";

enum class CaseOp { kPrefill, kDecode, kConv1d, kGatedNorm, kLayer, kStages, kGradients };

/// The name in a description, e.g. "gated_norm".
const char* case_op_name(CaseOp op) noexcept;

/// Whether descriptions of an operator have this option of the delta rule by its own name; qk_norm
/// is their use_qk_l2norm.
bool has_option(CaseOp op, std::string_view name);

/// Sizes; those that an operator has not stay zero.
struct CaseShape {
  int64_t B = 0, T = 0, N = 0, H = 0, HV = 0, K = 0, V = 0;
  int64_t D = 0, W = 0, L = 0;  ///< convolution channels, width, state columns
  int64_t hidden = 0;           ///< rows of out_proj_weight
  int64_t C = 0, chunks = 0;    ///< stages: tokens of a chunk, chunks of a row of h
};

/// One case. Every field has been checked, every tensor it names exists and has the right shape.
struct Case {
  std::string name;
  CaseOp op = CaseOp::kPrefill;
  double tolerance = 1e-5;  ///< relative L2, of float32 inputs and outputs
  CaseShape shape;          ///< T is that of step 0 in layers

  bool head_first = false;  ///< layout bhtd
  sluice_state_layout state_layout = SLUICE_STATE_KV;
  core::DeltaOptions options;
  bool key_gates = false;  ///< g or a is [B,T,HV,K]: a decay for each channel of k
  ElementType state_type = ElementType::kF32;  ///< how states are kept between calls
  int64_t steps = 1;                           ///< decode: calls of T / steps tokens; layer: steps

  sluice_activation activation = SLUICE_ACTIVATION_SILU;  ///< conv1d, and z of gated norms
  double norm_eps = 1e-6;
  sluice_norm_rounding rounding = SLUICE_NORM_ROUND_ONCE;
  sluice_packing packing = SLUICE_PACKING_FLAT;
  sluice_direction direction = SLUICE_DIRECTION_FORWARD;  ///< stages: of g_cumsum
  sluice_triangle triangle = SLUICE_TRIANGLE_LOWER;       ///< stages: of A
  bool fused_pairs = false;  ///< stages: cumsum_kkt and solve_wy in place of the first four

  /// Tensors of this case without the case's name: results to compare with, in order.
  std::vector<std::string> expected;
  /// The description as it stands in the file, compact JSON.
  std::string description;
};

/// A file and its cases.
struct CaseFile {
  SafetensorsFile file;
  std::vector<Case> cases;  ///< sorted by name

  /// Tensor `<case>.<tensor>`, or null.
  const TensorEntry* find(const Case& of, std::string_view tensor) const;
};

/// Opens a safetensors file and checks all its cases: fields (an unknown one is refused, for it may
/// change what is to be computed), tensors missing or belonging to no case, shapes, dtypes,
/// cu_seqlens. Messages name the file, the case, the field or tensor, and the rule.
Status open_case_file(const std::string& path, CaseFile* out) noexcept;

/// The same on a file that is open.
Status read_cases(SafetensorsFile file, CaseFile* out) noexcept;

}  // namespace sluice::io

#endif  // SLUICE_IO_CASE_FILE_HPP_
