// Measures a machine: it is compiled beside everything else and never run (scripts/compile_budget.py).
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <map>
#include <ranges>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

// Nothing of the project is included, so that a change of the project does not change the measure.
int compile_yardstick(const std::string& text);

int compile_yardstick(const std::string& text) {
  static const std::regex word("([A-Za-z]+)|([0-9]+(\\.[0-9]+)?)");
  std::map<std::string, std::vector<std::variant<long, double, std::string>>> found;
  std::unordered_map<std::string, std::function<int(int)>> lengths;
  for (std::sregex_iterator match(text.begin(), text.end(), word), end; match != end; ++match) {
    found[match->str()].emplace_back(match->str());
    lengths[match->str()] = [length = static_cast<int>(match->length())](int more) {
      return length + more;
    };
  }
  int sum = 0;
  for (const auto& [name, values] : found) {
    sum += std::visit([](const auto& value) { return static_cast<int>(sizeof value); },
                      values.front());
    sum += lengths[name](1);
  }
  std::vector<int> sorted(text.begin(), text.end());
  std::ranges::stable_sort(sorted, std::greater<>());
  return sorted.empty() ? sum : sum + sorted.front();
}
