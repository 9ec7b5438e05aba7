// Implements `sluice bench parts`: times the operators around the delta rule, and whole layers
// beside their delta rule alone, against the copy bandwidth of the same run. And `sluice bench
// train-layer`: a layer's forward and backward calls, as a training step has them.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/parts_work.hpp"
#include "tools/bench/rows.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

nlohmann::json part_json(const PartsCell& c) {
  return {{"shape", c.shape}, {"H", c.H}, {"HV", c.HV}, {"K", c.K},
          {"V", c.V},         {"N", c.N}, {"T", c.T}};
}

/// Times of a call, `scale` units a second, each on memories that have left the cache; *row gets
/// what ran, and on a GPU host_us, of the call alone.
Quantiles time_part(Machine& machine, const RunOptions& run, const PartsCell& cell, double scale,
                    nlohmann::json* row) {
  PartsWork work(machine, cell, DType{run.dtype}, run.backend);
  for (int i = 0; i < kWarmUps; ++i) work.call_all();
  (*row)["kernel"] = sluice_last_kernel();
  machine.synchronize();
  const CallTimes times = machine.time_calls([&] { work.call_all(); }, run.repeat, /*cold=*/false);
  if (machine.device().type != SLUICE_DEVICE_CPU) {
    (*row)["host_us"] = host_microseconds(machine, kHostCalls, [&](int) { work.call(); });
  }
  return Quantiles(times.seconds, scale / work.copies());
}

struct PartsOptions {
  RunOptions run;
  std::vector<std::string> ops = {"conv", "update", "norm", "layer"}, heads = {"16/32", "16/64"};
  int64_t tokens = 0;  ///< of a call at most; 0: the whole grid
};

std::string parts_name(const PartsCell& cell) { return cell.op + " " + cell.shape; }

nlohmann::json parts_json(const PartsCell& cell) {
  nlohmann::json row = part_json(cell);
  row["op"] = cell.op;
  return row;
}

nlohmann::json measure_part(Machine& machine, const PartsOptions& o, double copy_bandwidth,
                            const PartsCell& cell) {
  nlohmann::json row = parts_json(cell);
  const Quantiles us = time_part(machine, o.run, cell, 1e6, &row);
  const double bytes = parts_bytes(cell, o.run.dtype.bits / 8);
  row.update({{"us", us.median},
              {"us_min", us.least},
              {"us_p90", us.p90},
              {"gb_per_s", 1e-3 * bytes / us.median},
              {"share_of_copy", 1e6 * bytes / us.median / copy_bandwidth}});
  return row;
}

/// A layer's time less that of its delta rule, which is the row after it.
void compare_layers(const PartsOptions& o, double copy_bandwidth,
                    const std::vector<PartsCell>& cells, std::vector<nlohmann::json>* rows) {
  for (size_t i = 0; i + 1 < rows->size(); ++i) {
    nlohmann::json& row = (*rows)[i];
    const nlohmann::json& next = (*rows)[i + 1];
    if (cells[i].op != "layer" || !row.contains("us") || !next.contains("us")) continue;
    const double around = row["us"].get<double>() - next.at("us").get<double>();
    const double bytes = bytes_around(cells[i], o.run.dtype.bits / 8);
    row["around_us"] = around;
    row["around_share_of_copy"] = 1e6 * bytes / around / copy_bandwidth;
  }
}

int bench_parts(const PartsOptions& o) {
  Benchmark parts;
  parts.schema = "sluice.bench.parts/1";
  parts.columns = {word("<op", "op"),
                   word("<shape", "shape"),
                   heads(),
                   number("N", "N", 0),
                   number("T", "T", 0),
                   number("us", "us", 2),
                   number("min", "us_min", 2),
                   number("p90", "us_p90", 2),
                   number("GB/s", "gb_per_s", 0),
                   number("of copy", "share_of_copy", 2),
                   number("host us", "host_us", 1),
                   number("around us", "around_us", 1),
                   number("of copy", "around_share_of_copy", 2),
                   kernel()};
  parts.measure = [&](Machine& machine, const Ceilings& ceilings) {
    std::vector<PartsCell> cells = parts_cells(o.ops, o.heads);
    std::erase_if(cells, [&](const PartsCell& c) { return o.tokens > 0 && c.N * c.T > o.tokens; });
    const double copy_bandwidth = ceilings.bytes_per_second;
    auto rows = measure_cells(cells, parts_name, parts_json, [&](const PartsCell& cell, auto* out) {
      out->push_back(measure_part(machine, o, copy_bandwidth, cell));
    });
    compare_layers(o, copy_bandwidth, cells, &rows);
    return rows;
  };
  parts.legend = [](const Ceilings& ceilings) {
    return fmt::format(
        "us: median of a call; calls follow each other on memories that have left the cache "
        "since, so short ones include\nthe gap between two launches. of copy: of {:.0f} GB/s "
        "({}). around: a layer less its delta rule alone (the\nnext row), and what its bytes "
        "would be of the copy bandwidth. docs/kernels/layer.md has the byte account.\n",
        1e-9 * ceilings.bytes_per_second, ceilings.bytes_source);
  };
  return bench_rows(o.run, parts);
}

struct TrainLayerOptions {
  RunOptions run;
  std::vector<std::string> heads = {"16/32"};
  std::vector<int64_t> tokens = {8192, 65536};
  std::string packing = "flat";
};

std::string train_name(const PartsCell& cell) { return counted(cell.T, "token"); }

nlohmann::json measure_layer(Machine& machine, const RunOptions& run, PartsCell cell) {
  nlohmann::json row = part_json(cell);
  cell.op = "layer";
  const double forward = time_part(machine, run, cell, 1e3, &row).median;
  cell.op = "layer-backward";
  const Quantiles backward = time_part(machine, run, cell, 1e3, &row);
  const double both = forward + backward.median;
  row.update({{"forward_ms", forward},
              {"backward_ms", backward.median},
              {"backward_ms_min", backward.least},
              {"backward_ms_p90", backward.p90},
              {"ms", both},
              {"ratio", backward.median / forward},
              {"tokens_per_s", 1e3 * static_cast<double>(cell.T) / both}});
  return row;
}

std::vector<PartsCell> train_cells(const TrainLayerOptions& o) {
  std::vector<PartsCell> cells;
  for (const Cell& pair : all_heads(o.heads)) {
    for (const int64_t T : o.tokens) {
      PartsCell cell;
      cell.shape = o.packing, cell.T = T, cell.H = pair.H, cell.HV = pair.HV;
      cells.push_back(cell);
    }
  }
  return cells;
}

int bench_train_layer(const TrainLayerOptions& o) {
  Benchmark train;
  train.schema = "sluice.bench.train_layer/1";
  train.columns = {word("<packing", "shape"),
                   heads(),
                   number("T", "T", 0),
                   number("forward ms", "forward_ms", 3),
                   number("backward ms", "backward_ms", 3),
                   number("min", "backward_ms_min", 3),
                   number("p90", "backward_ms_p90", 3),
                   number("both ms", "ms", 3),
                   number("ratio", "ratio", 2),
                   number("tokens/s", "tokens_per_s", 0),
                   number("host us", "host_us", 1),
                   kernel()};
  train.measure = [&](Machine& machine, const Ceilings&) {
    return measure_cells(train_cells(o), train_name, part_json,
                         [&](const PartsCell& cell, auto* out) {
                           out->push_back(measure_layer(machine, o.run, cell));
                         });
  };
  train.legend = [](const Ceilings&) {
    return std::string(
        "ms: median of a call, from projections to the gated norm's output and back to gradients "
        "of projections\nand parameters; nothing is kept between the two. ratio: backward by "
        "forward.\n");
  };
  return bench_rows(o.run, train);
}

}  // namespace

Action add_bench_parts(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "parts", "convolution, its update, gated norm, and whole layers beside their delta rule");
  auto o = std::make_shared<PartsOptions>();
  o->run.repeat = 30;
  add_list(*command, "--op", &o->ops,
           "conv, update, norm, layer; on request conv-backward, norm-backward, layer-backward")
      ->check(CLI::IsMember(
          {"conv", "update", "norm", "layer", "conv-backward", "norm-backward", "layer-backward"}));
  add_list(*command, "--heads", &o->heads, "H/HV, several separated by commas")
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

Action add_bench_train_layer(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("train-layer", "a whole layer forwards and backwards, as it trains");
  auto o = std::make_shared<TrainLayerOptions>();
  add_list(*command, "--heads", &o->heads, "H/HV, several separated by commas")
      ->capture_default_str();
  add_list(*command, "--tokens", &o->tokens, "tokens of a call, several separated by commas")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  add_checked(*command, "--packing", &o->packing, "flat or interleaved",
              CLI::IsMember({"flat", "interleaved"}));
  add_device_option(*command, &o->run.backend);
  add_run_options(*command, &o->run);
  command->footer(
      "Example:\n"
      "  sluice bench train-layer --commit $(git rev-parse --short HEAD) --json train_layer.json\n"
      "  sluice bench train-layer --backend cpu --dtype fp32 --tokens 512 --repeat 3");
  return [o] { return bench_train_layer(*o); };
}

}  // namespace sluice::tools
