// Declares how cases are made: what the words of make-case's options mean, a case with the
// reference's answers from them, and suites of cases.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_CASE_SETTINGS_HPP_
#define SLUICE_TOOLS_CASE_SETTINGS_HPP_

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/safetensors_writer.hpp"
#include "tools/generate_case.hpp"

namespace sluice::tools {

/// A case in the words of make-case's options; profiles stay text for the file's notes.
struct CaseSettings {
  CaseRecipe recipe;
  std::string op = "prefill", keys = "random", gates = "slow", betas = "sigmoid";
  std::string initial = "random", final_gradient = "random", layout = "bthd", state_layout = "kv";
  std::string packing = "qwen3_5", part = "all";
  double tolerance = 1e-5;
  bool l2norm = false;
};

/// The words of each option and what they stand for.
extern const std::map<std::string, io::CaseOp> kCaseOps;
extern const std::map<std::string, StageParts> kCaseParts;
extern const std::map<std::string, check::KeyProfile> kKeyProfiles;
extern const std::map<std::string, check::GateProfile> kGateProfiles;
extern const std::map<std::string, check::BetaProfile> kBetaProfiles;
extern const std::map<std::string, check::StateProfile> kStateProfiles;

/// The enumerator of one of its words (sluice/enumerations.hpp), which the command line has checked.
template <class Value>
Value enumerator(const char* const* words, const std::string& word) {
  int place = 0;
  while (word != words[place]) ++place;
  return static_cast<Value>(place);
}

/// One case of a suite, in the words of make-case's options.
struct SuiteRow {
  std::string name, op;
  std::string part = "all", rule = "gated_delta", keys = "silu", gates = "flashqla";
  std::string gate_space = "log", initial = "random", final_gradient = "random";
  std::vector<int64_t> lengths = {};
  int64_t B = 1, T = 128, H = 1, HV = 2, K = 64, V = 64, chunk = 64, steps = 1;
  bool head_first = false, vk = false, key_gates = false;
  double lower_bound = 0;                  ///< of a layer's gates
  std::optional<bool> l2norm = {};         ///< of q and k; by default that of prefills alone
  std::optional<sluice_dtype> dtype = {};  ///< of activations; by default that of --dtype
  double tolerance = 1e-5;
  uint64_t seed = 1;
};

/// "conformance"; "smoke", a small cut of it; "self-check", that and the heads of models. Nothing for
/// an empty name.
std::vector<SuiteRow> suite_rows(const std::string& suite);

/// The settings of one row of a suite; what the row does not say is as in `base`.
CaseSettings of_row(const CaseSettings& base, const SuiteRow& row);

/// Drafts a case, has the reference answer it, and adds it to a file and its descriptions.
Status add_case(CaseSettings settings, io::SafetensorsWriter* writer, nlohmann::json* cases);

/// A case file that lies in memory.
struct CasesInMemory {
  std::vector<std::byte> bytes;
  io::CaseFile file;  ///< views of `bytes`
};

/// The cases of a suite with their answers.
Status make_suite(const std::string& suite, CasesInMemory* out);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_CASE_SETTINGS_HPP_
