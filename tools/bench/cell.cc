// Reads and names points of prefill grids and ways to spread sequences, lists the named grids, and
// counts arithmetic and bytes of a cell.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cell.hpp"

#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include <functional>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <string_view>

namespace sluice::tools {
namespace {

constexpr int64_t kMaxHeads = 1024, kMaxSequences = 1 << 20, kMaxTokens = int64_t{1} << 31;

// A whole number of digits only, from 1 to `limit`.
bool read_count(std::string_view text, int64_t limit, int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 1 && *out <= limit;
}

/// Every text as parse(text, &value) reads it; throws where that finds something wrong.
template <class Value>
std::vector<Value> read_all(const std::vector<std::string>& texts,
                            std::string (*parse)(const std::string&, Value*)) {
  std::vector<Value> values;
  for (const std::string& text : texts) {
    const std::string trouble = parse(text, &values.emplace_back());
    if (!trouble.empty()) throw std::runtime_error(trouble);
  }
  return values;
}

}  // namespace

int64_t Cell::tokens() const noexcept {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

std::string parse_heads(const std::string& text, Cell* out) {
  const size_t slash = text.find('/');
  const std::string_view view(text);
  const bool read = slash != std::string::npos &&
                    read_count(view.substr(0, slash), kMaxHeads, &out->H) &&
                    read_count(view.substr(slash + 1), kMaxHeads, &out->HV);
  if (!read) return fmt::format("'{}' is no pair of head counts H/HV, e.g. 16/64", text);
  if (out->HV % out->H != 0) {
    return fmt::format("'{}': HV = {} is no multiple of H = {}", text, out->HV, out->H);
  }
  return {};
}

std::string parse_lengths(const std::string& text, std::vector<int64_t>* out) {
  out->clear();
  int64_t tokens = 0;
  std::string_view rest(text);
  while (true) {
    const std::string_view term = rest.substr(0, rest.find('+'));
    const size_t times = term.find('x');
    int64_t length = 0, count = 1;
    const bool read = read_count(term.substr(0, times), kMaxTokens, &length) &&
                      (times == std::string_view::npos ||
                       read_count(term.substr(times + 1), kMaxSequences, &count));
    if (!read || tokens + length * count > kMaxTokens) {
      return fmt::format(
          "'{}' is no list of lengths, e.g. 8192x4 (four of 8192 tokens) or 28672+4096", text);
    }
    tokens += length * count;
    out->insert(out->end(), static_cast<size_t>(count), length);
    if (term.size() == rest.size()) return {};
    rest.remove_prefix(term.size() + 1);
  }
}

std::vector<Cell> all_heads(const std::vector<std::string>& texts) {
  return read_all(texts, parse_heads);
}

std::vector<std::vector<int64_t>> all_lengths(const std::vector<std::string>& texts) {
  return read_all(texts, parse_lengths);
}

std::string heads_text(const Cell& cell) { return fmt::format("{}/{}", cell.H, cell.HV); }

std::string lengths_text(const std::vector<int64_t>& lengths) {
  std::string text;
  for (size_t first = 0; first < lengths.size();) {
    size_t last = first;
    while (last < lengths.size() && lengths[last] == lengths[first]) ++last;
    const bool alone = last - first == 1 && lengths.size() > 1;
    text += fmt::format("{}{}", first == 0 ? "" : "+", lengths[first]);
    if (!alone) text += fmt::format("x{}", last - first);
    first = last;
  }
  return text;
}

std::string parse_split_way(const std::string& text, SplitWay* out) {
  const SplitWay named[] = {{"auto", Split::kAuto, 0},
                            {"never", Split::kNever, 0},
                            {"columns", Split::kColumns, 0},
                            {"length", Split::kLength, 0}};
  for (const SplitWay& way : named) {
    if (text != way.name) continue;
    *out = way;
    return {};
  }
  int32_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 2 || count > 4096) {
    return "--split " + text + ": expected auto, never, columns, length or 2 to 4096 segments";
  }
  *out = {text, Split::kSegments, count};
  return {};
}

std::vector<SplitWay> all_ways(const std::vector<std::string>& texts) {
  return read_all(texts, parse_split_way);
}

std::vector<SplitWay> swept_ways() {
  return all_ways({"auto", "never", "columns", "2", "3", "4", "6", "8", "12", "16", "24", "32"});
}

const std::vector<std::string>& history_names() {
  static const std::vector<std::string> names = {"auto", "strict", "forget"};
  return names;
}

History history_of(const std::string& name) {
  const auto& names = history_names();
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? History::kAuto : static_cast<History>(found - names.begin());
}

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

double prefill_flops(const Cell& c) noexcept {
  const int64_t per_token = 4 * kChunk * (c.K + c.V) + 6 * c.K * c.V;
  return static_cast<double>(per_token) * static_cast<double>(c.tokens() * c.HV);
}

double prefill_bytes(const Cell& c, int64_t element_bytes) noexcept {
  const int64_t gates = c.key_gates ? c.K : 1;  // float32, as betas are
  const int64_t per_token = element_bytes * 2 * (c.H * c.K + c.HV * c.V) + 4 * (gates + 1) * c.HV;
  return static_cast<double>(per_token) * static_cast<double>(c.tokens()) +
         2.0 * 4.0 * static_cast<double>(c.K * c.V) * static_cast<double>(c.units());
}

int64_t busiest_chunks(const Cell& cell, int processors) {
  std::vector<int64_t> chunks;
  for (const int64_t length : cell.lengths) chunks.push_back((length + kChunk - 1) / kChunk);
  std::sort(chunks.begin(), chunks.end(), std::greater<>());
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> loads;
  for (int i = 0; i < processors; ++i) loads.push(0);
  int64_t busiest = 0;
  for (const int64_t unit : chunks) {
    for (int64_t head = 0; head < cell.HV; ++head) {
      const int64_t load = loads.top() + unit;
      loads.pop();
      loads.push(load);
      busiest = std::max(busiest, load);
    }
  }
  return busiest;
}

Floor floor_of(const Cell& cell, int64_t element_bytes, const Ceilings& ceilings) noexcept {
  const double arithmetic = prefill_flops(cell) / ceilings.flop_per_second;
  const double memory = prefill_bytes(cell, element_bytes) / ceilings.bytes_per_second;
  return {std::max(arithmetic, memory), memory > arithmetic};
}

}  // namespace sluice::tools
