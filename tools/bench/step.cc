// Implements sluice bench decode and sluice bench layer: time steps of the delta rule and of whole
// layers on a GPU, in graphs, on cold states, beside a copy of the same run and what peers take.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "check/array.hpp"
#include "tools/bench/bench.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/rows.hpp"
#include "tools/bench/step_problem.hpp"
#include "tools/bench/step_report.hpp"

namespace sluice::tools {
namespace {

constexpr int kReplayWarmUps = 3, kStepHostCalls = 101;

/// Those of the grid, or --HV x --B x --T x --state.
std::vector<StepCell> cells_of_any_layout(const StepSettings& s) {
  if (s.HV.empty() && s.B.empty() && s.T.empty() && s.states.empty())
    return step_grid(s.grid, s.layer);
  std::vector<StepCell> cells;
  const std::vector<std::string> states =
      s.states.empty() ? std::vector<std::string>{"fp32"} : s.states;
  for (const std::string& state : states) {
    for (const int64_t HV : s.HV.empty() ? std::vector<int64_t>{32} : s.HV) {
      for (const int64_t B : s.B.empty() ? std::vector<int64_t>{1} : s.B) {
        for (const int64_t T : s.T.empty() ? std::vector<int64_t>{1} : s.T) {
          const int64_t H = s.H > 0 ? s.H : std::max<int64_t>(HV / 2, 1);
          cells.push_back({s.layer, H, HV, s.K, s.V, B, T, state, s.per_token, 0, s.ring, s.entry,
                           s.key_gates});
        }
      }
    }
  }
  return cells;
}

/// The cells asked for, one layout of states after the other.
std::vector<StepCell> cells_of(const StepSettings& s) {
  std::vector<StepCell> cells;
  for (const std::string& layout : s.layouts) {
    for (StepCell cell : cells_of_any_layout(s)) {
      cell.vk = layout == "vk", cell.packed = s.packed;
      cells.push_back(cell);
    }
  }
  return cells;
}

void time_row(Machine& machine, const StepSettings& s, double bytes_per_second, StepRow* row) {
  StepProblem problem(machine, row->cell);
  if (const Status status = problem.supported(&row->kernel); !status.ok()) {
    row->failure = status.message;
    return;
  }
  row->launches = problem.launches();
  problem.call(0, nullptr);
  machine.synchronize();
  row->failure = problem.trouble();
  if (!row->failure.empty()) return;
  const std::unique_ptr<GraphTimer> graph = capture_graph([&](void* stream) {
    for (int64_t i = 0; i < problem.launches(); ++i) problem.call(i, stream);
  });
  for (int i = 0; i < kReplayWarmUps; ++i) graph->replay();
  std::vector<double> seconds;
  for (int i = 0; i < s.repeat; ++i) seconds.push_back(graph->replay());
  const Quantiles us(std::move(seconds), 1e6 / static_cast<double>(problem.launches()));
  row->us = us.median, row->us_min = us.least, row->us_p90 = us.p90;
  row->host_us = host_microseconds(machine, kStepHostCalls,
                                   [&](int i) { problem.call(i % problem.launches(), nullptr); });
  row->failure = problem.trouble();
  row->floor_us = 1e6 * row->bytes / bytes_per_second;
}

std::vector<StepPeer> peers_of_row(const StepCell& cell) {
  std::vector<StepPeer> found;
  for (const StepPeer& peer : parse_step_peers(embedded_step_peers())) {
    const char* const op =
        cell.key_gates ? (cell.layer ? "kda layer" : "kda") : (cell.layer ? "layer" : "decode");
    if (peer.op == op && peer.HV == cell.HV && peer.B == cell.B && peer.T == cell.T &&
        peer.state == cell.state && !cell.per_token && cell.ring == 0) {
      found.push_back(peer);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const StepPeer& a, const StepPeer& b) { return a.us < b.us; });
  return found;
}

}  // namespace

StepReport measure_steps(Machine& machine, const StepSettings& s) {
  StepReport report;
  report.date = utc_now(), report.version = sluice_version(), report.commit = s.commit;
  report.command = s.command, report.grid = s.grid;
  report.op = s.layer ? "layer_decode" : "recurrent_step";
  report.machine = machine.describe(), report.repeat = s.repeat;
  const Ceilings ceilings = machine.measure_ceilings();
  report.bytes_per_second = ceilings.bytes_per_second;
  report.bytes_source = ceilings.bytes_source;
  const std::vector<StepCell> cells = cells_of(s);
  for (size_t i = 0; i < cells.size(); ++i) {
    StepRow& row = report.rows.emplace_back();
    row.cell = cells[i];
    row.bytes = step_bytes(cells[i]);
    row.peers = peers_of_row(cells[i]);
    show_progress(i, cells.size(),
                  fmt::format("HV {} B {} {}", row.cell.HV, row.cell.B, row.cell.state));
    try {
      time_row(machine, s, report.bytes_per_second, &row);
    } catch (const std::runtime_error& error) {
      row.failure = error.what();
    }
  }
  show_progress(1, 1, "");
  return report;
}

namespace {

int bench_steps(const StepSettings& s) {
  if (const std::string reason = unavailable(Implementation::kCuda); !reason.empty()) {
    return fail_unavailable(reason);
  }
  const std::unique_ptr<Machine> machine = machine_of(Implementation::kCuda);
  if (const int code = sluice_warm_up(machine->device()); code != SLUICE_OK) {
    return fail(sluice_last_error());
  }
  const StepReport report = measure_steps(*machine, s);
  print_steps(report);
  const bool failed = std::any_of(report.rows.begin(), report.rows.end(),
                                  [](const StepRow& row) { return !row.failure.empty(); });
  return write_record(s.json, to_json(report).dump(1) + "\n", failed ? kExitError : kExitDone);
}

void add_options(CLI::App* command, StepSettings* s) {
  command
      ->add_option("--grid", s->grid,
                   "marks; full: HV of 8 to 64, B of 1 to 512; kda: key-wise gates")
      ->check(CLI::IsMember({"marks", "full", "kda"}))
      ->capture_default_str();
  const CLI::Range sizes(1, 65536);
  command->add_option("--HV", s->HV, "value heads; with any of these four, in place of the grid")
      ->delimiter(',')
      ->check(sizes);
  command->add_option("--B", s->B, "sequences")->delimiter(',')->check(sizes);
  command->add_option("--T", s->T, "tokens of a sequence")
      ->delimiter(',')
      ->check(CLI::Range(1, 16));
  command->add_option("--state", s->states, "fp32, bf16, fp16")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command->add_option("--state-layout", s->layouts, "kv, vk (vLLM's and SGLang's)")
      ->delimiter(',')
      ->check(CLI::IsMember({"kv", "vk"}))
      ->capture_default_str();
  command->add_option("--H", s->H, "key heads; default HV / 2")->check(sizes);
  command->add_option("--K", s->K, "key dimension")->check(sizes)->capture_default_str();
  command->add_option("--V", s->V, "value dimension")->check(sizes)->capture_default_str();
  if (!s->layer) {
    command->add_flag("--per-token", s->per_token, "keep the state after every token");
    command->add_flag("--packed", s->packed, "packed tokens, whose offsets the GPU alone knows");
  }
  command->add_flag("--key-gates", s->key_gates, "a gate for each channel of a key (KDA)");
  command->add_option("--ring", s->ring, "entries of a replay ring; at least twice T")
      ->check(CLI::Range(2, 16));
  command->add_option("--entry", s->entry, "fp32, bf16, fp16: keys and deltas of the ring")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  add_record_options(*command, "replays of each graph", &s->repeat, &s->commit, &s->json);
}

Action add_step_command(CLI::App& bench, bool layer) {
  const std::string name = layer ? "layer" : "decode";
  CLI::App* command = bench.add_subcommand(
      name, layer ? "layer_decode on a GPU: one launch a step" : "recurrent_step on a GPU");
  auto settings = std::make_shared<StepSettings>();
  settings->layer = layer;
  add_options(command, settings.get());
  command->footer(fmt::format(
      "Inputs: random bfloat16 tokens, raw gates, beta logits, l2 norm inside; slots in random "
      "order.\nColumns and byte account: docs/kernels/decode.md. Exit status 2 if a row failed, 3 "
      "without a GPU.\nExamples:\n"
      "  sluice bench {0} --json {0}.json --commit $(git rev-parse --short HEAD)\n"
      "  sluice bench {0} --grid full --repeat 20\n"
      "  sluice bench {0} --HV 32 --B 1,2,4,8 --state fp32,bf16 --T 1{1}",
      name,
      layer ? "\n  sluice bench layer --B 32 --T 4 --ring 16\n  sluice bench layer --grid kda"
            : "\n  sluice bench decode --B 32 --T 4 --per-token\n  sluice bench decode --B 32 --T "
              "4 --ring 16\n  sluice bench decode --grid kda --state-layout kv,vk"));
  return [command, settings, name] {
    settings->command = command_text(name, *command);
    return bench_steps(*settings);
  };
}

}  // namespace

Action add_bench_decode(CLI::App& bench) { return add_step_command(bench, false); }
Action add_bench_layer(CLI::App& bench) { return add_step_command(bench, true); }

}  // namespace sluice::tools
