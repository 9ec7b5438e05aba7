// Judges results of a case: which comparison and which tolerance each tensor gets, and the yardsticks
// that tolerances in 16 bits are found by.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_JUDGE_HPP_
#define SLUICE_TOOLS_JUDGE_HPP_

#include <map>
#include <string>
#include <vector>

#include "check/array.hpp"
#include "check/comparer.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {

using Results = std::map<std::string, check::Array>;

/// One tensor's errors and whether they pass.
struct Judgement {
  std::string tensor;
  check::Comparison comparison;
  check::Tolerance limit;
  check::Verdict verdict;
};

/// What the results of a case should be.
struct Truth {
  Status status;
  Results results;                                 ///< one for each of the case's expected tensors
  std::map<std::string, check::Tolerance> limits;  ///< by tensor
};

/// In float32 the recorded results, with the case's tolerance for the whole tensor and twice that
/// for the worst head and the worst 64-token window; for gradients those of gradient_tolerance().
/// In bfloat16 and float16 the float64 reference on inputs rounded to `dtype`, with the caps and
/// the yardstick rules of docs/math.md.
Truth truth_of(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

/// Judges results by name, one judgement for each expected tensor; a missing one fails.
std::vector<Judgement> judge_case(const io::CaseFile& file, const io::Case& which,
                                  const Results& results, const Truth& truth);

/// Results of a prefill or decode case by the yardstick; l2norm_eps = 1e-6, scalar gates.
Results delta_rule_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

/// Every gradient of a case of op gradients by the yardstick of gradients; l2norm_eps = 1e-6.
Results gradient_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

/// Convolution, delta rule and gated norm, each result stored in `dtype`, prefill with the rounding
/// points of chunked kernels. Its distance from the layer in float64 is what a layer in `dtype` may
/// err by.
Execution layer_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_JUDGE_HPP_
