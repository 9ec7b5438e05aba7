// Reads and names points of a prefill grid.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cell.hpp"

#include <fmt/core.h>

#include <charconv>
#include <numeric>
#include <string_view>

namespace sluice::tools {
namespace {

constexpr int64_t kMaxHeads = 1024, kMaxSequences = 1 << 20, kMaxTokens = int64_t{1} << 31;

// A whole number of digits only, from 1 to `limit`.
bool read_count(std::string_view text, int64_t limit, int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 1 && *out <= limit;
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

}  // namespace sluice::tools
