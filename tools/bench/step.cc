// Implements sluice bench decode and sluice bench layer: time steps of the delta rule and of whole
// layers on a GPU, in graphs, on cold states, beside a copy of the same run and what peers take.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "check/array.hpp"
#include "tools/bench/bench.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/rows.hpp"
#include "tools/bench/step_report.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {
namespace {

// Several times the L2 of any GPU.
constexpr int64_t kColdBytes = int64_t{1} << 30;
constexpr int64_t kFewestLaunches = 8, kMostLaunches = 256;

int64_t launches_of(const StepCell& c) {
  const int64_t bytes = c.B * c.state_bytes() * (c.per_token ? c.T : 1);
  return std::clamp((kColdBytes + bytes - 1) / bytes, kFewestLaunches, kMostLaunches);
}

/// The calls of a step: tensors on a machine, and a pool large enough that every launch of a round
/// finds its states cold.
class StepProblem {
 public:
  StepProblem(Machine& machine, const StepCell& cell)
      : memory_(machine), cell_(cell), launches_(launches_of(cell)) {
    slots_ = launches_ * cell.B * (cell.per_token ? cell.T : 1);
    make_slots();
    if (cell.layer) {
      make_layer();
    } else {
      make_step();
    }
  }

  /// Launches of a round: each has B slots (times T with per_token) of its own.
  int64_t launches() const { return launches_; }

  /// Call `launch` of a round, enqueued; throws std::runtime_error if it is refused.
  void call(int64_t launch, void* stream) {
    const TensorView slots = slot_table_.sliced(0, launch * cell_.B, cell_.B);
    Status status;
    if (cell_.layer) {
      layer_.state.read_slots = slots;
      take_cursors(launch, &layer_.ring);
      status = layer_decode(layer_, scratch_.get(), stream);
    } else {
      step_.state.read_slots = slots;
      if (cell_.per_token) step_.state.write_slots = slots;
      take_cursors(launch, &step_.ring);
      status = recurrent_step(step_, {}, stream);
    }
    require(status);
  }

  /// Whether the library has a kernel for it, and its name.
  Status supported(std::string* kernel) const {
    RecurrentStepArgs step = step_;
    step.state.read_slots = slot_table_.sliced(0, 0, cell_.B);
    if (cell_.per_token) step.state.write_slots = step.state.read_slots;
    const Result<KernelChoice> choice = cell_.layer
                                            ? sluice::supported(SLUICE_OP_LAYER_DECODE, layer_)
                                            : sluice::supported(SLUICE_OP_RECURRENT_STEP, step);
    if (choice.ok()) *kernel = choice.value.name;
    return choice.status;
  }

  /// Empty, or what is wrong with the output of the last call, after synchronize().
  std::string trouble() const {
    const TensorView& out = cell_.layer ? layer_.out : step_.o;
    std::vector<std::byte> bytes(static_cast<size_t>(cell_.B * cell_.T * cell_.HV * cell_.V * 2));
    memory_.machine().download_rows(bytes.data(), out.data, bytes.size(), bytes.size(), 1);
    sluice_tensor view{};
    view.data = bytes.data();
    view.dtype = check::kBF16;
    bool any = false;
    for (int64_t i = 0; i < static_cast<int64_t>(bytes.size() / 2); ++i) {
      const double x = check::load_element(view, i);
      if (!std::isfinite(x)) return "the output is not a number somewhere";
      any = any || x != 0;
    }
    return any ? "" : "the output is zero everywhere";
  }

 private:
  /// Slots in random order, as an allocator's are after a while.
  void make_slots() {
    std::vector<int32_t> slots(static_cast<size_t>(slots_));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), std::mt19937(7));
    const int64_t columns = cell_.per_token ? cell_.T : 1, rows = launches_ * cell_.B;
    slot_table_ = memory_.tensor(kInt32, {rows, columns}, 0);
    upload_list(memory_.machine(), slot_table_.data, slots);
    if (!cell_.per_token) {
      slot_table_.rank = 1;
      return;
    }
    accepted_ = memory_.list(std::vector<int32_t>(static_cast<size_t>(cell_.B), 1));
  }

  TensorView states() {
    const StepCell& c = cell_;
    const int64_t rows = c.vk ? c.V : c.K, columns = c.vk ? c.K : c.V;
    return memory_.tensor(dtype_named(c.state), {slots_, c.HV, rows, columns}, 0.1);
  }

  void make_step() {
    const StepCell& c = cell_;
    const DType io = kBFloat16;
    const int64_t B = c.packed ? 1 : c.B, T = c.packed ? c.B * c.T : c.T;
    step_.q = memory_.tensor(io, {B, T, c.H, c.K});
    step_.k = memory_.tensor(io, {B, T, c.H, c.K});
    step_.v = memory_.tensor(io, {B, T, c.HV, c.V});
    step_.o = memory_.tensor(io, {B, T, c.HV, c.V}, 0.0);
    step_.gate =
        c.key_gates ? memory_.tensor(io, {B, T, c.HV, c.K}) : memory_.tensor(io, {B, T, c.HV});
    step_.beta = memory_.tensor(io, {B, T, c.HV});
    if (c.packed) {
      step_.cu_seqlens = memory_.list(even_offsets(c.B, c.T));
      step_.max_tokens = c.T;
    }
    step_.A_log = memory_.tensor(kFloat32, {c.HV});
    step_.dt_bias =
        c.key_gates ? memory_.tensor(kFloat32, {c.HV, c.K}) : memory_.tensor(kFloat32, {c.HV});
    step_.state.initial = states();
    step_.state.layout = c.vk ? StateLayout::kVK : StateLayout::kKV;
    step_.gate_space = GateSpace::kRaw;
    step_.beta_space = BetaSpace::kLogit;
    step_.qk_norm = QkNorm::kL2;
    step_.implementation = Implementation::kCuda;
    if (c.per_token) {
      step_.state_writes = StateWrites::kPerToken;
      step_.num_accepted = accepted_;
    }
    if (c.ring > 0) make_ring(&step_.ring);
  }

  /// Cursors of sequences that are anywhere in their rings, the same ones in every replay.
  void make_ring(ReplayRing* ring) {
    const StepCell& c = cell_;
    const int64_t rows = launches_ * c.B;
    ring->k = memory_.tensor(dtype_named(c.entry), {slots_, c.ring, c.H, c.K}, 0.1);
    ring->delta = memory_.tensor(dtype_named(c.entry), {slots_, c.ring, c.HV, c.V}, 0.1);
    ring->decay = memory_.tensor(kFloat32, {slots_, c.ring, c.HV}, 0);
    upload_list(memory_.machine(), ring->decay.data,
                std::vector<float>(static_cast<size_t>(slots_ * c.ring * c.HV), 0.95f));
    const std::vector<int64_t> samples = ring_samples(c, rows);
    std::vector<int32_t> positions, checkpoints;
    for (int64_t row = 0; row < rows; ++row) {
      positions.push_back(static_cast<int32_t>(1000 + row));
      checkpoints.push_back(positions.back() -
                            static_cast<int32_t>(samples[static_cast<size_t>(row)]));
    }
    position_ = memory_.list(positions);
    checkpoint_ = memory_.list(checkpoints);
    ring->next_checkpoint = memory_.tensor(kInt32, {c.B}, 0);
    take_cursors(0, ring);
  }

  void take_cursors(int64_t launch, ReplayRing* ring) const {
    if (cell_.ring == 0) return;
    ring->position = position_.sliced(0, launch * cell_.B, cell_.B);
    ring->checkpoint = checkpoint_.sliced(0, launch * cell_.B, cell_.B);
  }

  void make_layer() {
    const StepCell& c = cell_;
    const DType io = kBFloat16;
    const int64_t D = c.conv_channels();
    layer_.qkv = memory_.tensor(io, {c.B, c.T, D});
    layer_.z = memory_.tensor(io, {c.B, c.T, c.HV * c.V});
    layer_.b = memory_.tensor(io, {c.B, c.T, c.HV});
    layer_.a = c.key_gates ? memory_.tensor(io, {c.B, c.T, c.HV, c.K})
                           : memory_.tensor(io, {c.B, c.T, c.HV});
    layer_.conv_weight = memory_.tensor(io, {D, kConvWidth}, 0.5);
    layer_.A_log = memory_.tensor(kFloat32, {c.HV});
    layer_.dt_bias =
        c.key_gates ? memory_.tensor(kFloat32, {c.HV, c.K}) : memory_.tensor(kFloat32, {c.HV});
    if (c.key_gates) layer_.gate_activation = Activation::kSigmoid;
    layer_.norm_weight = memory_.tensor(io, {c.V});
    layer_.out = memory_.tensor(io, {c.B, c.T, c.HV, c.V}, 0.0);
    layer_.conv_initial = memory_.tensor(io, {slots_, D, c.conv_columns()});
    layer_.state.initial = states();
    layer_.state.layout = c.vk ? StateLayout::kVK : StateLayout::kKV;
    layer_.num_k_heads = c.H, layer_.num_v_heads = c.HV;
    layer_.head_k_dim = c.K, layer_.head_v_dim = c.V;
    layer_.implementation = Implementation::kCuda;
    layer_.state.read_slots = slot_table_.sliced(0, 0, c.B);
    if (c.ring > 0) make_ring(&layer_.ring);
    if (c.drafts()) {
      layer_.num_accepted = memory_.list(std::vector<int32_t>(static_cast<size_t>(c.B), 2));
    }
    const Result<WorkspaceSize> size = layer_decode_workspace(layer_);
    if (size.ok() && size.value.bytes > 0) scratch_.reserve(memory_.machine(), size);
  }

  WorkMemory memory_;
  StepCell cell_;
  int64_t launches_ = 1, slots_ = 0;
  WorkScratch scratch_;
  TensorView slot_table_{};  ///< [launches * B] or [launches * B, T]
  TensorView accepted_{};
  TensorView position_{}, checkpoint_{};  ///< [launches * B]
  RecurrentStepArgs step_;
  LayerArgs layer_;
};

constexpr int kReplayWarmUps = 3, kStepHostCalls = 101;

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
  for (int i = 0; i < s.run.repeat; ++i) seconds.push_back(graph->replay());
  const Quantiles us(std::move(seconds), 1e6 / static_cast<double>(problem.launches()));
  row->us = us.median, row->us_min = us.least, row->us_p90 = us.p90;
  row->host_us = host_microseconds(machine, kStepHostCalls,
                                   [&](int i) { problem.call(i % problem.launches(), nullptr); });
  row->failure = problem.trouble();
  row->floor_us = 1e6 * row->bytes / bytes_per_second;
}

}  // namespace

StepReport measure_steps(Machine& machine, const StepSettings& s) {
  StepReport report{s, utc_now(), sluice_version(), machine.describe(), machine.measure_ceilings(),
                    {}};
  const std::vector<StepCell> cells = step_cells(s);
  for (size_t i = 0; i < cells.size(); ++i) {
    StepRow& row = report.rows.emplace_back();
    row.cell = cells[i];
    row.bytes = step_bytes(cells[i]);
    row.peers = step_peers_of(cells[i]);
    show_progress(i, cells.size(),
                  fmt::format("HV {} B {} {}", row.cell.HV, row.cell.B, row.cell.state));
    try {
      time_row(machine, s, report.ceilings.bytes_per_second, &row);
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
  return write_record(s.run.json, to_json(report).dump(1) + "\n", failed ? kExitError : kExitDone);
}

void add_options(CLI::App* command, StepSettings* s) {
  add_checked(*command, "--grid", &s->grid,
              "marks; full: HV of 8 to 64, B of 1 to 512; kda: key-wise gates",
              CLI::IsMember({"marks", "full", "kda"}));
  const CLI::Range sizes(1, 65536);
  add_list(*command, "--HV", &s->HV, "value heads; with any of these four, in place of the grid")
      ->check(sizes);
  add_list(*command, "--B", &s->B, "sequences")->check(sizes);
  add_list(*command, "--T", &s->T, "tokens of a sequence")->check(CLI::Range(1, 16));
  add_list(*command, "--state", &s->states, "fp32, bf16, fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  add_list(*command, "--state-layout", &s->layouts, "kv, vk (vLLM's and SGLang's)")
      ->check(CLI::IsMember({"kv", "vk"}))
      ->capture_default_str();
  command->add_option("--H", s->cell.H, "key heads; default HV / 2")->check(sizes);
  add_checked(*command, "--K", &s->cell.K, "key dimension", sizes);
  add_checked(*command, "--V", &s->cell.V, "value dimension", sizes);
  if (!s->cell.layer) {
    command->add_flag("--per-token", s->cell.per_token, "keep the state after every token");
    command->add_flag("--packed", s->cell.packed,
                      "packed tokens, whose offsets the GPU alone knows");
  }
  command->add_flag("--key-gates", s->cell.key_gates, "a gate for each channel of a key (KDA)");
  command->add_option("--ring", s->cell.ring, "entries of a replay ring; at least twice T")
      ->check(CLI::Range(2, 16));
  add_checked(*command, "--entry", &s->cell.entry, "fp32, bf16, fp16: keys and deltas of the ring",
              CLI::IsMember({"fp32", "bf16", "fp16"}));
  add_record_options(*command, "replays of each graph", &s->run);
}

Action add_step_command(CLI::App& bench, bool layer) {
  const std::string name = layer ? "layer" : "decode";
  CLI::App* command = bench.add_subcommand(
      name, layer ? "layer_decode on a GPU: one launch a step" : "recurrent_step on a GPU");
  auto settings = std::make_shared<StepSettings>();
  settings->cell.layer = layer;
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
