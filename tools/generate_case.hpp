// Makes cases: random inputs of chosen shapes and profiles, in the form of a case file.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_GENERATE_CASE_HPP_
#define SLUICE_TOOLS_GENERATE_CASE_HPP_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "check/gdn_case.hpp"
#include "io/case_file.hpp"

namespace sluice::tools {

/// Which results a case of op stages records: all, all but h (simple GLA as one call), the sums in
/// reverse alone, or the inverse of upper triangles alone.
enum class StageParts { kAll, kPairs, kOneCall, kReverse, kUpper };

/// What to make. Sizes and profiles are those of `gdn`; the rest belongs to single operators.
struct CaseRecipe {
  std::string name;
  io::CaseOp op = io::CaseOp::kPrefill;
  check::GdnCase gdn;
  bool head_first = false;
  bool key_gates = false;  ///< prefill, decode, stages: gates [B,T,HV,K]
  int64_t steps = 1;       ///< decode: calls; layer: 1 prefill and steps - 1 tokens of decode
  int64_t conv_width = 4;  ///< conv1d and layer
  int64_t channels = 64;   ///< conv1d
  sluice_packing packing = SLUICE_PACKING_FLAT;
  int64_t chunk_size = 64;  ///< stages
  StageParts parts = StageParts::kAll;
  check::StateProfile final_gradient = check::StateProfile::kRandom;  ///< gradients
};

/// A case as it will stand in a file, results still zeros.
struct Draft {
  nlohmann::json description;
  std::map<std::string, check::Array> floats;
  std::vector<int64_t> cu_seqlens;
  std::vector<std::string> activations;  ///< names of those stored in the recipe's io dtype
};

Draft draft_case(const CaseRecipe& recipe);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_GENERATE_CASE_HPP_
