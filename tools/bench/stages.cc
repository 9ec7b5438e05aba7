// Implements sluice bench stages: times the stages of a prefill one by one, the chain of them plain
// and as a CUDA graph beside the fused prefill, and simple GLA, against the floors of the same run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/graph_timer.hpp"
#include "tools/bench/known.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/bench/stages_work.hpp"
#include "tools/progress.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

constexpr size_t kSweepBytes = size_t{256} << 20;  ///< several times the L2 of any GPU

struct StagesOptions {
  std::vector<int64_t> lengths = {128,  256,   512,   1024,  2048,   4096,
                                  8192, 16384, 32768, 65536, 131072, 262144};
  std::vector<int64_t> gla_lengths = {1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
  std::vector<int64_t> chunks = {64};
  std::string json, commit = "unknown";
  sluice_dtype dtype = kBFloat16;
  int repeat = 15;
};

struct StagesRow {
  StagesCell cell;
  std::string what, kernel, failure;
  double ms = kUnknown, ms_min = kUnknown, ms_p90 = kUnknown;
  double tflops = kUnknown, gb_per_s = kUnknown, floor_ms = kUnknown, share = kUnknown;
  double difference = kUnknown;        ///< of the chain's o from the fused prefill's
  double final_difference = kUnknown;  ///< and of its final states
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

void take(std::vector<double> seconds, StagesRow* row) {
  std::sort(seconds.begin(), seconds.end());
  row->ms = 1e3 * seconds[seconds.size() / 2];
  row->ms_min = 1e3 * seconds.front();
  row->ms_p90 = 1e3 * seconds[9 * seconds.size() / 10];
}

void derive(const StagesCost& cost, const Ceilings& ceilings, StagesRow* row) {
  row->tflops = 1e-9 * cost.flops / row->ms;
  row->gb_per_s = 1e-6 * cost.bytes / row->ms;
  row->floor_ms =
      1e3 * std::max(cost.flops / ceilings.flop_per_second, cost.bytes / ceilings.bytes_per_second);
  row->share = row->floor_ms / row->ms;
}

/// All rows of a cell.
class CellTimer {
 public:
  CellTimer(Machine& machine, const StagesOptions& options, const Ceilings& ceilings,
            StagesWork* work, const StagesCell& cell, std::vector<StagesRow>* rows)
      : machine_(machine),
        o_(options),
        ceilings_(ceilings),
        work_(*work),
        cell_(cell),
        rows_(*rows) {}

  void measure() {
    work_.select(cell_);
    if (cell_.chain) work_.call_chain(false);  // every stage finds what the one before it wrote
    double sum = 0;
    for (const StagesItem item : items_of(cell_)) {
      time_item(item);
      if (item <= StagesItem::kOutputs) sum += rows_.back().ms;
    }
    if (!cell_.chain) return;
    StagesRow& total = add("sum of stages");
    total.ms = sum;
    for (const bool pairs : {false, true}) {
      time_chain(pairs);
      time_graph(pairs);
    }
  }

 private:
  StagesRow& add(const std::string& what) {
    StagesRow& row = rows_.emplace_back();
    row.cell = cell_, row.what = what;
    return row;
  }

  void time_item(StagesItem item) {
    StagesRow& row = add(item_name(item));
    const auto call = [&] { work_.call(item); };
    for (int i = 0; i < kWarmUps; ++i) call();
    row.kernel = sluice_last_kernel();
    take(machine_.time_calls(call, o_.repeat, true).seconds, &row);
    derive(cost_of(cell_, item), ceilings_, &row);
  }

  void time_chain(bool pairs) {
    StagesRow& row = add(pairs ? "chain of pairs" : "chain");
    take(machine_.time_calls([&] { work_.call_chain(pairs); }, o_.repeat, true).seconds, &row);
    machine_.synchronize();
    row.difference = work_.difference();
    row.final_difference = work_.final_difference();
  }

  void time_graph(bool pairs) {
    StagesRow& row = add(pairs ? "chain of pairs, graph" : "chain, graph");
    const std::shared_ptr<void> sweep = machine_.allocate(kSweepBytes);
    const std::unique_ptr<GraphTimer> graph =
        capture_graph([&](void* stream) { work_.call_chain(pairs, stream); });
    std::vector<double> seconds;
    for (int i = 0; i < kWarmUps + o_.repeat; ++i) {
      machine_.fill(sweep.get(), i, kSweepBytes);
      machine_.synchronize();
      const double each = graph->replay();
      if (i >= kWarmUps) seconds.push_back(each);
    }
    take(seconds, &row);
  }

  Machine& machine_;
  const StagesOptions& o_;
  const Ceilings& ceilings_;
  StagesWork& work_;
  const StagesCell cell_;
  std::vector<StagesRow>& rows_;
};

void print_rows(const std::vector<StagesRow>& rows, const Ceilings& ceilings,
                const Machine& machine) {
  fmt::print("{}, sluice {}\n", machine.name(), sluice_version());
  Table table({"<shape", "H", "C", "<what", "ms", "min", "p90", "TFLOP/s", "GB/s", "floor ms",
               "of floor", "differs", "final", "<kernel"});
  for (const StagesRow& r : rows) {
    table.add({r.cell.text(), std::to_string(r.cell.HV), std::to_string(r.cell.C), r.what,
               text_of(r.ms, 4), text_of(r.ms_min, 4), text_of(r.ms_p90, 4), text_of(r.tflops, 1),
               text_of(r.gb_per_s, 0), text_of(r.floor_ms, 4), text_of(r.share, 2),
               std::isnan(r.difference) ? "-" : error_text(r.difference),
               std::isnan(r.final_difference) ? "-" : error_text(r.final_difference),
               r.failure.empty() ? r.kernel : r.failure});
  }
  table.print();
  fmt::print(
      "ms: median of a call that finds the L2 full of other data. floor: the larger of {:.0f} GB/s "
      "({})\nand {:.0f} TFLOP/s ({}).\ndiffers, final: o and final states of the chain from those "
      "of "
      "chunk_forward, relative to their norm. docs/kernels/stages.md has the account of FLOP and "
      "bytes.\n",
      1e-9 * ceilings.bytes_per_second, ceilings.bytes_source, 1e-12 * ceilings.flop_per_second,
      ceilings.flop_source);
}

nlohmann::json to_json(const std::vector<StagesRow>& rows, const StagesOptions& o,
                       const Machine& machine, const Ceilings& ceilings) {
  nlohmann::json list = nlohmann::json::array();
  for (const StagesRow& r : rows) {
    const StagesCell& c = r.cell;
    list.push_back({{"shape", c.text()},
                    {"B", c.B},
                    {"T", c.T},
                    {"packed", c.packed},
                    {"head_first", c.head_first},
                    {"H", c.H},
                    {"HV", c.HV},
                    {"K", c.K},
                    {"V", c.V},
                    {"C", c.C},
                    {"what", r.what},
                    {"ms", number_or_null(r.ms)},
                    {"ms_min", number_or_null(r.ms_min)},
                    {"ms_p90", number_or_null(r.ms_p90)},
                    {"tflop_per_s", number_or_null(r.tflops)},
                    {"gb_per_s", number_or_null(r.gb_per_s)},
                    {"floor_ms", number_or_null(r.floor_ms)},
                    {"share_of_floor", number_or_null(r.share)},
                    {"difference", number_or_null(r.difference)},
                    {"final_difference", number_or_null(r.final_difference)},
                    {"kernel", r.kernel},
                    {"failure", r.failure}});
  }
  return {
      {"schema", "sluice.bench.stages/1"},    {"date", utc_now()},
      {"sluice", sluice_version()},           {"commit", o.commit},
      {"dtype", short_dtype(o.dtype)},        {"repeat", o.repeat},
      {"machine", machine.describe()},        {"copy_bytes_per_second", ceilings.bytes_per_second},
      {"copy_source", ceilings.bytes_source}, {"flop_per_second", ceilings.flop_per_second},
      {"flop_source", ceilings.flop_source},  {"rows", list}};
}

int bench_stages(const StagesOptions& o) {
  if (const std::string reason = unavailable(Implementation::kCuda); !reason.empty()) {
    return fail_unavailable(reason);
  }
  double start_seconds = 0;
  const std::unique_ptr<Machine> machine = make_cuda_machine(&start_seconds);
  const std::vector<StagesCell> cells = cells_of(o);
  show_progress(0, cells.size(), "inputs");
  const Ceilings ceilings = machine->measure_ceilings();
  std::vector<StagesRow> rows;
  int status = kExitDone;
  try {
    StagesWork work(*machine, o.dtype, cells);
    for (size_t i = 0; i < cells.size(); ++i) {
      show_progress(i, cells.size(), cells[i].text());
      try {
        CellTimer(*machine, o, ceilings, &work, cells[i], &rows).measure();
      } catch (const std::runtime_error& error) {
        StagesRow& row = rows.emplace_back();
        row.cell = cells[i], row.failure = error.what();
        status = kExitError;
      }
    }
  } catch (const std::runtime_error& error) {
    return fail(error.what());
  }
  show_progress(1, 1, "");
  print_rows(rows, ceilings, *machine);
  return write_record(o.json, record_text(to_json(rows, o, *machine, ceilings)), status);
}

}  // namespace

Action add_bench_stages(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "stages", "the stages of a prefill, their chain beside the fused kernel, and simple GLA");
  auto o = std::make_shared<StagesOptions>();
  command->add_option("--T", o->lengths, "tokens of the chains, several separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 22));
  command->add_option("--gla-T", o->gla_lengths, "tokens of simple GLA")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 22));
  command->add_option("--chunk", o->chunks, "tokens of a chunk")
      ->delimiter(',')
      ->check(CLI::IsMember({16, 32, 64, 128}));
  add_dtype_option(*command, &o->dtype);
  command->add_option("--repeat", o->repeat, "timed calls of each row")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--commit", o->commit, "what to record as the commit measured");
  command->add_option("--json", o->json, "write everything measured");
  command->footer(
      "Example:\n"
      "  sluice bench stages --commit $(git rev-parse --short HEAD) --json stages.json\n"
      "  sluice bench stages --T 8192 --gla-T 8192 --chunk 64,128");
  return [o] { return bench_stages(*o); };
}

}  // namespace sluice::tools
