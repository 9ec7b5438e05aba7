// Lists the cells of each named grid.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/grids.hpp"

#include <stdexcept>

namespace sluice::tools {
namespace {

Cell cell(int64_t H, int64_t HV, const std::string& lengths, double goal_ms = 0) {
  Cell out;
  out.H = H, out.HV = HV, out.goal_ms = goal_ms;
  if (const std::string trouble = parse_lengths(lengths, &out.lengths); !trouble.empty()) {
    throw std::logic_error(trouble);
  }
  return out;
}

std::vector<Cell> marks() {
  return {cell(16, 64, "8192x4", .57),  cell(16, 64, "4096x8", .58), cell(16, 64, "2048x4", .160),
          cell(16, 64, "1024x8", .165), cell(16, 48, "8192x4", .58), cell(16, 48, "4096x8", .46),
          cell(8, 32, "8192x4", .29),   cell(8, 32, "4096x8", .29),  cell(8, 32, "2048x4", .085),
          cell(8, 32, "1024x8", .085)};
}

std::vector<Cell> published() {
  constexpr int64_t kHeads[][2] = {{2, 8},   {4, 16},  {8, 24},  {8, 32}, {16, 16},
                                   {16, 32}, {16, 48}, {16, 64}, {32, 32}};
  const char* const kLengths[] = {"32768",      "16384",      "8192",    "4096",       "2048",
                                  "28672+4096", "24576+8192", "16384x2", "8192+24576", "4096+28672",
                                  "12288+4096", "6144+2048",  "4096x2",  "2048+6144",  "1024+7168",
                                  "8192x4",     "4096x8",     "2048x4",  "1024x8"};
  std::vector<Cell> cells;
  for (const auto& [H, HV] : kHeads) {
    for (const char* lengths : kLengths) cells.push_back(cell(H, HV, lengths));
  }
  return cells;
}

/// The cells that peers were timed on in one process with this library.
std::vector<Cell> side_by_side() {
  constexpr int64_t kHeads[][2] = {{2, 8}, {8, 32}, {16, 16}, {16, 64}};
  std::vector<Cell> cells;
  for (const auto& [H, HV] : kHeads) {
    for (const char* lengths : {"32768", "8192", "2048", "16384x2", "8192x4"}) {
      cells.push_back(cell(H, HV, lengths));
    }
  }
  cells.push_back(cell(2, 8, "1024x8"));
  return cells;
}

/// Kimi Linear's heads and slices of them, and the 64 and 96 heads of larger models.
std::vector<Cell> kda() {
  return {cell(12, 12, "8192"),  cell(12, 12, "32768"),  cell(32, 32, "8192"),
          cell(32, 32, "32768"), cell(32, 32, "8192x4"), cell(64, 64, "8192x2"),
          cell(96, 96, "8192")};
}

}  // namespace

const std::vector<std::string>& grid_names() {
  static const std::vector<std::string> kNames = {"marks", "side_by_side", "published", "tileops",
                                                  "kda"};
  return kNames;
}

std::vector<Cell> named_grid(const std::string& name) {
  if (name == "marks") return marks();
  if (name == "side_by_side") return side_by_side();
  if (name == "published") return published();
  if (name == "tileops") {
    return {cell(16, 16, "32768"), cell(16, 16, "65536"), cell(16, 16, "131072"),
            cell(32, 32, "131072")};
  }
  if (name == "kda") return kda();
  throw std::invalid_argument("no grid '" + name + "'");
}

}  // namespace sluice::tools
