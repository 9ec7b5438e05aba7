// Asks the terminal for its width and colours, folds lines to it, aligns columns, and formats progress,
// quantities and the time.
// SPDX-License-Identifier: Apache-2.0
#include "tools/terminal.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <utility>

namespace sluice::tools {

size_t terminal_width() {
  const char* columns = std::getenv("COLUMNS");
  const long wanted = columns == nullptr ? 0 : std::strtol(columns, nullptr, 10);
  if (wanted > 0) return static_cast<size_t>(wanted);
  winsize size{};
  return isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col
                                                                                    : 0;
}

std::string folded(const std::string& text, size_t indent, size_t width) {
  if (width == 0 || text.size() <= width) return text;
  std::istringstream words(text);
  std::string out, line, word;
  // The first line keeps the blanks that stand before and between its words.
  const size_t cut = text.rfind(' ', width);
  if (cut == std::string::npos || cut < indent) return text;
  out = text.substr(0, cut);
  words.str(text.substr(cut + 1));
  while (words >> word) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      out += '\n' + std::string(indent, ' ') + line;
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  if (!line.empty()) out += '\n' + std::string(indent, ' ') + line;
  return out;
}

std::string verdict_word(bool pass) {
  const bool colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const char* const word = pass ? "PASS" : "FAIL";
  if (!colour) return word;
  return std::string(pass ? "\033[32m" : "\033[31m") + word + "\033[0m";
}

void show_progress(size_t done, size_t total, const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return;
  constexpr size_t kWidth = 24;
  const size_t filled = total == 0 ? kWidth : done * kWidth / total;
  fmt::print(stderr, "\r\033[K{}",
             done == total ? std::string()
                           : fmt::format("[{:<{}}] {}/{} {}", std::string(filled, '='), kWidth,
                                         done, total, what));
  std::fflush(stderr);
}

std::string utc_now() {
  // WHY not fmt's: it needs locales, which the wheel's fmt (python/src/fmt_inside.cc) is without.
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Table::Table(std::vector<std::string> header) {
  for (std::string& name : header) {
    left_.push_back(name.rfind('<', 0) == 0);
    if (left_.back()) name.erase(0, 1);
  }
  rows_.push_back(std::move(header));
}

void Table::add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

bool Table::says_nothing(size_t column) const {
  return rows_.size() > 1 && std::all_of(rows_.begin() + 1, rows_.end(), [&](const auto& row) {
           return column < row.size() && row[column] == "-";
         });
}

std::vector<std::vector<size_t>> Table::blocks(const std::vector<size_t>& widths,
                                               size_t limit) const {
  std::vector<std::vector<size_t>> out(1);
  size_t used = 0;
  for (size_t column = 0; column < left_.size(); ++column) {
    if (says_nothing(column)) continue;
    const size_t width = widths[column] + 2;
    if (limit > 0 && used + width > limit + 2 && out.back().size() > 1) {
      out.push_back({0});
      used = widths[0] + 2;
    }
    out.back().push_back(column);
    used += width;
  }
  return out;
}

void Table::print() const {
  std::vector<size_t> widths(left_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  bool first = true;
  for (const auto& columns : blocks(widths, terminal_width())) {
    if (!std::exchange(first, false)) fmt::print("\n");
    for (const auto& row : rows_) print_row(row, columns, widths);
  }
}

void Table::print_row(const std::vector<std::string>& row, const std::vector<size_t>& columns,
                      const std::vector<size_t>& widths) const {
  std::string line;
  for (const size_t i : columns) {
    if (i >= row.size()) continue;
    line += left_[i] ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("{:>{}}", row[i], widths[i]);
    line += "  ";
  }
  line.erase(line.find_last_not_of(' ') + 1);
  // A part of two columns that is still too wide has a text in the second.
  const size_t limit = columns.size() == 2 ? terminal_width() : 0;
  fmt::print("{}\n", folded(line, widths[columns[0]] + 2, limit));
}

std::string counted(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string error_text(double error) { return error == 0.0 ? "0" : fmt::format("{:.1e}", error); }

std::string number_text(double value) {
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

}  // namespace sluice::tools
