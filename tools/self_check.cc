// Draws the cases of a self-check and counts what is right.
// SPDX-License-Identifier: Apache-2.0
#include "tools/self_check.hpp"

#include "tools/call.hpp"
#include "tools/judge.hpp"

namespace sluice::tools {

Status self_check_cases(CasesInMemory* out) { return make_suite("self-check", out); }

Status check_cases(const io::CaseFile& file, const ExecuteOptions& options,
                   const std::string& filter, CheckTally* tally) {
  const Stopwatch watch;
  for (const io::Case& c : file.cases) {
    if (c.name.find(filter) == std::string::npos) continue;
    const Truth truth = truth_of(file, c, options.inputs);
    if (!truth.status.ok()) return truth.status;
    const Execution execution = execute(file, c, options);
    if (execution.status.code == Code::kUnsupported) {
      ++tally->unsupported;
      continue;
    }
    if (!execution.status.ok()) return execution.status;
    ++tally->cases;
    for (const Judgement& judgement : judge_case(file, c, execution.results, truth)) {
      ++tally->tensors;
      if (judgement.verdict.pass) continue;
      ++tally->failed;
      tally->wrong.push_back(c.name + ": " + judgement.verdict.line);
    }
  }
  tally->seconds += watch.seconds();
  return ok_status();
}

}  // namespace sluice::tools
