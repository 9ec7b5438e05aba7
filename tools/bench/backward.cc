// Implements `sluice bench backward`: times chunk_backward beside the chunk_forward that it belongs
// to, against the floors of the same run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <memory>

#include "tools/bench/backward_work.hpp"
#include "tools/bench/bench.hpp"
#include "tools/bench/rows.hpp"

namespace sluice::tools {
namespace {

struct BackwardOptions {
  RunOptions run;
  std::vector<std::string> heads = {"16/32", "16/16"};
  std::vector<std::string> lengths = {"1024", "8192", "32768", "8192x4", "28672+4096"};
  std::string gates = "published";
  std::vector<std::string> ways = {"auto"};
  int64_t K = 128, V = 128;
  bool unaligned = false;
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

/// Likewise.
std::vector<SplitWay> ways_of(const BackwardOptions& o) {
  std::vector<SplitWay> ways;
  for (const std::string& text : o.ways) {
    const std::string trouble = parse_split_way(text, &ways.emplace_back());
    if (!trouble.empty()) throw std::runtime_error(trouble);
  }
  return ways;
}

std::string backward_name(const Cell& cell) {
  return heads_text(cell) + " " + lengths_text(cell.lengths);
}

nlohmann::json backward_json(const Cell& cell) {
  return {{"lengths", lengths_text(cell.lengths)},
          {"H", cell.H},
          {"HV", cell.HV},
          {"K", cell.K},
          {"V", cell.V}};
}

nlohmann::json measure_row(Machine& machine, const BackwardOptions& o, const Ceilings& ceilings,
                           const Cell& cell, const SplitWay& way, BackwardWork* work) {
  work->select(cell, way);
  nlohmann::json row = backward_json(cell);
  row["split"] = way.name;
  row["workspace_bytes"] = work->workspace_bytes();
  const auto times_of = [&](const std::function<void()>& call) {
    for (int i = 0; i < kWarmUps; ++i) call();
    row["kernel"] = sluice_last_kernel();
    return Quantiles(machine.time_calls(call, o.run.repeat, true).seconds, 1e3);
  };
  const Quantiles forward = times_of([&] { work->forward(); });
  const Quantiles ms = times_of([&] { work->backward(); });
  row.update({{"ms", ms.median},
              {"ms_min", ms.least},
              {"ms_p90", ms.p90},
              {"forward_ms", forward.median},
              {"times_forward", ms.median / forward.median}});
  add_rates(ms.median, backward_flops(cell), backward_bytes(cell, o.run.dtype.bits / 8), ceilings,
            &row);
  return row;
}

void print_backward(const std::vector<nlohmann::json>& rows, const Ceilings& ceilings,
                    const Machine& machine) {
  print_rows(machine,
             {heads(), word("<lengths", "lengths"), word("<split", "split"), number("ms", "ms", 3),
              number("min", "ms_min", 3), number("p90", "ms_p90", 3),
              number("forward ms", "forward_ms", 3), number("x forward", "times_forward", 2),
              number("TFLOP/s", "tflop_per_s", 2), number("GB/s", "gb_per_s", 1),
              number("floor ms", "floor_ms", 4), number("of floor", "share_of_floor", 3),
              number("MB", "workspace_bytes", 0, 1e-6), kernel()},
             rows);
  fmt::print(
      "ms: median of a call that finds the caches full of other data. forward: chunk_forward on "
      "the same inputs;\nx forward: how many times as long as that. floor: the larger of {:.0f} "
      "GB/s ({}) and\n{:.2f} TFLOP/s ({}) at the FLOP and bytes of ops/manifest.json. MB: "
      "workspace.\n",
      1e-9 * ceilings.bytes_per_second, ceilings.bytes_source, 1e-12 * ceilings.flop_per_second,
      ceilings.flop_source);
}

int bench_backward(const BackwardOptions& o) {
  const auto measure = [&](Machine& machine, const Ceilings& ceilings, bool* failed) {
    const std::vector<Cell> cells = cells_of(o);
    const std::vector<SplitWay> ways = ways_of(o);
    show_progress(0, cells.size(), "inputs");
    BackwardWork work(machine, PrefillInputs(cells, o.run.dtype, o.gates), cells, o.run.backend,
                      o.unaligned);
    return measure_cells(
        cells, backward_name, backward_json,
        [&](const Cell& cell, auto* out) {
          for (const SplitWay& way : ways) {
            out->push_back(measure_row(machine, o, ceilings, cell, way, &work));
          }
        },
        failed);
  };
  return bench_rows(o.run, "sluice.bench.backward/1",
                    {{"gates", o.gates}, {"unaligned", o.unaligned}}, measure, print_backward);
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
  command
      ->add_option("--split", o->ways,
                   "how gradients cut sequences: auto, never, length, or a number of segments; "
                   "several make several rows")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--K", o->K, "columns of a key")->check(CLI::Range(1, 512));
  command->add_option("--V", o->V, "columns of a value")->check(CLI::Range(1, 512));
  command->add_flag("--unaligned", o->unaligned,
                    "rows of gradients begin one element past a multiple of 16 bytes");
  add_device_option(*command, &o->run.backend);
  add_run_options(*command, &o->run);
  command->footer(
      "Example:\n"
      "  sluice bench backward --commit $(git rev-parse --short HEAD) --json backward.json\n"
      "  sluice bench backward --heads 1/1,16/32 --lengths 8192 --unaligned\n"
      "  sluice bench backward --backend cpu --heads 4/8 --lengths 512,100x2+5 --dtype fp32");
  return [o] { return bench_backward(*o); };
}

}  // namespace sluice::tools
