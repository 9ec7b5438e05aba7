// The subcommands of `sluice bench`; as those of commands.hpp.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_BENCH_HPP_
#define SLUICE_TOOLS_BENCH_BENCH_HPP_

#include "tools/commands.hpp"

namespace sluice::tools {

Action add_bench_cpu(CLI::App& bench);
Action add_bench_decode(CLI::App& bench);
Action add_bench_layer(CLI::App& bench);
Action add_bench_prefill(CLI::App& bench);
Action add_bench_parts(CLI::App& bench);
Action add_bench_stages(CLI::App& bench);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_BENCH_HPP_
