// Prints progress lines and the time of a run.
// SPDX-License-Identifier: Apache-2.0
#include "tools/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <ctime>

namespace sluice::tools {

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
