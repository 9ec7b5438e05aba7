// Declares the one table of `sluice bench kda`: prefill, decode and layers with key-wise gates, each
// row beside its mark and its peers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_KDA_REPORT_HPP_
#define SLUICE_TOOLS_BENCH_KDA_REPORT_HPP_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/prefill_report.hpp"
#include "tools/bench/step_report.hpp"

namespace sluice::tools {

/// Peers that have a column of their own.
inline constexpr const char* kKdaPeers[] = {"cuDNN", "FlashKDA", "FLA"};
inline constexpr int kKdaPeerCount = 3;

/// The rows of prefill with one kind of gates, as the record has them: `part` (prefill, decode or
/// layer), `what` ("8192, 32 heads"; "B 32, bf16 states"), `gates` ("bounded", "raw"), the `unit` of
/// the times, `time`, `mark`, `stretch`, those of `peers`, the error, the kernel or the `failure`.
std::vector<nlohmann::json> kda_rows(const PrefillReport& report);
/// The rows of decode, or of layers.
std::vector<nlohmann::json> kda_rows(const StepReport& report);

/// What was measured: the reports as they are, and the rows made of them.
struct KdaReport {
  std::string date, version, commit, command;
  nlohmann::json machine;
  std::vector<nlohmann::json> rows, reports;
  double us_per_chunk_head = kUnknown;  ///< of the cell that keeps all multiprocessors busy
};

/// The record, schema "sluice.bench.kda/1"; unknown is null.
nlohmann::json to_json(const KdaReport& report);
/// The table and what its columns mean, to stdout.
void print_kda(const KdaReport& report);
/// The table as an SVG: a bar for each time, on a logarithmic axis. Readable on light and on dark
/// pages.
std::string kda_figure(const KdaReport& report);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_KDA_REPORT_HPP_
