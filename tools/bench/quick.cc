// Implements `sluice bench` without a subcommand: one layer's prefill and decode, in two lines.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "tools/bench/rows.hpp"
#include "tools/bench/work_memory.hpp"
#include "tools/call.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

constexpr int kRounds = 9;
constexpr double kShortest = 2e-3;  // seconds of a round: short calls are repeated

struct Quartiles {
  double low, middle, high;
};

/// Seconds of one call.
Quartiles time_call(Machine& machine, const std::function<void()>& call) {
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
  std::sort(seconds.begin(), seconds.end());
  return {seconds[kRounds / 4], seconds[kRounds / 2], seconds[kRounds - 1 - kRounds / 4]};
}

/// Prints a line and returns tokens a second.
double print_row(const char* name, int64_t tokens, const Quartiles& q) {
  const double rate = static_cast<double>(tokens) / q.middle;
  fmt::print("{}\n",
             folded(fmt::format("{:<8} {:>6} {:<6}  {:>9.3f} ms ({:.3f} to {:.3f})  "
                                "{:>11.0f} tokens/s  {}",
                                name, tokens, tokens == 1 ? "token" : "tokens", 1e3 * q.middle,
                                1e3 * q.low, 1e3 * q.high, rate, sluice_last_kernel()),
                    9, terminal_width()));
  return rate;
}

template <class Args>
Quartiles time_operator(Machine& machine, const Args& args,
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

}  // namespace

void add_quick_options(CLI::App& command, QuickSettings* s) {
  add_backend_option(command, &s->backend);
  const CLI::Range heads(1, 1024), dims(1, 1024), counts(1, 1 << 20);
  command.add_option("--heads", s->heads, "key heads H")->check(heads)->capture_default_str();
  command.add_option("--value-heads", s->value_heads, "value heads HV")
      ->check(heads)
      ->capture_default_str();
  command.add_option("--dim", s->dim, "head dimensions K = V")->check(dims)->capture_default_str();
  command.add_option("--tokens", s->tokens, "tokens of the prefill")
      ->check(counts)
      ->capture_default_str();
  command.add_option("--batch", s->batch, "sequences of the decode step")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
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

}  // namespace sluice::tools
