// Judges results of a case: which comparison and which tolerance each tensor gets.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_JUDGE_HPP_
#define SLUICE_TOOLS_JUDGE_HPP_

#include <map>
#include <string>
#include <vector>

#include "check/array.hpp"
#include "check/comparer.hpp"
#include "io/case_file.hpp"
#include "sluice/sluice.hpp"

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

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_JUDGE_HPP_
