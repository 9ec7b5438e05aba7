// Declares what `sluice bench prefill` is asked for and what it finds: the model behind table and JSON, and
// the measurement: times first, with nothing else going on, errors afterwards.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_PREFILL_REPORT_HPP_
#define SLUICE_TOOLS_BENCH_PREFILL_REPORT_HPP_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/cell.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/peers.hpp"
#include "tools/bench/prefill_problem.hpp"

namespace sluice::tools {

struct PrefillSettings {
  std::vector<Cell> cells;
  std::vector<SplitWay> ways = {SplitWay{}};  ///< of each cell, one row a way
  RunOptions run{.repeat = 100};
  std::string grid = "marks", gates = "published", command;
  /// As a caller has it who does not say: gates and betas that are no logits may not be forgotten.
  std::string history = "auto";
  sluice_dtype gate_dtype = kFloat32;
  int rest_ms = 300;  ///< idle before each cell, so that none finds clocks that another lowered
  bool cold = true, errors = true;
  bool lengths_known = true;  ///< calls are told the longest sequence (max_tokens)
  bool whole_calls = false;   ///< also time calls on the host, from entry to the results
  bool norm = false;          ///< q and k go through the l2 norm inside; peers' times do not count
};

/// One cell. What is not known is kUnknown.
struct PrefillRow {
  Cell cell;
  SplitWay way;
  int64_t segments = 0;         ///< that the planner made of the sequences; 0: it was not asked
  std::string kernel, failure;  ///< failure: why the rest is missing, else empty
  double ms = kUnknown, ms_min = kUnknown, ms_p90 = kUnknown;
  double host_us = kUnknown;   ///< until an enqueued call returns; not for the host
  double whole_us = kUnknown;  ///< from entry until the results are there, the device idle before
  double clock_mhz = kUnknown;
  double us_per_chunk_head = kUnknown;  ///< ms over busiest_chunks()
  double tflops = kUnknown, gb_per_s = kUnknown;
  double floor_ms = kUnknown;
  bool memory_floor = false;
  double error_o = kUnknown, error_state = kUnknown;  ///< relative L2, worst of the sample
  std::vector<PeerTime> peers;                        ///< fastest first

  /// Time of the fastest peer over ours: above 1 is faster than it.
  double ratio() const { return peers.empty() ? kUnknown : peers.front().ms / ms; }
};

/// What the first call of a process takes beside the second, in milliseconds; start: the CUDA
/// context, which is not the library's.
struct FirstCall {
  double start_ms = kUnknown, first_ms = kUnknown, second_ms = kUnknown;
};

struct PrefillReport {
  PrefillSettings settings;
  std::string date, version;
  nlohmann::json machine;
  Ceilings ceilings;
  FirstCall first_call;
  std::vector<PrefillRow> rows;
};

/// Cells that have a peer, those slower than it, and the geometric mean of the ratios.
struct PeerSummary {
  int compared = 0, slower = 0;
  double mean = kUnknown;
};
PeerSummary summary_of(const std::vector<PrefillRow>& rows);

/// The library's own choice beside the best forced way of the same cell.
struct ChoiceSummary {
  int cells = 0, within = 0;  ///< cells with both; those whose choice is within 5 % of the best
  double worst = kUnknown;    ///< time of the best over that of the choice, least of all cells
  std::string worst_cell;
};
ChoiceSummary choices_of(const std::vector<PrefillRow>& rows);

/// Relative L2 above which results are wrong, not merely rounded.
double error_limit(const std::string& dtype);
/// Whether a row's errors are above that; errors that are not numbers are.
bool is_wrong(const PrefillRow& row, const std::string& dtype);

/// The record of a run, schema "sluice.bench.prefill/1" (docs/benchmarks.md); unknown is null.
nlohmann::json to_json(const PrefillReport& report);

/// The table and what its columns mean, to stdout.
void print_prefill(const PrefillReport& report);

/// Runs all cells on a machine whose start took start_seconds, with a progress bar.
PrefillReport measure_prefill(Machine& machine, double start_seconds,
                              const PrefillSettings& settings);

/// A sequence and value head whose results are compared with the reference.
struct Sample {
  int64_t sequence = 0, head = 0;
};
/// First, last and one random head of the longest sequence, a random one of the shortest (of the
/// last sequence where all are as long).
std::vector<Sample> samples_of(const Cell& cell);

/// Sets the errors of all rows without a failure: calls each cell once more on poisoned outputs and
/// compares samples with the float64 reference, on all threads of the host.
void measure_errors(Machine& machine, const PrefillInputs& inputs, History history,
                    PrefillProblem* problem, std::vector<PrefillRow>* rows);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_PREFILL_REPORT_HPP_
