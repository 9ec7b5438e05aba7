// Declares what `sluice bench decode` and `sluice bench layer` are asked for, the measurement, and what they
// find.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_STEP_REPORT_HPP_
#define SLUICE_TOOLS_BENCH_STEP_REPORT_HPP_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/peers.hpp"

namespace sluice::tools {

inline constexpr int64_t kConvWidth = 4;

/// One shape of a step.
struct StepCell {
  bool layer = false;  ///< conv, delta rule and norm; else the delta rule alone
  int64_t H = 16, HV = 32, K = 128, V = 128;
  int64_t B = 1, T = 1;
  std::string state = "fp32";  ///< fp32, bf16, fp16
  bool per_token = false;      ///< a state after each token is kept, not only the last one
  double goal_us = 0;          ///< 0: none is set
  int64_t ring = 0;            ///< entries of the replay ring; 0: none
  std::string entry = "fp32";  ///< of its keys and deltas: fp32, bf16, fp16
  bool key_gates = false;      ///< a raw gate for each channel of a key, as KDA has them
  bool vk = false;             ///< states are [V,K], as vLLM and SGLang have them, else [K,V]
  bool packed = false;         ///< tokens are packed, with offsets, as engines' batches are

  int64_t state_element_bytes() const { return state == "fp32" ? 4 : 2; }
  /// Bytes of one sequence's states.
  int64_t state_bytes() const { return HV * K * V * state_element_bytes(); }
  int64_t conv_channels() const { return 2 * H * K + HV * V; }
  /// A layer with a replay ring and more than one token: drafts, of which some were accepted.
  bool drafts() const { return layer && ring > 0 && T > 1; }
  /// Columns of a convolution state.
  int64_t conv_columns() const { return drafts() ? kConvWidth - 2 + T : kConvWidth - 1; }
};

/// How many entries of a replay ring sequences have live as time goes by, and how often a call
/// folds: samples of one sequence whose calls accept 1 to T tokens, each number as likely.
std::vector<int64_t> ring_samples(const StepCell& cell, int64_t count);
/// Whether a call with that many live entries folds.
bool ring_folds(const StepCell& cell, int64_t live);

/// Bytes that a step reads and writes at least, 16-bit tokens and parameters: states once each way
/// (per_token: written once a token), tokens, gates and, of a layer, three columns of convolution
/// state each way (of drafts: two and the tokens' written) and the parameters. With a replay ring:
/// states once, and once more by the share of calls that fold; live entries read, the tokens' ones
/// written.
double step_bytes(const StepCell& cell);

/// What somebody else's kernels take for a step.
struct StepPeer {
  std::string peer, op;  ///< op: decode, kda (decode with key-wise gates) or layer
  int64_t HV = 0, B = 0, T = 1;
  std::string state;
  double us = 0;
};
/// The rows of benchmarks/peers/decode_h200.csv; throws std::runtime_error that names a wrong line.
std::vector<StepPeer> parse_step_peers(const PeerTable& table);

/// The cells of a grid: "marks", "full" or "kda".
std::vector<StepCell> step_grid(const std::string& grid, bool layer);

/// One cell. What is not known is kUnknown.
struct StepRow {
  StepCell cell;
  std::string kernel, failure;  ///< failure: why the rest is missing, else empty
  double us = kUnknown, us_min = kUnknown, us_p90 = kUnknown;
  double host_us = kUnknown;  ///< until an enqueued call returns
  int64_t launches = 0;       ///< in the graph, each on states of its own
  double bytes = 0, floor_us = kUnknown;
  std::vector<StepPeer> peers;  ///< fastest first
};

struct StepSettings {
  RunOptions run{.repeat = 50};
  std::string grid = "marks", command;
  StepCell cell{.H = 0};  ///< what the lists below do not say; H 0: HV / 2
  std::vector<int64_t> HV, B, T;
  std::vector<std::string> states, layouts = {"kv"};
};

/// The cells asked for, one layout of states after the other.
std::vector<StepCell> step_cells(const StepSettings& settings);
/// What others take for a cell, fastest first.
std::vector<StepPeer> step_peers_of(const StepCell& cell);

struct StepReport {
  StepSettings settings;
  std::string date, version;
  nlohmann::json machine;
  Ceilings ceilings;
  std::vector<StepRow> rows;
};

/// The row of the same run that does without the ring: of T tokens with a state each, or of one
/// plain token; null if it was not measured.
const StepRow* row_without_ring(const StepReport& report, const StepCell& cell, int64_t T);

/// The record of a run, schema "sluice.bench.step/1" (docs/kernels/decode.md); unknown is null.
nlohmann::json to_json(const StepReport& report);
/// The table and what its columns mean, to stdout.
void print_steps(const StepReport& report);

/// Times the cells asked for on a GPU that is warm, with a progress bar.
StepReport measure_steps(Machine& machine, const StepSettings& settings);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_STEP_REPORT_HPP_
