// Implements `sluice bench`, which chooses what to time; without a subcommand one layer's prefill and
// decode, in two lines.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "io/whole_file.hpp"
#include "tools/bench/rows.hpp"
#include "tools/bench/work_memory.hpp"
#include "tools/call.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {

namespace {

/// One sequence to prefill, a batch of others to decode, with the heads of a layer.
struct QuickSettings {
  Implementation backend = Implementation::kAuto;
  int64_t heads = 16, value_heads = 32, dim = 128, tokens = 1024, batch = 4;
  int threads = 0;  ///< of the CPU backend; 0: its own choice
};

constexpr int kRounds = 9;
constexpr double kShortest = 2e-3;  // seconds of a round: short calls are repeated

/// Seconds of one call.
Spread time_call(Machine& machine, const std::function<void()>& call) {
  const auto once = [&](int calls) {
    machine.synchronize();
    const Stopwatch watch;
    for (int i = 0; i < calls; ++i) call();
    machine.synchronize();
    return watch.seconds() / calls;
  };
  once(1);
  const int calls = std::max(1, static_cast<int>(kShortest / std::max(once(1), 1e-7)));
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) seconds.push_back(once(calls));
  return spread_of(std::move(seconds));
}

/// Prints a line and returns tokens a second.
double print_row(const char* name, int64_t tokens, const Spread& q) {
  const double rate = static_cast<double>(tokens) / q.median;
  fmt::print("{}\n",
             folded(fmt::format("{:<8} {:>6} {:<6}  {:>9.3f} ms ({:.3f} to {:.3f})  "
                                "{:>11.0f} tokens/s  {}",
                                name, tokens, tokens == 1 ? "token" : "tokens", 1e3 * q.median,
                                1e3 * q.low, 1e3 * q.high, rate, sluice_last_kernel()),
                    9, terminal_width()));
  return rate;
}

template <class Args>
Spread time_operator(Machine& machine, const Args& args,
                     Status (*run)(const Args&, Workspace, Stream) noexcept) {
  WorkScratch scratch;
  scratch.reserve(machine, workspace_size(args));
  return time_call(machine, [&] { require(run(args, scratch.get(), nullptr)); });
}

template <class Args>
void fill(const QuickSettings& s, DType io, int64_t B, int64_t T, WorkMemory* memory, Args* args) {
  args->q = memory->tensor(io, {B, T, s.heads, s.dim});
  args->k = memory->tensor(io, {B, T, s.heads, s.dim});
  args->v = memory->tensor(io, {B, T, s.value_heads, s.dim});
  args->o = memory->tensor(io, {B, T, s.value_heads, s.dim}, 0.0);
  args->gate = memory->tensor(kFloat32, {B, T, s.value_heads}, 0.0);
  upload_list(memory->machine(), args->gate.data,
              std::vector<float>(static_cast<size_t>(B * T * s.value_heads), -0.05f));
  args->beta = memory->tensor(kFloat32, {B, T, s.value_heads});
  args->beta_space = BetaSpace::kLogit;
  args->qk_norm = QkNorm::kL2;
  args->state.initial = memory->tensor(kFloat32, {B, s.value_heads, s.dim, s.dim}, 0.0);
  args->state.final = args->state.initial;
}

void add_quick_options(CLI::App& command, QuickSettings* s) {
  add_backend_option(command, &s->backend);
  const CLI::Range heads(1, 1024), dims(1, 1024), counts(1, 1 << 20);
  add_checked(command, "--heads", &s->heads, "key heads H", heads);
  add_checked(command, "--value-heads", &s->value_heads, "value heads HV", heads);
  add_checked(command, "--dim", &s->dim, "head dimensions K = V", dims);
  add_checked(command, "--tokens", &s->tokens, "tokens of the prefill", counts);
  add_checked(command, "--batch", &s->batch, "sequences of the decode step", CLI::Range(1, 65536));
  command.add_option("--threads", s->threads, "threads of the CPU backend")
      ->check(CLI::Range(1, 4096));
}

int bench_quick(const QuickSettings& s) {
  const bool gpu =
      s.backend == Implementation::kCuda ||
      (s.backend == Implementation::kAuto && unavailable(Implementation::kCuda).empty());
  if (const std::string why = unavailable(s.backend); !why.empty()) return fail_unavailable(why);
  // Read by the library when its threads start, which has not happened yet.
  if (s.threads > 0) setenv("SLUICE_NUM_THREADS", std::to_string(s.threads).c_str(), 1);
  const DType io = gpu ? kBFloat16 : kFloat32;
  try {
    const auto machine = machine_of(gpu ? Implementation::kCuda : Implementation::kCpu);
    WorkMemory memory(*machine);
    ChunkForwardArgs prefill;
    RecurrentStepArgs decode;
    fill(s, io, 1, s.tokens, &memory, &prefill);
    fill(s, io, s.batch, 1, &memory, &decode);
    if (s.backend != Implementation::kAuto) {
      prefill.implementation = decode.implementation = s.backend;
    }
    const std::string head =
        fmt::format("{}: H {}, HV {}, K = V = {}, {}; median of {} rounds (quartiles)",
                    machine->name(), s.heads, s.value_heads, s.dim, check::dtype_name(io), kRounds);
    fmt::print("{}\n", folded(head, 2, terminal_width()));
    const double reads =
        print_row("prefill", s.tokens, time_operator(*machine, prefill, chunk_forward));
    const double writes =
        print_row("decode", s.batch, time_operator(*machine, decode, recurrent_step));
    fmt::print("One such layer reads {:.0f} and writes {:.0f} tokens a second.\n", reads, writes);
  } catch (const std::runtime_error& error) {
    return fail_unavailable(error.what());
  }
  return kExitDone;
}

}  // namespace

void add_device_option(CLI::App& command, Implementation* out) {
  command
      .add_option_function<std::string>(
          "--backend",
          [out](const std::string& name) {
            *out = name == "cuda" ? Implementation::kCuda : Implementation::kCpu;
          },
          "cuda or cpu")
      ->check(CLI::IsMember({"cuda", "cpu"}))
      ->default_str("cuda");
}

void add_record_options(CLI::App& command, const char* what, RunOptions* options) {
  add_checked(command, "--repeat", &options->repeat, what, CLI::Range(1, 10000));
  command.add_option("--commit", options->commit, "what to record as the commit measured");
  command.add_option("--json", options->json, "write everything measured");
}

void add_run_options(CLI::App& command, RunOptions* options) {
  add_dtype_option(command, &options->dtype);
  add_record_options(command, "timed calls of each row", options);
}

std::string command_text(const std::string& name, const CLI::App& command) {
  std::string text = "sluice bench " + name;
  for (const CLI::Option* option : command.get_options()) {
    const std::string option_name = option->get_name();
    if (option->count() == 0 || option_name == "--help" || option_name == "--json") continue;
    text += " " + option_name;
    if (option->get_items_expected_max() == 0) continue;
    text += fmt::format(" {}", fmt::join(option->results(), ","));
  }
  return text;
}

int write_record(const std::string& path, const std::string& text, int status) {
  if (path.empty()) return status;
  const Status written = io::write_whole_file(path, std::as_bytes(std::span(text)));
  return written.ok() ? status : fail(std::string("cannot be written: ") + written.message);
}

Action add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Time the operators");
  auto quick = std::make_shared<QuickSettings>();
  add_quick_options(*command, quick.get());
  command->footer(
      "Without a subcommand: a quick look at one layer's prefill and decode, as python -m sluice\n"
      "bench takes it. What docs/benchmarks.md holds is measured by the subcommands.\n"
      "Examples:\n"
      "  sluice bench\n"
      "  sluice bench --backend cpu --tokens 2048 --batch 8\n"
      "  sluice bench cpu --model qwen3-next --T 512,2048\n"
      "  sluice bench prefill --grid marks --json marks.json\n"
      "  sluice bench decode --json decode.json\n"
      "  sluice bench layer --B 1,32 --state bf16\n"
      "  sluice bench kda --json kda.json --svg kda.svg\n"
      "  sluice bench parts --json parts.json\n"
      "  sluice bench stages --json stages.json\n"
      "  sluice bench backward --json backward.json\n"
      "  sluice bench train-layer --json train_layer.json");
  const std::vector<std::pair<const char*, Action>> actions = {
      {"cpu", add_bench_cpu(*command)},
      {"prefill", add_bench_prefill(*command)},
      {"decode", add_bench_decode(*command)},
      {"layer", add_bench_layer(*command)},
      {"kda", add_bench_kda(*command)},
      {"parts", add_bench_parts(*command)},
      {"stages", add_bench_stages(*command)},
      {"backward", add_bench_backward(*command)},
      {"train-layer", add_bench_train_layer(*command)}};
  return [command, actions, quick] {
    for (const auto& [name, action] : actions) {
      if (command->got_subcommand(name)) return action();
    }
    return bench_quick(*quick);
  };
}

}  // namespace sluice::tools
