// Makes cases from the words of make-case's options, with the reference's answers.
// SPDX-License-Identifier: Apache-2.0
#include "tools/case_settings.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "sluice/enumerations.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {

using check::BetaProfile;
using check::GateProfile;
using check::KeyProfile;
using check::StateProfile;

const std::map<std::string, io::CaseOp> kCaseOps = {
    {"prefill", io::CaseOp::kPrefill},    {"decode", io::CaseOp::kDecode},
    {"conv1d", io::CaseOp::kConv1d},      {"gated_norm", io::CaseOp::kGatedNorm},
    {"layer", io::CaseOp::kLayer},        {"stages", io::CaseOp::kStages},
    {"gradients", io::CaseOp::kGradients}};
const std::map<std::string, StageParts> kCaseParts = {{"all", StageParts::kAll},
                                                      {"pairs", StageParts::kPairs},
                                                      {"one-call", StageParts::kOneCall},
                                                      {"reverse", StageParts::kReverse},
                                                      {"upper", StageParts::kUpper}};
const std::map<std::string, KeyProfile> kKeyProfiles = {
    {"random", KeyProfile::kRandomUnit},
    {"silu", KeyProfile::kSiluLike},
    {"cos75", KeyProfile::kCos75},
    {"cos90", KeyProfile::kCos90},
    {"identical", KeyProfile::kIdentical},
    {"zero", KeyProfile::kZero},
    {"antiparallel", KeyProfile::kAntiParallel}};
const std::map<std::string, GateProfile> kGateProfiles = {
    {"none", GateProfile::kNone},
    {"zero", GateProfile::kZero},
    {"slow", GateProfile::kSlow},
    {"flashqla", GateProfile::kFlashQla},
    {"strong", GateProfile::kStrong},
    {"model", GateProfile::kModelLike},
    {"resets", GateProfile::kResets},
    {"minus-infinity", GateProfile::kMinusInfinity},
    {"half-zeros", GateProfile::kHalfZeros},
    {"mixed", GateProfile::kMixed},
    {"bounded", GateProfile::kBounded},
    {"spread", GateProfile::kSpread},
    {"single-resets", GateProfile::kSingleResets},
    {"one-strong", GateProfile::kOneStrong},
    {"alternating", GateProfile::kAlternating},
    {"even-slow", GateProfile::kEvenSlow}};
const std::map<std::string, BetaProfile> kBetaProfiles = {{"absent", BetaProfile::kAbsent},
                                                          {"zero", BetaProfile::kZero},
                                                          {"one", BetaProfile::kOne},
                                                          {"two", BetaProfile::kTwo},
                                                          {"sigmoid", BetaProfile::kSigmoid}};
const std::map<std::string, StateProfile> kStateProfiles = {{"none", StateProfile::kNone},
                                                            {"zero", StateProfile::kZero},
                                                            {"random", StateProfile::kRandom},
                                                            {"loud", StateProfile::kLoud}};

namespace {

void resolve(CaseSettings* s) {
  check::GdnCase& c = s->recipe.gdn;
  s->recipe.op = kCaseOps.at(s->op);
  if (s->recipe.name.empty()) s->recipe.name = fmt::format("{}.{}.{}", s->op, s->gates, c.seed);
  c.keys = kKeyProfiles.at(s->keys);
  c.gates = kGateProfiles.at(s->gates);
  c.betas = kBetaProfiles.at(s->betas);
  c.initial = kStateProfiles.at(s->initial);
  s->recipe.final_gradient = kStateProfiles.at(s->final_gradient);
  const bool bounded = c.options.gate_space == SLUICE_GATE_RAW_BOUNDED;
  if (bounded && c.options.gate_lower_bound == 0) c.options.gate_lower_bound = -5;
  if (s->l2norm) c.options.qk_norm = SLUICE_QK_NORM_L2;
  c.state_layout = enumerator<sluice_state_layout>(kStateLayoutWords, s->state_layout);
  s->recipe.head_first = s->layout == "bhtd";
  s->recipe.parts = kCaseParts.at(s->part);
  s->recipe.packing = s->packing == "qwen3_next" ? SLUICE_PACKING_INTERLEAVED : SLUICE_PACKING_FLAT;
  if (!c.lengths.empty()) {
    c.B = 1;
    c.T = std::accumulate(c.lengths.begin(), c.lengths.end(), int64_t{0});
  }
}

// The first thing in the recipe that would not make sense, or an empty string.
std::string check(const CaseSettings& s) {
  const check::GdnCase& c = s.recipe.gdn;
  if (c.HV % c.H != 0) return fmt::format("--HV {} is no multiple of --H {}", c.HV, c.H);
  const io::CaseOp op = s.recipe.op;
  const bool packs = op == io::CaseOp::kPrefill || op == io::CaseOp::kConv1d ||
                     op == io::CaseOp::kStages || op == io::CaseOp::kGradients;
  if (!c.lengths.empty() && !packs) {
    return "--lengths goes with --op prefill, gradients, stages or conv1d";
  }
  if (s.recipe.key_gates) {
    const bool takes = op == io::CaseOp::kPrefill || op == io::CaseOp::kDecode ||
                       op == io::CaseOp::kStages || op == io::CaseOp::kLayer;
    if (!takes) return "--key-gates goes with --op prefill, decode, stages or layer";
    if (op == io::CaseOp::kLayer && s.recipe.packing == SLUICE_PACKING_INTERLEAVED)
      return "--key-gates in layers goes with --packing qwen3_5";
    if (c.options.gate_space >= SLUICE_GATE_RAW && op == io::CaseOp::kStages)
      return "--key-gates in stages goes with --gate-space log or linear";
    if (s.recipe.parts == StageParts::kUpper) return "--key-gates has no use in --part upper";
  }
  if (op == io::CaseOp::kDecode && (c.T % s.recipe.steps != 0 || c.T < s.recipe.steps)) {
    return fmt::format("--T {} is no multiple of --steps {}", c.T, s.recipe.steps);
  }
  return {};
}

io::ElementType stored_type(sluice_dtype dtype) {
  if (check::same_dtype(dtype, check::kBF16)) return io::ElementType::kBF16;
  return check::same_dtype(dtype, check::kF16) ? io::ElementType::kF16 : io::ElementType::kF32;
}

void add_draft(const Draft& draft, const CaseSettings& s, io::SafetensorsWriter* writer) {
  for (const auto& [tensor, array] : draft.floats) {
    const bool activation = std::find(draft.activations.begin(), draft.activations.end(), tensor) !=
                            draft.activations.end();
    writer->add_floats(s.recipe.name + "." + tensor,
                       activation ? stored_type(s.recipe.gdn.io) : io::ElementType::kF32,
                       array.shape, array.values);
  }
  if (!draft.cu_seqlens.empty()) {
    writer->add_integers(s.recipe.name + ".cu_seqlens",
                         {static_cast<int64_t>(draft.cu_seqlens.size())}, draft.cu_seqlens);
  }
}

// Runs the draft on the reference; *draft gets the results.
Status answer(const CaseSettings& s, Draft* draft) {
  io::SafetensorsWriter writer;
  add_draft(*draft, s, &writer);
  writer.set_metadata(io::kCasesKey, nlohmann::json{{s.recipe.name, draft->description}}.dump());
  const std::vector<std::byte> bytes = writer.serialize();
  io::SafetensorsFile file;
  Status status = io::SafetensorsFile::parse(bytes, "draft", &file);
  io::CaseFile cases;
  if (status.ok()) status = io::read_cases(std::move(file), &cases);
  if (!status.ok()) return status;
  const io::Case& c = cases.cases.front();
  ExecuteOptions options;
  options.implementation = Implementation::kReference;
  options.inputs = s.recipe.gdn.io;
  options.chained = true;
  Execution execution = execute(cases, c, options);
  for (const std::string& tensor : c.expected) {
    if (!execution.status.ok()) break;
    check::Array& result = execution.results[tensor];
    draft->floats[tensor] =
        stored_head_first(c, tensor) ? exchange_tokens_and_heads(result) : std::move(result);
  }
  return execution.status;
}

}  // namespace

Status add_case(CaseSettings settings, io::SafetensorsWriter* writer, nlohmann::json* cases) {
  resolve(&settings);
  if (const std::string reason = check(settings); !reason.empty()) {
    return Status::failure(Code::kInvalidArgument, "%s", reason.c_str());
  }
  const std::string& name = settings.recipe.name;
  if (cases->contains(name)) {
    return Status::failure(Code::kInvalidArgument, "the file has a case '%s'; give another --name",
                           name.c_str());
  }
  Draft draft = draft_case(settings.recipe);
  draft.description["tolerance_rel_l2"] = settings.tolerance;
  draft.description["generator"] = {{"program", fmt::format("sluice {}", sluice_version())},
                                    {"seed", settings.recipe.gdn.seed},
                                    {"keys", settings.keys},
                                    {"gates", settings.gates},
                                    {"betas", settings.betas},
                                    {"initial", settings.initial}};
  if (const Status status = answer(settings, &draft); !status.ok()) return status;
  add_draft(draft, settings, writer);
  (*cases)[name] = draft.description;
  return ok_status();
}

CaseSettings of_row(const CaseSettings& base, const SuiteRow& row) {
  CaseSettings s = base;
  check::GdnCase& c = s.recipe.gdn;
  s.op = row.op, s.part = row.part, s.keys = row.keys, s.gates = row.gates;
  s.recipe.name = row.name, s.recipe.steps = row.steps, s.recipe.chunk_size = row.chunk;
  s.recipe.key_gates = row.key_gates;
  s.layout = row.head_first ? "bhtd" : "bthd";
  s.state_layout = row.vk ? "vk" : "kv";
  s.tolerance = row.tolerance;
  s.l2norm = row.l2norm.value_or(row.op == "prefill");
  c.options = {};
  c.options.rule = enumerator<sluice_rule>(kRuleWords, row.rule);
  c.options.gate_space = enumerator<sluice_gate_space>(kGateSpaceWords, row.gate_space);
  c.options.gate_lower_bound = row.lower_bound;
  s.initial = row.initial, s.final_gradient = row.final_gradient;
  c.B = row.B, c.T = row.T, c.lengths = row.lengths;
  c.H = row.H, c.HV = row.HV, c.K = row.K, c.V = row.V;
  c.seed = row.seed;
  c.io = row.dtype.value_or(c.io);
  return s;
}

Status make_suite(const std::string& suite, CasesInMemory* out) {
  io::SafetensorsWriter writer;
  nlohmann::json cases = nlohmann::json::object();
  for (const SuiteRow& row : suite_rows(suite)) {
    if (const Status s = add_case(of_row({}, row), &writer, &cases); !s.ok()) return s;
  }
  writer.set_metadata(io::kCasesKey, cases.dump());
  out->bytes = writer.serialize();
  io::SafetensorsFile file;
  const Status status = io::SafetensorsFile::parse(out->bytes, suite, &file);
  return status.ok() ? io::read_cases(std::move(file), &out->file) : status;
}

}  // namespace sluice::tools
