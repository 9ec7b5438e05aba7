// Asks the terminal for its width and colours, and folds lines to it.
// SPDX-License-Identifier: Apache-2.0
#include "tools/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
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

}  // namespace sluice::tools
