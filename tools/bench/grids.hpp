// Names grids of prefill cells.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_GRIDS_HPP_
#define SLUICE_TOOLS_BENCH_GRIDS_HPP_

#include <string>
#include <vector>

#include "tools/bench/cell.hpp"

namespace sluice::tools {

/// marks: ten cells with goals. published: the 9 head counts x 19 length lists that FlashQLA
/// published. tileops: the rows of TileOPs (meant for --gates uniform --dtype fp16).
const std::vector<std::string>& grid_names();

/// The cells of a grid of that list.
std::vector<Cell> named_grid(const std::string& name);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_GRIDS_HPP_
