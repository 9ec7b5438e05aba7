// Implements `sluice bench backward`: times chunk_backward beside the chunk_forward that it belongs
// to, on the same inputs, against the floors of the same run.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cstring>
#include <memory>

#include "tools/bench/bench.hpp"
#include "tools/bench/prefill_problem.hpp"
#include "tools/bench/rows.hpp"

namespace sluice::tools {
namespace {

/// FLOP of the recurrence of gradients (ops/manifest.json): 22 K V a token and value head.
double backward_flops(const Cell& c) noexcept {
  return 22.0 * static_cast<double>(c.K * c.V * c.HV) * static_cast<double>(c.tokens());
}

/// Bytes read and written once: q, k, v, d_o and three gradients in elements of `element_bytes`;
/// gates, write strengths, their gradients and three states in float32.
double backward_bytes(const Cell& c, int64_t element_bytes) noexcept {
  const int64_t per_token = element_bytes * (4 * c.H * c.K + 3 * c.HV * c.V) + 16 * c.HV;
  return static_cast<double>(per_token) * static_cast<double>(c.tokens()) +
         12.0 * static_cast<double>(c.K * c.V) * static_cast<double>(c.units());
}

/// A tensor of the shape and dtype of another.
TensorView alike(const TensorView& tensor, const std::shared_ptr<void>& memory) {
  TensorView view = tensor;
  view.data = memory.get();
  return view;
}

/// `rows` with so many bytes in front.
Bytes behind(size_t shift, const Bytes& rows) {
  Bytes all(shift + rows.size());
  std::memcpy(all.data() + shift, rows.data(), rows.size());
  return all;
}

/// Both calls of one cell at a time, with the l2 norm inside. Failures throw std::runtime_error.
class BackwardWork {
 public:
  /// `inputs` and `cells` as for PrefillProblem. unaligned: all rows of chunk_backward begin one element
  /// past a multiple of 16 bytes, so that those are copied which its kernels want aligned.
  BackwardWork(Machine& machine, const PrefillInputs& inputs, const std::vector<Cell>& cells,
               Implementation backend, bool unaligned)
      : machine_(machine),
        problem_(machine, inputs, cells, true),
        backend_(backend),
        shift_(unaligned ? inputs.dtype.bits / 8u : 0u),
        q_(unaligned ? uploaded(machine, behind(shift_, inputs.q)) : nullptr),
        k_(unaligned ? uploaded(machine, behind(shift_, inputs.k)) : nullptr),
        v_(unaligned ? uploaded(machine, behind(shift_, inputs.v)) : nullptr),
        d_o_(uploaded(machine, behind(shift_, inputs.v))),
        d_final_(uploaded(machine, inputs.initial)),
        dq_(machine.allocate(shift_ + inputs.q.size())),
        dk_(machine.allocate(shift_ + inputs.k.size())),
        dv_(machine.allocate(shift_ + inputs.v.size())),
        dgate_(machine.allocate(inputs.beta.size())),
        dbeta_(machine.allocate(inputs.beta.size())),
        dinitial_(machine.allocate(inputs.initial.size())) {}

  /// `way`: of chunk_backward; chunk_forward chooses by itself.
  void select(const Cell& cell, const SplitWay& way) {
    require(problem_.select(cell, SplitWay{}, History::kForget));
    forward_ = problem_.args();
    forward_.qk_norm = QkNorm::kL2;
    forward_.implementation = backend_;
    backward_ = {};
    const auto rows = [&](const TensorView& as, const std::shared_ptr<void>& memory) {
      if (memory == nullptr) return as;
      TensorView view = alike(as, memory);
      view.data = static_cast<std::byte*>(view.data) + shift_;
      return view;
    };
    backward_.q = rows(forward_.q, q_), backward_.k = rows(forward_.k, k_);
    backward_.v = rows(forward_.v, v_);
    backward_.gate = forward_.gate, backward_.beta = forward_.beta;
    if (cell.sequences() > 1) backward_.cu_seqlens = forward_.cu_seqlens;
    forward_.cu_seqlens = backward_.cu_seqlens;
    backward_.initial = forward_.state.initial;
    backward_.d_o = rows(forward_.v, d_o_);
    backward_.d_final = alike(forward_.state.initial, d_final_);
    backward_.dq = rows(forward_.q, dq_), backward_.dk = rows(forward_.k, dk_);
    backward_.dv = rows(forward_.v, dv_);
    backward_.dgate = alike(forward_.gate, dgate_), backward_.dbeta = alike(forward_.beta, dbeta_);
    backward_.dinitial = alike(forward_.state.initial, dinitial_);
    backward_.qk_norm = QkNorm::kL2;
    backward_.implementation = backend_;
    backward_.split = way.split, backward_.split_value = way.value;
    scratch_.reserve(machine_, workspace_size(forward_));
    backward_size_ = scratch_.reserve(machine_, workspace_size(backward_));
  }

  /// Enqueue on the default stream.
  void forward() { require(chunk_forward(forward_, scratch_.get())); }
  void backward() { require(chunk_backward(backward_, scratch_.get())); }
  size_t workspace_bytes() const noexcept { return backward_size_; }

 private:
  Machine& machine_;
  PrefillProblem problem_;
  Implementation backend_;
  size_t shift_;                     ///< bytes of rows' memory in front of the first
  std::shared_ptr<void> q_, k_, v_;  ///< null: those of problem_
  std::shared_ptr<void> d_o_, d_final_, dq_, dk_, dv_, dgate_, dbeta_, dinitial_;
  WorkScratch scratch_;
  size_t backward_size_ = 0;
  ChunkForwardArgs forward_;
  ChunkBackwardArgs backward_;
};

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
  for (const Cell& heads : all_heads(o.heads)) {
    for (const std::vector<int64_t>& lengths : all_lengths(o.lengths)) {
      Cell& cell = cells.emplace_back(heads);
      cell.K = o.K, cell.V = o.V, cell.lengths = lengths;
    }
  }
  return cells;
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

int bench_backward(const BackwardOptions& o) {
  Benchmark backward;
  backward.schema = "sluice.bench.backward/1";
  backward.more = {{"gates", o.gates}, {"unaligned", o.unaligned}};
  backward.columns = {heads(),
                      word("<lengths", "lengths"),
                      word("<split", "split"),
                      number("ms", "ms", 3),
                      number("min", "ms_min", 3),
                      number("p90", "ms_p90", 3),
                      number("forward ms", "forward_ms", 3),
                      number("x forward", "times_forward", 2),
                      number("TFLOP/s", "tflop_per_s", 2),
                      number("GB/s", "gb_per_s", 1),
                      number("floor ms", "floor_ms", 4),
                      number("of floor", "share_of_floor", 3),
                      number("MB", "workspace_bytes", 0, 1e-6),
                      kernel()};
  backward.measure = [&](Machine& machine, const Ceilings& ceilings) {
    const std::vector<Cell> cells = cells_of(o);
    const std::vector<SplitWay> ways = all_ways(o.ways);
    show_progress(0, cells.size(), "inputs");
    BackwardWork work(machine, PrefillInputs(cells, o.run.dtype, o.gates), cells, o.run.backend,
                      o.unaligned);
    return measure_cells(cells, backward_name, backward_json, [&](const Cell& cell, auto* out) {
      for (const SplitWay& way : ways) {
        out->push_back(measure_row(machine, o, ceilings, cell, way, &work));
      }
    });
  };
  backward.legend = [](const Ceilings& ceilings) {
    return fmt::format(
        "ms: median of a call that finds the caches full of other data. forward: chunk_forward on "
        "the same inputs;\nx forward: how many times as long as that. floor: the larger of {:.0f} "
        "GB/s ({}) and\n{:.2f} TFLOP/s ({}) at the FLOP and bytes of ops/manifest.json. MB: "
        "workspace.\n",
        1e-9 * ceilings.bytes_per_second, ceilings.bytes_source, 1e-12 * ceilings.flop_per_second,
        ceilings.flop_source);
  };
  return bench_rows(o.run, backward);
}

}  // namespace

Action add_bench_backward(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "backward", "gradients of the chunked prefill beside the prefill itself");
  auto o = std::make_shared<BackwardOptions>();
  add_list(*command, "--heads", &o->heads, "H/HV, several separated by commas")
      ->capture_default_str();
  add_list(*command, "--lengths", &o->lengths,
           "tokens of the sequences, e.g. 8192x4 or 28672+4096 (packed), several separated "
           "by commas")
      ->capture_default_str();
  add_checked(*command, "--gates", &o->gates, "how gates decay", CLI::IsMember(gate_names()));
  add_list(*command, "--split", &o->ways,
           "how gradients cut sequences: auto, never, length, or a number of segments; "
           "several make several rows")
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
