// Describes one point of a prefill grid: head counts and the lengths of a packed batch.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CELL_HPP_
#define SLUICE_TOOLS_BENCH_CELL_HPP_

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::tools {

struct Cell {
  int64_t H = 0, HV = 0, K = 128, V = 128;
  std::vector<int64_t> lengths;
  double goal_ms = 0;      ///< 0: none is set
  bool key_gates = false;  ///< a gate for each channel of k

  int64_t tokens() const noexcept;
  int64_t sequences() const noexcept { return static_cast<int64_t>(lengths.size()); }
  /// Sequences times value heads: what can run side by side without splitting a sequence.
  int64_t units() const noexcept { return sequences() * HV; }
};

/// "16/64" to H and HV; what is wrong with the text, empty if nothing.
std::string parse_heads(const std::string& text, Cell* out);
/// "8192x4", "32768", "28672+4096", "100x2+5": lengths, each with a count, joined by '+'.
std::string parse_lengths(const std::string& text, std::vector<int64_t>* out);

/// "16/64".
std::string heads_text(const Cell& cell);
/// What parse_lengths() takes, in its shortest form; one sequence is "32768x1".
std::string lengths_text(const std::vector<int64_t>& lengths);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CELL_HPP_
