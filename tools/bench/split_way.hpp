// Names the ways to spread sequences over a GPU, as the command line has them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_SPLIT_WAY_HPP_
#define SLUICE_TOOLS_BENCH_SPLIT_WAY_HPP_

#include <string>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::tools {

/// "auto", "never", "columns", "length", or a number of segments.
struct SplitWay {
  std::string name = "auto";
  Split split = Split::kAuto;
  int32_t value = 0;
};

/// What is wrong with the text, empty if nothing.
std::string parse_split_way(const std::string& text, SplitWay* out);

/// auto and every forced way that --sweep compares with it.
std::vector<SplitWay> swept_ways();

/// "auto", "strict", "forget".
const std::vector<std::string>& history_names();
History history_of(const std::string& name);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_SPLIT_WAY_HPP_
