// Says that there are no graphs in a build without CUDA.
// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "tools/bench/graph_timer.hpp"

namespace sluice::tools {

std::unique_ptr<GraphTimer> capture_graph(const std::function<void(void*)>&) {
  throw std::runtime_error("this build has no CUDA half");
}

}  // namespace sluice::tools
