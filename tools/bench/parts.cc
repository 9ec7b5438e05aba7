// Implements `sluice bench parts`: times the operators around the delta rule, and whole layers
// beside their delta rule alone, against the copy bandwidth of the same run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/known.hpp"
#include "tools/bench/parts_work.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/call.hpp"
#include "tools/progress.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

struct PartsOptions {
  std::vector<std::string> ops = {"conv", "update", "norm", "layer"}, heads = {"16/32", "16/64"};
  std::string json, commit = "unknown";
  sluice_dtype dtype = kBFloat16;
  Implementation backend = Implementation::kCuda;
  int repeat = 30;
  int64_t tokens = 0;  ///< of a call at most; 0: the whole grid
};

struct PartsRow {
  PartsCell cell;
  std::string kernel, failure;
  double us = kUnknown, us_min = kUnknown, us_p90 = kUnknown, host_us = kUnknown;
  double gb_per_s = kUnknown, share = kUnknown;          ///< of the copy bandwidth
  double around_us = kUnknown, around_share = kUnknown;  ///< layers: less their delta rule's time
};

double host_microseconds(Machine& machine, PartsWork* work) {
  std::vector<double> seconds;
  machine.synchronize();
  for (int i = 0; i < kHostCalls; ++i) {
    const Stopwatch watch;
    work->call();
    seconds.push_back(watch.seconds());
  }
  machine.synchronize();
  std::sort(seconds.begin(), seconds.end());
  return 1e6 * seconds[seconds.size() / 2];
}

void measure_row(Machine& machine, const PartsOptions& o, double copy_bandwidth, PartsRow* row) {
  PartsWork work(machine, row->cell, DType{o.dtype}, o.backend);
  for (int i = 0; i < kWarmUps; ++i) work.call_all();
  row->kernel = sluice_last_kernel();
  machine.synchronize();
  std::vector<double> times = machine.time_calls([&] { work.call_all(); }, o.repeat, false).seconds;
  std::sort(times.begin(), times.end());
  const double each = 1e6 / work.copies();
  row->us = each * times[times.size() / 2];
  row->us_min = each * times.front();
  row->us_p90 = each * times[9 * times.size() / 10];
  if (machine.device().type != SLUICE_DEVICE_CPU) row->host_us = host_microseconds(machine, &work);
  const double bytes = parts_bytes(row->cell, o.dtype.bits / 8);
  row->gb_per_s = 1e-3 * bytes / row->us;
  row->share = 1e9 * row->gb_per_s / copy_bandwidth;
}

/// A layer's time less that of its delta rule, which is the row after it.
void compare_layers(const PartsOptions& o, double copy_bandwidth, std::vector<PartsRow>* rows) {
  for (size_t i = 0; i + 1 < rows->size(); ++i) {
    PartsRow& row = (*rows)[i];
    if (row.cell.op != "layer") continue;
    row.around_us = row.us - (*rows)[i + 1].us;
    const double bytes = bytes_around(row.cell, o.dtype.bits / 8);
    row.around_share = 1e6 * bytes / row.around_us / copy_bandwidth;
  }
}

void print_rows(const std::vector<PartsRow>& rows, const Ceilings& ceilings,
                const Machine& machine) {
  fmt::print("{}, sluice {}\n", machine.name(), sluice_version());
  Table table({"<op", "<shape", "H/HV", "N", "T", "us", "min", "p90", "GB/s", "of copy", "host us",
               "around us", "of copy", "<kernel"});
  for (const PartsRow& r : rows) {
    const PartsCell& c = r.cell;
    table.add({c.op, c.shape, fmt::format("{}/{}", c.H, c.HV), std::to_string(c.N),
               std::to_string(c.T), text_of(r.us, 2), text_of(r.us_min, 2), text_of(r.us_p90, 2),
               text_of(r.gb_per_s, 0), text_of(r.share, 2), text_of(r.host_us, 1),
               text_of(r.around_us, 1), text_of(r.around_share, 2),
               r.failure.empty() ? r.kernel : r.failure});
  }
  table.print();
  fmt::print(
      "us: median of a call; calls follow each other on memories that have left the cache since, "
      "so "
      "short ones include\nthe gap between two launches. of copy: of {:.0f} GB/s ({}). around: a "
      "layer less its delta rule alone (the\nnext row), and what its bytes would be of the copy "
      "bandwidth. docs/kernels/layer.md has the byte account.\n",
      1e-9 * ceilings.bytes_per_second, ceilings.bytes_source);
}

nlohmann::json to_json(const std::vector<PartsRow>& rows, const PartsOptions& o,
                       const Machine& machine, const Ceilings& ceilings) {
  nlohmann::json list = nlohmann::json::array();
  for (const PartsRow& r : rows) {
    const PartsCell& c = r.cell;
    list.push_back({{"op", c.op},
                    {"shape", c.shape},
                    {"H", c.H},
                    {"HV", c.HV},
                    {"K", c.K},
                    {"V", c.V},
                    {"N", c.N},
                    {"T", c.T},
                    {"us", number_or_null(r.us)},
                    {"us_min", number_or_null(r.us_min)},
                    {"us_p90", number_or_null(r.us_p90)},
                    {"host_us", number_or_null(r.host_us)},
                    {"gb_per_s", number_or_null(r.gb_per_s)},
                    {"share_of_copy", number_or_null(r.share)},
                    {"around_us", number_or_null(r.around_us)},
                    {"around_share_of_copy", number_or_null(r.around_share)},
                    {"kernel", r.kernel},
                    {"failure", r.failure}});
  }
  return {{"schema", "sluice.bench.parts/1"},
          {"date", utc_now()},
          {"sluice", sluice_version()},
          {"commit", o.commit},
          {"backend", backend_name(o.backend)},
          {"dtype", short_dtype(o.dtype)},
          {"repeat", o.repeat},
          {"machine", machine.describe()},
          {"copy_bytes_per_second", ceilings.bytes_per_second},
          {"copy_source", ceilings.bytes_source},
          {"rows", list}};
}

int bench_parts(const PartsOptions& o) {
  if (const std::string reason = unavailable(o.backend); !reason.empty()) {
    return fail_unavailable(reason);
  }
  double start_seconds = 0;
  const std::unique_ptr<Machine> machine =
      o.backend == Implementation::kCuda ? make_cuda_machine(&start_seconds) : make_host_machine();
  std::vector<PartsRow> rows;
  try {
    for (const PartsCell& cell : parts_cells(o.ops, o.heads)) {
      if (o.tokens == 0 || cell.N * cell.T <= o.tokens) rows.emplace_back().cell = cell;
    }
  } catch (const std::runtime_error& error) {
    return fail(error.what());
  }
  const Ceilings ceilings = machine->measure_ceilings();
  int status = kExitDone;
  for (size_t i = 0; i < rows.size(); ++i) {
    show_progress(i, rows.size(), rows[i].cell.op + " " + rows[i].cell.shape);
    try {
      measure_row(*machine, o, ceilings.bytes_per_second, &rows[i]);
    } catch (const std::runtime_error& error) {
      rows[i].failure = error.what();
      status = kExitError;
    }
  }
  show_progress(1, 1, "");
  compare_layers(o, ceilings.bytes_per_second, &rows);
  print_rows(rows, ceilings, *machine);
  return write_record(o.json, record_text(to_json(rows, o, *machine, ceilings)), status);
}

}  // namespace

Action add_bench_parts(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "parts", "convolution, its update, gated norm, and whole layers beside their delta rule");
  auto o = std::make_shared<PartsOptions>();
  command->add_option("--op", o->ops, "conv, update, norm, layer")
      ->delimiter(',')
      ->check(CLI::IsMember({"conv", "update", "norm", "layer"}));
  command->add_option("--heads", o->heads, "H/HV, several separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--most-tokens", o->tokens, "leave out calls of more tokens than this")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  add_dtype_option(*command, &o->dtype);
  add_device_option(*command, &o->backend);
  command->add_option("--repeat", o->repeat, "timed rounds of each row")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--commit", o->commit, "what to record as the commit measured");
  command->add_option("--json", o->json, "write everything measured");
  command->footer(
      "Example:\n"
      "  sluice bench parts --commit $(git rev-parse --short HEAD) --json parts.json\n"
      "  sluice bench parts --op conv,norm --heads 16/32 --dtype fp16");
  return [o] { return bench_parts(*o); };
}

}  // namespace sluice::tools
