// Implements `sluice make-case`: writes a case of chosen shape and profile with the reference's
// answers.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "io/safetensors_writer.hpp"
#include "sluice/enumerations.hpp"
#include "tools/commands.hpp"
#include "tools/execute.hpp"
#include "tools/generate_case.hpp"
#include "tools/make_suite.hpp"

namespace sluice::tools {
namespace {

using check::BetaProfile;
using check::GateProfile;
using check::KeyProfile;
using check::StateProfile;

// What the command line says; profiles stay text for the file's notes.
struct MakeSettings {
  CaseRecipe recipe;
  std::string path;
  std::string op = "prefill", keys = "random", gates = "slow", betas = "sigmoid";
  std::string initial = "random", final_gradient = "random", layout = "bthd", state_layout = "kv";
  std::string packing = "qwen3_5", part = "all", suite;
  double tolerance = 1e-5;
  bool l2norm = false, append = false;
};

const std::map<std::string, io::CaseOp> kOps = {
    {"prefill", io::CaseOp::kPrefill},    {"decode", io::CaseOp::kDecode},
    {"conv1d", io::CaseOp::kConv1d},      {"gated_norm", io::CaseOp::kGatedNorm},
    {"layer", io::CaseOp::kLayer},        {"stages", io::CaseOp::kStages},
    {"gradients", io::CaseOp::kGradients}};
const std::map<std::string, StageParts> kParts = {{"all", StageParts::kAll},
                                                  {"pairs", StageParts::kPairs},
                                                  {"one-call", StageParts::kOneCall},
                                                  {"reverse", StageParts::kReverse},
                                                  {"upper", StageParts::kUpper}};
const std::map<std::string, KeyProfile> kKeys = {{"random", KeyProfile::kRandomUnit},
                                                 {"silu", KeyProfile::kSiluLike},
                                                 {"cos75", KeyProfile::kCos75},
                                                 {"cos90", KeyProfile::kCos90},
                                                 {"identical", KeyProfile::kIdentical},
                                                 {"zero", KeyProfile::kZero},
                                                 {"antiparallel", KeyProfile::kAntiParallel}};
const std::map<std::string, GateProfile> kGates = {{"none", GateProfile::kNone},
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
const std::map<std::string, BetaProfile> kBetas = {{"absent", BetaProfile::kAbsent},
                                                   {"zero", BetaProfile::kZero},
                                                   {"one", BetaProfile::kOne},
                                                   {"two", BetaProfile::kTwo},
                                                   {"sigmoid", BetaProfile::kSigmoid}};
const std::map<std::string, StateProfile> kStates = {{"none", StateProfile::kNone},
                                                     {"zero", StateProfile::kZero},
                                                     {"random", StateProfile::kRandom},
                                                     {"loud", StateProfile::kLoud}};

/// The enumerator of one of its words (sluice/enumerations.hpp).
template <class Value>
Value enumerator(const char* const* words, const std::string& word) {
  int place = 0;
  while (word != words[place]) ++place;  // the command line has checked it
  return static_cast<Value>(place);
}

std::vector<std::string> all_words(const char* const* words) {
  std::vector<std::string> all;
  for (; *words != nullptr; ++words) all.emplace_back(*words);
  return all;
}

CLI::Option* word(CLI::App* command, const char* name, std::string* text, const char* const* words,
                  const char* help) {
  return command->add_option(name, *text, help)
      ->check(CLI::IsMember(all_words(words)))
      ->capture_default_str();
}

template <class Value>
CLI::Option* choice(CLI::App* command, const char* name, std::string* text,
                    const std::map<std::string, Value>& values, const char* help) {
  return command->add_option(name, *text, help)
      ->check(CLI::IsMember(values))
      ->capture_default_str();
}

void resolve(MakeSettings* s) {
  check::GdnCase& c = s->recipe.gdn;
  s->recipe.op = kOps.at(s->op);
  if (s->recipe.name.empty()) s->recipe.name = fmt::format("{}.{}.{}", s->op, s->gates, c.seed);
  c.keys = kKeys.at(s->keys);
  c.gates = kGates.at(s->gates);
  c.betas = kBetas.at(s->betas);
  c.initial = kStates.at(s->initial);
  s->recipe.final_gradient = kStates.at(s->final_gradient);
  const bool bounded = c.options.gate_space == SLUICE_GATE_RAW_BOUNDED;
  if (bounded && c.options.gate_lower_bound == 0) c.options.gate_lower_bound = -5;
  if (s->l2norm) c.options.qk_norm = SLUICE_QK_NORM_L2;
  c.state_layout = enumerator<sluice_state_layout>(kStateLayoutWords, s->state_layout);
  s->recipe.head_first = s->layout == "bhtd";
  s->recipe.parts = kParts.at(s->part);
  s->recipe.packing = s->packing == "qwen3_next" ? SLUICE_PACKING_INTERLEAVED : SLUICE_PACKING_FLAT;
  if (!c.lengths.empty()) {
    c.B = 1;
    c.T = std::accumulate(c.lengths.begin(), c.lengths.end(), int64_t{0});
  }
}

// The first thing in the recipe that would not make sense, or an empty string.
std::string check(const MakeSettings& s) {
  const check::GdnCase& c = s.recipe.gdn;
  if (c.HV % c.H != 0) return fmt::format("--HV {} is no multiple of --H {}", c.HV, c.H);
  const io::CaseOp op = s.recipe.op;
  const bool packs = op == io::CaseOp::kPrefill || op == io::CaseOp::kConv1d ||
                     op == io::CaseOp::kStages || op == io::CaseOp::kGradients;
  if (!c.lengths.empty() && !packs) {
    return "--lengths goes with --op prefill, gradients, stages or conv1d";
  }
  if (s.recipe.key_gates) {
    const bool takes =
        op == io::CaseOp::kPrefill || op == io::CaseOp::kDecode || op == io::CaseOp::kStages;
    if (!takes) return "--key-gates goes with --op prefill, decode or stages";
    if (c.options.gate_space >= SLUICE_GATE_RAW && op == io::CaseOp::kStages)
      return "--key-gates in stages goes with --gate-space log or linear";
    const bool part = s.recipe.parts == StageParts::kAll || s.recipe.parts == StageParts::kReverse;
    if (!part) return "--key-gates goes with --part all or reverse";
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

void add_draft(const Draft& draft, const MakeSettings& s, io::SafetensorsWriter* writer) {
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
Status answer(const MakeSettings& s, Draft* draft) {
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

// Copies what a file holds, and returns its descriptions.
Status take_over(const std::string& path, io::SafetensorsWriter* writer, nlohmann::json* cases) {
  io::CaseFile file;
  if (const Status status = io::open_case_file(path, &file); !status.ok()) return status;
  for (const io::TensorEntry& tensor : file.file.tensors()) {
    writer->add_bytes(tensor.name, tensor.type, tensor.shape,
                      {tensor.data, tensor.data + tensor.bytes});
  }
  for (const auto& [key, value] : file.file.metadata()) writer->set_metadata(key, value);
  for (const io::Case& c : file.cases) (*cases)[c.name] = nlohmann::json::parse(c.description);
  return ok_status();
}

/// Drafts and answers one case and adds it to a file.
Status add_case(MakeSettings settings, io::SafetensorsWriter* writer, nlohmann::json* cases) {
  resolve(&settings);
  if (const std::string reason = check(settings); !reason.empty()) {
    return Status::failure(Code::kInvalidArgument, "%s", reason.c_str());
  }
  const std::string& name = settings.recipe.name;
  if (cases->contains(name)) {
    return Status::failure(Code::kInvalidArgument, "%s has a case '%s'; give another --name",
                           settings.path.c_str(), name.c_str());
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

/// The settings of one row of a suite.
MakeSettings of_row(const MakeSettings& base, const SuiteRow& row) {
  MakeSettings s = base;
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
  s.initial = row.initial, s.final_gradient = row.final_gradient;
  c.B = row.B, c.T = row.T, c.lengths = row.lengths;
  c.H = row.H, c.HV = row.HV, c.K = row.K, c.V = row.V;
  c.seed = row.seed;
  c.io = row.dtype.value_or(c.io);
  return s;
}

int make_case(const MakeSettings& settings) {
  io::SafetensorsWriter writer;
  nlohmann::json cases = nlohmann::json::object();
  if (settings.append) {
    if (const Status status = take_over(settings.path, &writer, &cases); !status.ok()) {
      return fail(status.message);
    }
  }
  std::vector<MakeSettings> wanted;
  for (const SuiteRow& row : suite_rows(settings.suite)) wanted.push_back(of_row(settings, row));
  if (settings.suite.empty()) wanted.push_back(settings);
  for (const MakeSettings& one : wanted) {
    if (const Status status = add_case(one, &writer, &cases); !status.ok()) {
      return fail(status.message);
    }
  }
  writer.set_metadata(io::kCasesKey, cases.dump());
  if (const Status status = writer.write(settings.path); !status.ok()) return fail(status.message);
  fmt::print("{}: {} case{} written{}\n", settings.path, wanted.size(),
             wanted.size() == 1 ? "" : "s",
             settings.suite.empty() ? fmt::format(" ({})", settings.op) : "");
  return kExitDone;
}

void add_shape_options(CLI::App* command, MakeSettings* s) {
  check::GdnCase& c = s->recipe.gdn;
  const CLI::Range heads(1, 1024), sizes(1, 4096), tokens(0, 1 << 22);
  command->add_option("--B", c.B, "batch")->check(CLI::Range(1, 65536))->capture_default_str();
  command->add_option("--T", c.T, "tokens")->check(tokens)->capture_default_str();
  command->add_option("--lengths", c.lengths, "packed sequences, e.g. 96,0,300")
      ->delimiter(',')
      ->check(tokens);
  command->add_option("--H", c.H, "query/key heads")->check(heads)->capture_default_str();
  command->add_option("--HV", c.HV, "value heads")->check(heads)->capture_default_str();
  command->add_option("--K", c.K, "key dimension")->check(sizes)->capture_default_str();
  command->add_option("--V", c.V, "value dimension")->check(sizes)->capture_default_str();
  command
      ->add_option("--steps", s->recipe.steps,
                   "decode: calls of T/steps tokens; layer: a prefill and steps-1 tokens")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--width", s->recipe.conv_width, "convolution width (conv1d, layer)")
      ->check(CLI::Range(2, 4))
      ->capture_default_str();
  command->add_option("--channels", s->recipe.channels, "convolution channels (conv1d)")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--chunk", s->recipe.chunk_size, "tokens of a chunk (stages)")
      ->check(CLI::IsMember({16, 32, 64, 128}))
      ->capture_default_str();
}

/// Every option of the delta rule by its own name.
void add_delta_options(CLI::App* command, core::DeltaOptions* options) {
  core::for_each_option(*options, [&](const core::Option& option, auto& member) {
    using Member = std::remove_reference_t<decltype(member)>;
    std::string name = std::string("--") + option.name;
    std::ranges::replace(name, '_', '-');
    if constexpr (std::is_enum_v<Member>) {
      const std::vector<std::string> words = all_words(option.words);
      const auto set = [&member, all = option.words](const std::string& word) {
        member = enumerator<Member>(all, word);
      };
      command->add_option_function<std::string>(name, set, option.doc)
          ->check(CLI::IsMember(words))
          ->default_str(words[0]);
    } else {
      command->add_option(name, member, option.doc);
    }
  });
}

void add_profile_options(CLI::App* command, MakeSettings* s) {
  choice(command, "--keys", &s->keys, kKeys, "key profile");
  choice(command, "--gates", &s->gates, kGates, "gate profile");
  choice(command, "--betas", &s->betas, kBetas, "write strengths");
  choice(command, "--initial", &s->initial, kStates, "initial states");
  choice(command, "--final-gradient", &s->final_gradient, kStates,
         "gradients: d_final_state, as profiles of states");
  command->add_option("--seed", s->recipe.gdn.seed, "of the generator")->capture_default_str();
  command->add_flag("--key-gates", s->recipe.key_gates,
                    "one decay for each channel of k (KDA, GLA); stages: chunk_cumsum and chunk_h");
  command->add_flag("--l2norm", s->l2norm, "normalise q and k in the operator");
  choice(command, "--part", &s->part, kParts, "stages: which results");
  command->add_option("--layout", s->layout, "bthd or bhtd")
      ->check(CLI::IsMember({"bthd", "bhtd"}))
      ->capture_default_str();
  word(command, "--state-layout", &s->state_layout, kStateLayoutWords, "order of state matrices");
  command->add_option("--packing", s->packing, "qwen3_5 or qwen3_next (layer)")
      ->check(CLI::IsMember({"qwen3_5", "qwen3_next"}))
      ->capture_default_str();
}

}  // namespace

Action add_make_case(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("make-case", "Write a case file with the float64 reference's answers");
  auto settings = std::make_shared<MakeSettings>();
  command->add_option("-o,--output", settings->path, "the file to write")->required();
  command->add_flag("--append", settings->append, "add the case to that file");
  command->add_option("--name", settings->recipe.name, "of the case (default: op.gates.seed)");
  choice(command, "--op", &settings->op, kOps, "operator");
  command
      ->add_option(
          "--suite", settings->suite,
          "many cases at once: conformance (every operator and stage, a ladder of lengths, "
          "packs, gates and keys), or smoke (a small cut of it); other options but --dtype "
          "do not count")
      ->check(CLI::IsMember({"conformance", "smoke"}));
  add_shape_options(command, settings.get());
  add_profile_options(command, settings.get());
  add_delta_options(command, &settings->recipe.gdn.options);
  add_dtype_option(*command, &settings->recipe.gdn.io);
  command->add_option("--tolerance", settings->tolerance, "relative L2 error allowed in float32")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->footer(
      "Answers are computed in float64, token by token, and stored rounded once to float32. With\n"
      "--dtype the activations are rounded to it first and stored in it.\n"
      "Examples:\n"
      "  sluice make-case -o case.safetensors --H 2 --HV 4 --K 128 --V 128 --lengths 96,0,300\n"
      "  sluice make-case -o case.safetensors --append --gates strong --keys cos75 --T 1024\n"
      "  sluice make-case -o kit.safetensors --suite conformance\n"
      "  sluice make-case -o layer.safetensors --op layer --packing qwen3_next --T 100 --steps 4\n"
      "  sluice verify case.safetensors");
  return [settings] { return make_case(*settings); };
}

}  // namespace sluice::tools
