// Describes one point of a prefill grid (head counts and the lengths of a packed batch), the ways to spread
// its sequences over a GPU, the named grids, and what a cell must cost at least: arithmetic and bytes,
// against a machine's limits.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CELL_HPP_
#define SLUICE_TOOLS_BENCH_CELL_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/machine.hpp"

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
/// Cells of several such heads, and several such lists; std::runtime_error says what is wrong.
std::vector<Cell> all_heads(const std::vector<std::string>& texts);
std::vector<std::vector<int64_t>> all_lengths(const std::vector<std::string>& texts);

/// "16/64".
std::string heads_text(const Cell& cell);
/// What parse_lengths() takes, in its shortest form; one sequence is "32768x1".
std::string lengths_text(const std::vector<int64_t>& lengths);

/// "auto", "never", "columns", "length", or a number of segments.
struct SplitWay {
  std::string name = "auto";
  Split split = Split::kAuto;
  int32_t value = 0;
};

/// What is wrong with the text, empty if nothing.
std::string parse_split_way(const std::string& text, SplitWay* out);
/// Several such; std::runtime_error says what is wrong.
std::vector<SplitWay> all_ways(const std::vector<std::string>& texts);

/// auto and every forced way that --sweep compares with it.
std::vector<SplitWay> swept_ways();

/// "auto", "strict", "forget".
const std::vector<std::string>& history_names();
History history_of(const std::string& name);

/// marks: ten cells with goals. published: the 9 head counts x 19 length lists that FlashQLA
/// published. tileops: the rows of TileOPs (meant for --gates uniform --dtype fp16).
const std::vector<std::string>& grid_names();

/// The cells of a grid of that list.
std::vector<Cell> named_grid(const std::string& name);

/// Tokens of a chunk, C.
constexpr int64_t kChunk = 64;

/// FLOP of the chunk form, triangles counted whole: per token and value head 4 C K (K K^T, Q K^T) +
/// 4 C V (Tmat R, P N) + 6 K V (K S, Q S, state update); 163,840 for K = V = 128.
double prefill_flops(const Cell& cell) noexcept;

/// Bytes read and written once: q, k, v, o in elements of `element_bytes`, gates and write
/// strengths in float32, initial and final states in float32.
double prefill_bytes(const Cell& cell, int64_t element_bytes) noexcept;

/// Chunks of the busiest processor where whole (sequence, value head) units are dealt out to
/// `processors`, longest first, each to the least loaded one.
int64_t busiest_chunks(const Cell& cell, int processors);

/// The larger of the two floors.
struct Floor {
  double seconds = 0;
  bool memory = false;  ///< bytes, not arithmetic, set it
};
Floor floor_of(const Cell& cell, int64_t element_bytes, const Ceilings& ceilings) noexcept;

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CELL_HPP_
