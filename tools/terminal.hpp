// Fits text to the terminal: its width, folded lines, coloured verdicts, what long commands do while they
// run. Where stdout is no terminal nothing is folded or coloured, so that scripts read whole lines.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_TERMINAL_HPP_
#define SLUICE_TOOLS_TERMINAL_HPP_

#include <cstddef>
#include <string>

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

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_TERMINAL_HPP_
