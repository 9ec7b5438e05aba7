// Shows what long commands do while they run, and notes when they ran.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_PROGRESS_HPP_
#define SLUICE_TOOLS_PROGRESS_HPP_

#include <cstddef>
#include <string>

namespace sluice::tools {

/// "[=====     ] 5/12 qwen3-next prefill T 2048" on stderr if that is a terminal, else nothing.
/// done = total takes it away.
void show_progress(size_t done, size_t total, const std::string& what);

/// "2026-11-21T12:00:00Z".
std::string utc_now();

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_PROGRESS_HPP_
