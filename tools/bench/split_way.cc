// Reads and names ways to spread sequences over a GPU.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/split_way.hpp"

#include <algorithm>
#include <charconv>

namespace sluice::tools {

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

std::vector<SplitWay> swept_ways() {
  std::vector<SplitWay> ways;
  for (const char* name :
       {"auto", "never", "columns", "2", "3", "4", "6", "8", "12", "16", "24", "32"}) {
    parse_split_way(name, &ways.emplace_back());
  }
  return ways;
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

}  // namespace sluice::tools
