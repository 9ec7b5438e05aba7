// Prints for the terminal: its width, folded lines, coloured verdicts, what long commands do while they
// run, aligned tables and quantities. Where stdout is no terminal nothing is folded or coloured, so that scripts read whole lines.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_TERMINAL_HPP_
#define SLUICE_TOOLS_TERMINAL_HPP_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::tools {

/// COLUMNS where that is a number, else the width of the terminal that stdout is; 0: unlimited.
size_t terminal_width();

/// `text` in lines of at most `width` characters (0: one line), broken at blanks; those behind the
/// first begin with `indent` blanks.
std::string folded(const std::string& text, size_t indent, size_t width);

/// "PASS" or "FAIL"; green or red on a terminal unless NO_COLOR is set.
std::string verdict_word(bool pass);

/// "[=====     ] 5/12 qwen3-next prefill T 2048" on stderr if that is a terminal, else nothing.
/// done = total takes it away.
void show_progress(size_t done, size_t total, const std::string& what);

/// "2026-11-21T12:00:00Z".
std::string utc_now();

/// Rows of text, printed in columns as wide as their widest cell. Columns of "-" alone are left out; a
/// table wider than the terminal is printed in parts, each with the first column.
class Table {
 public:
  /// Columns whose header begins with '<' are left-aligned, the others right-aligned.
  explicit Table(std::vector<std::string> header);
  /// One cell per column.
  void add(std::vector<std::string> row);
  void print() const;

 private:
  bool says_nothing(size_t column) const;
  /// The columns of each part.
  std::vector<std::vector<size_t>> blocks(const std::vector<size_t>& widths, size_t limit) const;
  void print_row(const std::vector<std::string>& row, const std::vector<size_t>& columns,
                 const std::vector<size_t>& widths) const;

  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

/// "1 case", "2 cases".
std::string counted(int64_t count, const char* noun);
/// "12.3 ms"; three digits.
std::string seconds_text(double seconds);
/// "1.23e-07", or "0" if nothing is wrong at all.
std::string error_text(double error);
/// 12345.6 as "12346", 1.23 as "1.23": three digits or more.
std::string number_text(double value);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_TERMINAL_HPP_
