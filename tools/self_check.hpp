// Checks a backend where there is no case file: small cases of every operator, drawn here, against
// the reference's answers in double.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_SELF_CHECK_HPP_
#define SLUICE_TOOLS_SELF_CHECK_HPP_

#include <string>
#include <vector>

#include "tools/case_settings.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {

/// What came of checking cases.
struct CheckTally {
  int cases = 0, tensors = 0, failed = 0, unsupported = 0;
  double seconds = 0;
  std::vector<std::string> wrong;  ///< a line for each tensor outside its limit

  int right() const { return tensors - failed; }
};

/// The cases: suite smoke, and one of each operator with the heads of models (128 x 128).
Status self_check_cases(CasesInMemory* out);

/// Runs the cases whose names contain `filter` with inputs and outputs rounded to options.inputs.
Status check_cases(const io::CaseFile& file, const ExecuteOptions& options,
                   const std::string& filter, CheckTally* tally);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_SELF_CHECK_HPP_
