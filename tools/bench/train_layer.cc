// Implements `sluice bench train-layer`: times a layer's forward and backward calls through the C
// interface, as a training step has them, each on memories that have left the cache.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/cell.hpp"
#include "tools/bench/parts_work.hpp"
#include "tools/bench/rows.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

struct TrainLayerOptions {
  RunOptions run;
  std::vector<std::string> heads = {"16/32"};
  std::vector<int64_t> tokens = {8192, 65536};
  std::string packing = "flat";
};

std::string name_of(const PartsCell& cell) { return counted(cell.T, "token"); }

nlohmann::json json_of(const PartsCell& c) {
  nlohmann::json row = {{"shape", c.shape}, {"H", c.H}, {"HV", c.HV}, {"K", c.K},
                        {"V", c.V},         {"N", c.N}, {"T", c.T}};
  for (const char* name : {"forward_ms", "backward_ms", "backward_ms_min", "backward_ms_p90", "ms",
                           "ratio", "tokens_per_s", "host_us"}) {
    row[name] = nullptr;  // until it is measured
  }
  return row;
}

/// Milliseconds of a call of `op`, and what ran; host_us: of the call alone, on a GPU.
Quantiles time_of(Machine& machine, const TrainLayerOptions& o, PartsCell cell, const char* op,
                  nlohmann::json* row) {
  cell.op = op;
  PartsWork work(machine, cell, DType{o.run.dtype}, o.run.backend);
  for (int i = 0; i < kWarmUps; ++i) work.call_all();
  (*row)["kernel"] = sluice_last_kernel();
  machine.synchronize();
  const CallTimes times =
      machine.time_calls([&] { work.call_all(); }, o.run.repeat, /*cold=*/false);
  if (machine.device().type != SLUICE_DEVICE_CPU) {
    (*row)["host_us"] = host_microseconds(machine, kHostCalls, [&](int) { work.call(); });
  }
  return Quantiles(times.seconds, 1e3 / work.copies());
}

nlohmann::json measure_row(Machine& machine, const TrainLayerOptions& o, const PartsCell& cell) {
  nlohmann::json row = json_of(cell);
  const double forward = time_of(machine, o, cell, "layer", &row).median;
  const Quantiles backward = time_of(machine, o, cell, "layer-backward", &row);
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

std::vector<PartsCell> cells_of(const TrainLayerOptions& o) {
  std::vector<PartsCell> cells;
  for (const std::string& text : o.heads) {
    Cell pair;
    if (const std::string trouble = parse_heads(text, &pair); !trouble.empty()) {
      throw std::runtime_error(trouble);
    }
    for (const int64_t T : o.tokens) {
      PartsCell cell;
      cell.shape = o.packing, cell.T = T, cell.H = pair.H, cell.HV = pair.HV;
      cells.push_back(cell);
    }
  }
  return cells;
}

void print_train_layer(const std::vector<nlohmann::json>& rows, const Ceilings&,
                       const Machine& machine) {
  print_rows(machine,
             {word("<packing", "shape"), heads(), number("T", "T", 0),
              number("forward ms", "forward_ms", 3), number("backward ms", "backward_ms", 3),
              number("min", "backward_ms_min", 3), number("p90", "backward_ms_p90", 3),
              number("both ms", "ms", 3), number("ratio", "ratio", 2),
              number("tokens/s", "tokens_per_s", 0), number("host us", "host_us", 1), kernel()},
             rows);
  fmt::print(
      "ms: median of a call, from projections to the gated norm's output and back to gradients of "
      "projections\nand parameters; nothing is kept between the two. ratio: backward by "
      "forward.\n");
}

int bench_train_layer(const TrainLayerOptions& o) {
  const auto measure = [&](Machine& machine, const Ceilings&, bool* failed) {
    return measure_cells(
        cells_of(o), name_of, json_of,
        [&](const PartsCell& cell, auto* out) { out->push_back(measure_row(machine, o, cell)); },
        failed);
  };
  return bench_rows(o.run, "sluice.bench.train_layer/1", nlohmann::json::object(), measure,
                    print_train_layer);
}

}  // namespace

Action add_bench_train_layer(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("train-layer", "a whole layer forwards and backwards, as it trains");
  auto o = std::make_shared<TrainLayerOptions>();
  command->add_option("--heads", o->heads, "H/HV, several separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--tokens", o->tokens, "tokens of a call, several separated by commas")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command->add_option("--packing", o->packing, "flat or interleaved")
      ->capture_default_str()
      ->check(CLI::IsMember({"flat", "interleaved"}));
  add_device_option(*command, &o->run.backend);
  add_run_options(*command, &o->run);
  command->footer(
      "Example:\n"
      "  sluice bench train-layer --commit $(git rev-parse --short HEAD) --json train_layer.json\n"
      "  sluice bench train-layer --backend cpu --dtype fp32 --tokens 512 --repeat 3");
  return [o] { return bench_train_layer(*o); };
}

}  // namespace sluice::tools
