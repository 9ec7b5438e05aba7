// Implements `sluice bench parts`: times the operators around the delta rule, and whole layers
// beside their delta rule alone, against the copy bandwidth of the same run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/parts_work.hpp"
#include "tools/bench/rows.hpp"

namespace sluice::tools {
namespace {

struct PartsOptions {
  RunOptions run;
  std::vector<std::string> ops = {"conv", "update", "norm", "layer"}, heads = {"16/32", "16/64"};
  int64_t tokens = 0;  ///< of a call at most; 0: the whole grid
};

std::string parts_name(const PartsCell& cell) { return cell.op + " " + cell.shape; }

nlohmann::json parts_json(const PartsCell& c) {
  nlohmann::json row = {{"op", c.op}, {"shape", c.shape}, {"H", c.H}, {"HV", c.HV},
                        {"K", c.K},   {"V", c.V},         {"N", c.N}, {"T", c.T}};
  for (const char* name : {"us", "us_min", "us_p90", "gb_per_s", "share_of_copy", "host_us",
                           "around_us", "around_share_of_copy"}) {
    row[name] = nullptr;  // until it is measured
  }
  return row;
}

nlohmann::json measure_row(Machine& machine, const PartsOptions& o, double copy_bandwidth,
                           const PartsCell& cell) {
  PartsWork work(machine, cell, DType{o.run.dtype}, o.run.backend);
  nlohmann::json row = parts_json(cell);
  for (int i = 0; i < kWarmUps; ++i) work.call_all();
  row["kernel"] = sluice_last_kernel();
  machine.synchronize();
  const CallTimes times =
      machine.time_calls([&] { work.call_all(); }, o.run.repeat, /*cold=*/false);
  const Quantiles us(times.seconds, 1e6 / work.copies());
  const double bytes = parts_bytes(cell, o.run.dtype.bits / 8);
  row.update({{"us", us.median},
              {"us_min", us.least},
              {"us_p90", us.p90},
              {"gb_per_s", 1e-3 * bytes / us.median},
              {"share_of_copy", 1e6 * bytes / us.median / copy_bandwidth}});
  if (machine.device().type != SLUICE_DEVICE_CPU) {
    row["host_us"] = host_microseconds(machine, kHostCalls, [&](int) { work.call(); });
  }
  return row;
}

/// A layer's time less that of its delta rule, which is the row after it.
void compare_layers(const PartsOptions& o, double copy_bandwidth,
                    const std::vector<PartsCell>& cells, std::vector<nlohmann::json>* rows) {
  for (size_t i = 0; i + 1 < rows->size(); ++i) {
    nlohmann::json& row = (*rows)[i];
    const nlohmann::json& next = (*rows)[i + 1];
    if (cells[i].op != "layer" || row["us"].is_null() || next.at("us").is_null()) continue;
    const double around = row["us"].get<double>() - next.at("us").get<double>();
    const double bytes = bytes_around(cells[i], o.run.dtype.bits / 8);
    row["around_us"] = around;
    row["around_share_of_copy"] = 1e6 * bytes / around / copy_bandwidth;
  }
}

void print_parts(const std::vector<nlohmann::json>& rows, const Ceilings& ceilings,
                 const Machine& machine) {
  print_rows(
      machine,
      {word("<op", "op"), word("<shape", "shape"), heads(), number("N", "N", 0),
       number("T", "T", 0), number("us", "us", 2), number("min", "us_min", 2),
       number("p90", "us_p90", 2), number("GB/s", "gb_per_s", 0),
       number("of copy", "share_of_copy", 2), number("host us", "host_us", 1),
       number("around us", "around_us", 1), number("of copy", "around_share_of_copy", 2), kernel()},
      rows);
  fmt::print(
      "us: median of a call; calls follow each other on memories that have left the cache since, "
      "so "
      "short ones include\nthe gap between two launches. of copy: of {:.0f} GB/s ({}). around: a "
      "layer less its delta rule alone (the\nnext row), and what its bytes would be of the copy "
      "bandwidth. docs/kernels/layer.md has the byte account.\n",
      1e-9 * ceilings.bytes_per_second, ceilings.bytes_source);
}

int bench_parts(const PartsOptions& o) {
  const auto measure = [&](Machine& machine, const Ceilings& ceilings, bool* failed) {
    std::vector<PartsCell> cells = parts_cells(o.ops, o.heads);
    std::erase_if(cells, [&](const PartsCell& c) { return o.tokens > 0 && c.N * c.T > o.tokens; });
    const double copy_bandwidth = ceilings.bytes_per_second;
    auto rows = measure_cells(
        cells, parts_name, parts_json,
        [&](const PartsCell& cell, auto* out) {
          out->push_back(measure_row(machine, o, copy_bandwidth, cell));
        },
        failed);
    compare_layers(o, copy_bandwidth, cells, &rows);
    return rows;
  };
  return bench_rows(o.run, "sluice.bench.parts/1", nlohmann::json::object(), measure, print_parts);
}

}  // namespace

Action add_bench_parts(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "parts", "convolution, its update, gated norm, and whole layers beside their delta rule");
  auto o = std::make_shared<PartsOptions>();
  o->run.repeat = 30;
  command
      ->add_option(
          "--op", o->ops,
          "conv, update, norm, layer; on request conv-backward, norm-backward, layer-backward")
      ->delimiter(',')
      ->check(CLI::IsMember(
          {"conv", "update", "norm", "layer", "conv-backward", "norm-backward", "layer-backward"}));
  command->add_option("--heads", o->heads, "H/HV, several separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--most-tokens", o->tokens, "leave out calls of more tokens than this")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  add_device_option(*command, &o->run.backend);
  add_run_options(*command, &o->run);
  command->footer(
      "Example:\n"
      "  sluice bench parts --commit $(git rev-parse --short HEAD) --json parts.json\n"
      "  sluice bench parts --op conv,norm --heads 16/32 --dtype fp16\n"
      "  sluice bench parts --op conv-backward,norm-backward,layer-backward");
  return [o] { return bench_parts(*o); };
}

}  // namespace sluice::tools
