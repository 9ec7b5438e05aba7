// Takes a quick look at prefill and decode times: `sluice bench` by itself.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_QUICK_HPP_
#define SLUICE_TOOLS_BENCH_QUICK_HPP_

#include <string>

#include "tools/commands.hpp"

namespace sluice::tools {

/// One sequence to prefill, a batch of others to decode, with the heads of a layer.
struct QuickSettings {
  Implementation backend = Implementation::kAuto;
  int64_t heads = 16, value_heads = 32, dim = 128, tokens = 1024, batch = 4;
  int threads = 0;  ///< of the CPU backend; 0: its own choice
};

void add_quick_options(CLI::App& command, QuickSettings* settings);
int bench_quick(const QuickSettings& settings);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_QUICK_HPP_
