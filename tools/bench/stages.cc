// Implements sluice bench stages: times the stages of a prefill one by one, the chain of them plain
// and as a CUDA graph beside the one-launch prefill, and simple GLA, against the floors of the same run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/rows.hpp"
#include "tools/bench/stages_work.hpp"

namespace sluice::tools {
namespace {

constexpr size_t kSweepBytes = size_t{256} << 20;  ///< several times the L2 of any GPU

struct StagesOptions {
  RunOptions run;
  std::vector<int64_t> lengths = {128,  256,   512,   1024,  2048,   4096,
                                  8192, 16384, 32768, 65536, 131072, 262144};
  std::vector<int64_t> gla_lengths = {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
  std::vector<int64_t> chunks = {64};
};

std::vector<StagesCell> cells_of(const StagesOptions& o) {
  std::vector<StagesCell> cells;
  const auto add = [&](bool chain, int64_t B, int64_t T, int64_t H) -> StagesCell& {
    StagesCell& cell = cells.emplace_back();
    cell.chain = chain, cell.B = B, cell.T = T, cell.H = cell.HV = H;
    return cell;
  };
  for (const int64_t C : o.chunks) {
    const size_t first = cells.size();
    for (const int64_t T : o.lengths) add(true, 1, T, 16);
    if (!o.lengths.empty()) {
      add(true, 16, 16384, 16).packed = true;
      add(true, 1, 8192, 16).head_first = true;
    }
    if (!o.gla_lengths.empty()) {
      add(false, 24, 6144, 20);
      add(false, 24, 6144, 20).head_first = true;
    }
    for (const int64_t T : o.gla_lengths) add(false, 1, T, 16);
    for (size_t i = first; i < cells.size(); ++i) cells[i].C = C;
  }
  return cells;
}

std::string stages_name(const StagesCell& cell) { return cell.text(); }

nlohmann::json stages_json(const StagesCell& c) {
  return {{"shape", c.text()},
          {"B", c.B},
          {"T", c.T},
          {"packed", c.packed},
          {"head_first", c.head_first},
          {"H", c.H},
          {"HV", c.HV},
          {"K", c.K},
          {"V", c.V},
          {"C", c.C}};
}

/// All rows of a cell.
struct CellTimer {
  Machine& machine;
  const int repeat;
  const Ceilings& ceilings;
  StagesWork& work;
  std::vector<nlohmann::json>& rows;

  void measure(const StagesCell& cell) {
    work.select(cell);
    if (cell.chain) work.call_chain(false);  // every stage finds what the one before it wrote
    double sum = 0;
    for (const StagesItem item : items_of(cell)) {
      const double ms = time_item(cell, item);
      if (item <= StagesItem::kOutputs) sum += ms;
    }
    if (!cell.chain) return;
    add(cell, "sum of stages")["ms"] = sum;
    for (const bool pairs : {false, true}) {
      time_chain(cell, pairs);
      time_graph(cell, pairs);
    }
  }

  nlohmann::json& add(const StagesCell& cell, const std::string& what) {
    nlohmann::json& row = rows.emplace_back(stages_json(cell));
    row["what"] = what;
    return row;
  }

  static double take(std::vector<double> seconds, nlohmann::json* row) {
    const Quantiles ms(std::move(seconds), 1e3);
    row->update({{"ms", ms.median}, {"ms_min", ms.least}, {"ms_p90", ms.p90}});
    return ms.median;
  }

  double time_item(const StagesCell& cell, StagesItem item) {
    nlohmann::json& row = add(cell, item_name(item));
    const auto call = [&] { work.call(item); };
    for (int i = 0; i < kWarmUps; ++i) call();
    row["kernel"] = sluice_last_kernel();
    const double ms = take(machine.time_calls(call, repeat, true).seconds, &row);
    const StagesCost cost = cost_of(cell, item);
    add_rates(ms, cost.flops, cost.bytes, ceilings, &row);
    return ms;
  }

  void time_chain(const StagesCell& cell, bool pairs) {
    nlohmann::json& row = add(cell, pairs ? "chain of pairs" : "chain");
    take(machine.time_calls([&] { work.call_chain(pairs); }, repeat, true).seconds, &row);
    machine.synchronize();
    row["difference"] = work.difference();
    row["final_difference"] = work.final_difference();
  }

  void time_graph(const StagesCell& cell, bool pairs) {
    nlohmann::json& row = add(cell, pairs ? "chain of pairs, graph" : "chain, graph");
    const std::shared_ptr<void> sweep = machine.allocate(kSweepBytes);
    const std::unique_ptr<GraphTimer> graph =
        capture_graph([&](void* stream) { work.call_chain(pairs, stream); });
    std::vector<double> seconds;
    for (int i = 0; i < kWarmUps + repeat; ++i) {
      machine.fill(sweep.get(), i, kSweepBytes);
      machine.synchronize();
      const double each = graph->replay();
      if (i >= kWarmUps) seconds.push_back(each);
    }
    take(seconds, &row);
  }
};

int bench_stages(const StagesOptions& o) {
  Benchmark stages;
  stages.schema = "sluice.bench.stages/1";
  stages.columns = {word("<shape", "shape"),
                    number("H", "HV", 0),
                    number("C", "C", 0),
                    word("<what", "what"),
                    number("ms", "ms", 4),
                    number("min", "ms_min", 4),
                    number("p90", "ms_p90", 4),
                    number("TFLOP/s", "tflop_per_s", 1),
                    number("GB/s", "gb_per_s", 0),
                    number("floor ms", "floor_ms", 4),
                    number("of floor", "share_of_floor", 2),
                    error("differs", "difference"),
                    error("final", "final_difference"),
                    kernel()};
  stages.measure = [&](Machine& machine, const Ceilings& ceilings) {
    const std::vector<StagesCell> cells = cells_of(o);
    show_progress(0, cells.size(), "inputs");
    StagesWork work(machine, o.run.dtype, cells);
    return measure_cells(cells, stages_name, stages_json, [&](const StagesCell& cell, auto* out) {
      CellTimer{machine, o.run.repeat, ceilings, work, *out}.measure(cell);
    });
  };
  stages.legend = [](const Ceilings& ceilings) {
    return fmt::format(
        "ms: median of a call that finds the L2 full of other data. floor: the larger of {:.0f} "
        "GB/s ({})\nand {:.0f} TFLOP/s ({}).\ndiffers, final: o and final states of the chain "
        "from those of chunk_forward, relative to their norm. docs/kernels/stages.md has the "
        "account of FLOP and bytes.\n",
        1e-9 * ceilings.bytes_per_second, ceilings.bytes_source, 1e-12 * ceilings.flop_per_second,
        ceilings.flop_source);
  };
  return bench_rows(o.run, stages);
}

}  // namespace

Action add_bench_stages(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "stages",
      "the stages of a prefill, their chain beside the one-launch prefill, and simple GLA");
  auto o = std::make_shared<StagesOptions>();
  const CLI::Range tokens(int64_t{1}, int64_t{1} << 22);
  add_list(*command, "--T", &o->lengths, "tokens of the chains, several separated by commas")
      ->check(tokens);
  add_list(*command, "--gla-T", &o->gla_lengths, "tokens of simple GLA")->check(tokens);
  add_list(*command, "--chunk", &o->chunks, "tokens of a chunk")
      ->check(CLI::IsMember({16, 32, 64, 128}));
  add_run_options(*command, &o->run);
  command->footer(
      "Example:\n"
      "  sluice bench stages --commit $(git rev-parse --short HEAD) --json stages.json\n"
      "  sluice bench stages --T 8192 --gla-T 8192 --chunk 64,128");
  return [o] { return bench_stages(*o); };
}

}  // namespace sluice::tools
