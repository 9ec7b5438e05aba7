// Implements `sluice bench backward`: times chunk_backward beside the chunk_forward that it belongs
// to, against the floors of the same run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "tools/bench/backward_work.hpp"
#include "tools/bench/bench.hpp"
#include "tools/bench/known.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/progress.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

struct BackwardOptions {
  std::vector<std::string> heads = {"16/32", "16/16"};
  std::vector<std::string> lengths = {"1024", "8192", "32768", "8192x4", "28672+4096"};
  std::string gates = "published", json, commit = "unknown";
  int64_t K = 128, V = 128;
  sluice_dtype dtype = kBFloat16;
  Implementation backend = Implementation::kCuda;
  int repeat = 15;
};

struct BackwardRow {
  Cell cell;
  std::string kernel, failure;
  double ms = kUnknown, ms_min = kUnknown, ms_p90 = kUnknown;
  double forward_ms = kUnknown, ratio = kUnknown;  ///< ratio: backward over forward
  double tflops = kUnknown, gb_per_s = kUnknown, floor_ms = kUnknown, share = kUnknown;
  size_t workspace = 0;
};

/// Throws std::runtime_error that says what is wrong with an option.
std::vector<Cell> cells_of(const BackwardOptions& o) {
  std::vector<Cell> cells;
  for (const std::string& heads : o.heads) {
    for (const std::string& lengths : o.lengths) {
      Cell& cell = cells.emplace_back();
      cell.K = o.K, cell.V = o.V;
      std::string trouble = parse_heads(heads, &cell);
      if (trouble.empty()) trouble = parse_lengths(lengths, &cell.lengths);
      if (!trouble.empty()) throw std::runtime_error(trouble);
    }
  }
  return cells;
}

void measure_row(Machine& machine, const BackwardOptions& o, const Ceilings& ceilings,
                 BackwardWork* work, BackwardRow* row) {
  work->select(row->cell);
  row->workspace = work->workspace_bytes();
  const auto times_of = [&](const std::function<void()>& call) {
    for (int i = 0; i < kWarmUps; ++i) call();
    row->kernel = sluice_last_kernel();
    std::vector<double> seconds = machine.time_calls(call, o.repeat, true).seconds;
    std::sort(seconds.begin(), seconds.end());
    return seconds;
  };
  const std::vector<double> forward = times_of([&] { work->forward(); });
  const std::vector<double> times = times_of([&] { work->backward(); });
  row->forward_ms = 1e3 * forward[forward.size() / 2];
  row->ms = 1e3 * times[times.size() / 2];
  row->ms_min = 1e3 * times.front();
  row->ms_p90 = 1e3 * times[9 * times.size() / 10];
  row->ratio = row->ms / row->forward_ms;
  const double flops = backward_flops(row->cell);
  const double bytes = backward_bytes(row->cell, o.dtype.bits / 8);
  row->tflops = 1e-9 * flops / row->ms;
  row->gb_per_s = 1e-6 * bytes / row->ms;
  row->floor_ms =
      1e3 * std::max(flops / ceilings.flop_per_second, bytes / ceilings.bytes_per_second);
  row->share = row->floor_ms / row->ms;
}

void print_rows(const std::vector<BackwardRow>& rows, const Ceilings& ceilings,
                const Machine& machine) {
  fmt::print("{}, sluice {}\n", machine.name(), sluice_version());
  Table table({"H/HV", "<lengths", "ms", "min", "p90", "forward ms", "x forward", "TFLOP/s", "GB/s",
               "floor ms", "of floor", "MB", "<kernel"});
  for (const BackwardRow& r : rows) {
    table.add({heads_text(r.cell), lengths_text(r.cell.lengths), text_of(r.ms, 3),
               text_of(r.ms_min, 3), text_of(r.ms_p90, 3), text_of(r.forward_ms, 3),
               text_of(r.ratio, 2), text_of(r.tflops, 2), text_of(r.gb_per_s, 1),
               text_of(r.floor_ms, 4), text_of(r.share, 3),
               text_of(1e-6 * static_cast<double>(r.workspace), 0),
               r.failure.empty() ? r.kernel : r.failure});
  }
  table.print();
  fmt::print(
      "ms: median of a call that finds the caches full of other data. forward: chunk_forward on "
      "the same inputs;\nx forward: how many times as long as that. floor: the larger of {:.0f} "
      "GB/s ({}) and\n{:.2f} TFLOP/s ({}) at the FLOP and bytes of ops/manifest.json. MB: "
      "workspace.\n",
      1e-9 * ceilings.bytes_per_second, ceilings.bytes_source, 1e-12 * ceilings.flop_per_second,
      ceilings.flop_source);
}

nlohmann::json to_json(const std::vector<BackwardRow>& rows, const BackwardOptions& o,
                       const Machine& machine, const Ceilings& ceilings) {
  nlohmann::json list = nlohmann::json::array();
  for (const BackwardRow& r : rows) {
    list.push_back({{"lengths", lengths_text(r.cell.lengths)},
                    {"H", r.cell.H},
                    {"HV", r.cell.HV},
                    {"K", r.cell.K},
                    {"V", r.cell.V},
                    {"ms", number_or_null(r.ms)},
                    {"ms_min", number_or_null(r.ms_min)},
                    {"ms_p90", number_or_null(r.ms_p90)},
                    {"forward_ms", number_or_null(r.forward_ms)},
                    {"times_forward", number_or_null(r.ratio)},
                    {"tflop_per_s", number_or_null(r.tflops)},
                    {"gb_per_s", number_or_null(r.gb_per_s)},
                    {"floor_ms", number_or_null(r.floor_ms)},
                    {"share_of_floor", number_or_null(r.share)},
                    {"workspace_bytes", r.workspace},
                    {"kernel", r.kernel},
                    {"failure", r.failure}});
  }
  return {{"schema", "sluice.bench.backward/1"},
          {"date", utc_now()},
          {"sluice", sluice_version()},
          {"commit", o.commit},
          {"backend", backend_name(o.backend)},
          {"dtype", short_dtype(o.dtype)},
          {"gates", o.gates},
          {"repeat", o.repeat},
          {"machine", machine.describe()},
          {"copy_bytes_per_second", ceilings.bytes_per_second},
          {"copy_source", ceilings.bytes_source},
          {"flop_per_second", ceilings.flop_per_second},
          {"flop_source", ceilings.flop_source},
          {"rows", list}};
}

/// All rows; a row that fails says why and turns *status.
std::vector<BackwardRow> measure(Machine& machine, const BackwardOptions& o,
                                 const Ceilings& ceilings, int* status) {
  const std::vector<Cell> cells = cells_of(o);
  show_progress(0, cells.size(), "inputs");
  BackwardWork work(machine, PrefillInputs(cells, o.dtype, o.gates), cells, o.backend);
  std::vector<BackwardRow> rows;
  for (size_t i = 0; i < cells.size(); ++i) {
    BackwardRow& row = rows.emplace_back();
    row.cell = cells[i];
    show_progress(i, cells.size(), heads_text(cells[i]) + " " + lengths_text(cells[i].lengths));
    try {
      measure_row(machine, o, ceilings, &work, &row);
    } catch (const std::runtime_error& error) {
      row.failure = error.what();
      *status = kExitError;
    }
  }
  show_progress(1, 1, "");
  return rows;
}

int bench_backward(const BackwardOptions& o) {
  if (const std::string reason = unavailable(o.backend); !reason.empty()) {
    return fail_unavailable(reason);
  }
  try {
    cells_of(o);
    double start_seconds = 0;
    const std::unique_ptr<Machine> machine = o.backend == Implementation::kCuda
                                                 ? make_cuda_machine(&start_seconds)
                                                 : make_host_machine();
    const Ceilings ceilings = machine->measure_ceilings();
    int status = kExitDone;
    const std::vector<BackwardRow> rows = measure(*machine, o, ceilings, &status);
    print_rows(rows, ceilings, *machine);
    return write_record(o.json, record_text(to_json(rows, o, *machine, ceilings)), status);
  } catch (const std::runtime_error& error) {
    return fail(error.what());
  }
}

}  // namespace

Action add_bench_backward(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "backward", "gradients of the chunked prefill beside the prefill itself");
  auto o = std::make_shared<BackwardOptions>();
  command->add_option("--heads", o->heads, "H/HV, several separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--lengths", o->lengths,
                   "tokens of the sequences, e.g. 8192x4 or 28672+4096 (packed), several separated "
                   "by commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--gates", o->gates, "how gates decay")
      ->check(CLI::IsMember(gate_names()))
      ->capture_default_str();
  command->add_option("--K", o->K, "columns of a key")->check(CLI::Range(1, 512));
  command->add_option("--V", o->V, "columns of a value")->check(CLI::Range(1, 512));
  add_dtype_option(*command, &o->dtype);
  add_device_option(*command, &o->backend);
  command->add_option("--repeat", o->repeat, "timed calls of each row")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--commit", o->commit, "what to record as the commit measured");
  command->add_option("--json", o->json, "write everything measured");
  command->footer(
      "Example:\n"
      "  sluice bench backward --commit $(git rev-parse --short HEAD) --json backward.json\n"
      "  sluice bench backward --backend cpu --heads 4/8 --lengths 512,100x2+5 --dtype fp32");
  return [o] { return bench_backward(*o); };
}

}  // namespace sluice::tools
