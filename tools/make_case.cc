// Implements `sluice make-case`: writes a case of chosen shape and profile with the reference's
// answers.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "sluice/enumerations.hpp"
#include "tools/case_settings.hpp"
#include "tools/commands.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

using check::StateProfile;

// What the command line says.
struct MakeSettings : CaseSettings {
  std::string path, suite;
  bool append = false;
};

std::vector<std::string> all_words(const char* const* words) {
  std::vector<std::string> all;
  for (; *words != nullptr; ++words) all.emplace_back(*words);
  return all;
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

int make_case(const MakeSettings& settings) {
  io::SafetensorsWriter writer;
  nlohmann::json cases = nlohmann::json::object();
  if (settings.append) {
    if (const Status status = take_over(settings.path, &writer, &cases); !status.ok()) {
      return fail(status.message);
    }
  }
  std::vector<CaseSettings> wanted;
  for (const SuiteRow& row : suite_rows(settings.suite)) wanted.push_back(of_row(settings, row));
  if (settings.suite.empty()) wanted.push_back(settings);
  for (const CaseSettings& one : wanted) {
    if (const Status status = add_case(one, &writer, &cases); !status.ok()) {
      return fail(status.message);
    }
  }
  writer.set_metadata(io::kCasesKey, cases.dump());
  if (const Status status = writer.write(settings.path); !status.ok()) return fail(status.message);
  fmt::print("{}: {} written{}\n", settings.path,
             counted(static_cast<int64_t>(wanted.size()), "case"),
             settings.suite.empty() ? fmt::format(" ({})", settings.op) : "");
  return kExitDone;
}

void add_shape_options(CLI::App* command, MakeSettings* s) {
  check::GdnCase& c = s->recipe.gdn;
  const CLI::Range heads(1, 1024), sizes(1, 4096), tokens(0, 1 << 22);
  add_checked(*command, "--B", &c.B, "batch", CLI::Range(1, 65536));
  add_checked(*command, "--T", &c.T, "tokens", tokens);
  add_list(*command, "--lengths", &c.lengths, "packed sequences, e.g. 96,0,300")->check(tokens);
  add_checked(*command, "--H", &c.H, "query/key heads", heads);
  add_checked(*command, "--HV", &c.HV, "value heads", heads);
  add_checked(*command, "--K", &c.K, "key dimension", sizes);
  add_checked(*command, "--V", &c.V, "value dimension", sizes);
  add_checked(*command, "--steps", &s->recipe.steps,
              "decode: calls of T/steps tokens; layer: a prefill and steps-1 tokens",
              CLI::Range(1, 4096));
  add_checked(*command, "--width", &s->recipe.conv_width, "convolution width (conv1d, layer)",
              CLI::Range(2, 4));
  add_checked(*command, "--channels", &s->recipe.channels, "convolution channels (conv1d)",
              CLI::Range(1, 1 << 20));
  add_checked(*command, "--chunk", &s->recipe.chunk_size, "tokens of a chunk (stages)",
              CLI::IsMember({16, 32, 64, 128}));
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
  const auto choice = [&](const char* name, std::string* word, const auto& words,
                          const char* help) {
    add_checked(*command, name, word, help, CLI::IsMember(words));
  };
  choice("--keys", &s->keys, kKeyProfiles, "key profile");
  choice("--gates", &s->gates, kGateProfiles, "gate profile");
  choice("--betas", &s->betas, kBetaProfiles, "write strengths");
  choice("--initial", &s->initial, kStateProfiles, "initial states");
  choice("--final-gradient", &s->final_gradient, kStateProfiles,
         "gradients: d_final_state, as profiles of states");
  command->add_option("--seed", s->recipe.gdn.seed, "of the generator")->capture_default_str();
  command->add_flag("--key-gates", s->recipe.key_gates,
                    "one decay for each channel of k (KDA, GLA)");
  command->add_flag("--l2norm", s->l2norm, "normalise q and k in the operator");
  choice("--part", &s->part, kCaseParts, "stages: which results");
  choice("--layout", &s->layout, std::vector<std::string>{"bthd", "bhtd"}, "bthd or bhtd");
  choice("--state-layout", &s->state_layout, all_words(kStateLayoutWords),
         "order of state matrices");
  choice("--packing", &s->packing, std::vector<std::string>{"qwen3_5", "qwen3_next"},
         "qwen3_5 or qwen3_next (layer)");
}

}  // namespace

Action add_make_case(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("make-case", "Write a case file with the float64 reference's answers");
  auto settings = std::make_shared<MakeSettings>();
  command->add_option("-o,--output", settings->path, "the file to write")->required();
  command->add_flag("--append", settings->append, "add the case to that file");
  command->add_option("--name", settings->recipe.name, "of the case (default: op.gates.seed)");
  add_checked(*command, "--op", &settings->op, "operator", CLI::IsMember(kCaseOps));
  command
      ->add_option(
          "--suite", settings->suite,
          "many cases at once: conformance (every operator and stage, a ladder of lengths, "
          "packs, gates and keys), smoke (a small cut of it), or self-check (that and the heads "
          "of models, as verify without files); other options but --dtype do not count")
      ->check(CLI::IsMember({"conformance", "smoke", "self-check"}));
  add_shape_options(command, settings.get());
  add_profile_options(command, settings.get());
  add_delta_options(command, &settings->recipe.gdn.options);
  add_dtype_option(*command, &settings->recipe.gdn.io);
  add_checked(*command, "--tolerance", &settings->tolerance, "relative L2 error allowed in float32",
              CLI::PositiveNumber);
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
