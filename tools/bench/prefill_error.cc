// Measures errors of prefill cells: samples are compared on all threads while the next cells run.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "check/comparer.hpp"
#include "check/generate.hpp"
#include "tools/bench/prefill_report.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

// Threads of which each has one job, for jobs hold outputs: a new job waits for that of its turn.
// Whoever makes them waits in the end for all.
class Jobs {
 public:
  void push(std::function<void()> job) {
    threads_[next_++ % threads_.size()] = std::jthread(std::move(job));
  }

 private:
  std::vector<std::jthread> threads_{2 * std::max(1u, std::thread::hardware_concurrency())};
  size_t next_ = 0;
};

struct Outputs {
  std::vector<std::byte> o;
  std::vector<float> state;
};

struct Errors {
  double o = kUnknown, state = kUnknown;
};

/// One head of a token tensor [T, heads, width] in host memory, as [1, T', 1, width].
TensorView head_view(const Bytes& pool, sluice_dtype dtype, int64_t heads, int64_t width,
                     int64_t first, int64_t count, int64_t head) {
  const TensorView all(pool.data(), DType{dtype}, {1, first + count, heads, width});
  return all.sliced(1, first, count).sliced(2, head, 1);
}

TensorView without_last(TensorView view) {
  view.rank = static_cast<uint16_t>(view.rank - 1);
  return view;
}

double relative_l2(const sluice_tensor& actual, const sluice_tensor& truth) {
  const check::Comparison comparison = check::compare_whole(actual, truth);
  return comparison.fault.empty() ? comparison.relative_l2 : kUnknown;
}

Errors errors_of(const PrefillInputs& in, const Cell& c, const Sample& sample,
                 const Outputs& outputs) {
  const int64_t T = c.lengths[static_cast<size_t>(sample.sequence)];
  const int64_t first = offsets_of(c)[static_cast<size_t>(sample.sequence)];
  const int64_t key_head = sample.head / (c.HV / c.H);
  std::vector<float> o(static_cast<size_t>(T * c.V)), state(static_cast<size_t>(c.K * c.V));
  ChunkForwardArgs args;
  args.q = head_view(in.q, in.dtype, c.H, c.K, first, T, key_head);
  args.k = head_view(in.k, in.dtype, c.H, c.K, first, T, key_head);
  args.v = head_view(in.v, in.dtype, c.HV, c.V, first, T, sample.head);
  const TensorView gates = head_view(in.gates.at(c.HV), in.gate_dtype, c.HV, c.key_gates ? c.K : 1,
                                     first, T, sample.head);
  args.gate = c.key_gates ? gates : without_last(gates);
  args.beta = without_last(head_view(in.beta, in.gate_dtype, c.HV, 1, first, T, sample.head));
  args.o = TensorView(o.data(), {1, T, 1, c.V});
  args.state.initial = TensorView(in.initial.data(), kFloat32, {c.sequences(), c.HV, c.K, c.V})
                           .sliced(0, sample.sequence, 1)
                           .sliced(1, sample.head, 1);
  args.state.final = TensorView(state.data(), {1, 1, c.K, c.V});
  args.qk_norm = in.norm;
  args.implementation = Implementation::kReference;
  HostWorkspace memory;
  const Result<WorkspaceSize> size = workspace_size(args);
  if (!size.ok()) return {};
  const Status status = chunk_forward(args, memory.reserve(size.value.bytes));
  if (!status.ok()) return {};
  return {relative_l2(TensorView(outputs.o.data(), DType{in.dtype}, {T * c.V}),
                      TensorView(o.data(), {T * c.V})),
          relative_l2(TensorView(outputs.state.data(), {c.K * c.V}),
                      TensorView(state.data(), {c.K * c.V}))};
}

// NaN wins: it never passes for small.
double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace

std::vector<Sample> samples_of(const Cell& cell) {
  const auto begin = cell.lengths.begin(), end = cell.lengths.end();
  const int64_t longest = std::max_element(begin, end) - begin;
  // The last of equals, which is another sequence than the longest where there are two.
  int64_t shortest = cell.sequences() - 1;
  for (int64_t n = 0; n < cell.sequences(); ++n) {
    if (cell.lengths[static_cast<size_t>(n)] < cell.lengths[static_cast<size_t>(shortest)]) {
      shortest = n;
    }
  }
  check::Random random(static_cast<uint64_t>(cell.tokens() * cell.HV));
  const auto any = [&] {
    return static_cast<int64_t>(random.bits() % static_cast<uint64_t>(cell.HV));
  };
  std::vector<Sample> samples = {
      {longest, 0}, {longest, cell.HV - 1}, {longest, any()}, {shortest, any()}};
  std::vector<Sample> unique;
  for (const Sample& s : samples) {
    const bool seen = std::any_of(unique.begin(), unique.end(), [&](const Sample& other) {
      return other.sequence == s.sequence && other.head == s.head;
    });
    if (!seen) unique.push_back(s);
  }
  return unique;
}

void measure_errors(Machine& machine, const PrefillInputs& inputs, History history,
                    PrefillProblem* problem, std::vector<PrefillRow>* rows) {
  std::mutex mutex;
  Jobs jobs;
  for (size_t i = 0; i < rows->size(); ++i) {
    PrefillRow* row = &(*rows)[i];
    if (!row->failure.empty()) continue;
    show_progress(i, rows->size(), "errors " + heads_text(row->cell));
    if (!problem->select(row->cell, row->way, history).ok()) continue;
    problem->poison();
    problem->call();
    machine.synchronize();
    row->error_o = row->error_state = 0;
    for (const Sample& sample : samples_of(row->cell)) {
      const auto outputs =
          std::make_shared<Outputs>(Outputs{problem->output(sample.sequence, sample.head),
                                            problem->final_state(sample.sequence, sample.head)});
      jobs.push([&inputs, &mutex, row, sample, outputs] {
        const Errors errors = errors_of(inputs, row->cell, sample, *outputs);
        const std::lock_guard lock(mutex);
        row->error_o = worse(errors.o, row->error_o);
        row->error_state = worse(errors.state, row->error_state);
      });
    }
  }
}

}  // namespace sluice::tools
