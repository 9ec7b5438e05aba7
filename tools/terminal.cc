// Asks the terminal for its width and colours, folds lines to it, and prints progress lines and the time.
// SPDX-License-Identifier: Apache-2.0
#include "tools/terminal.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cstdlib>
#include <ctime>
#include <sstream>

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
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace sluice::tools
