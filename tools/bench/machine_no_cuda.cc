// Stands in for machine_cuda.cc in builds without the CUDA half.
// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "tools/bench/machine.hpp"

namespace sluice::tools {

std::unique_ptr<Machine> make_cuda_machine(double*) {
  throw std::runtime_error(
      "backend cuda is not part of this build (configure with -DSLUICE_CUDA=ON)");
}

std::unique_ptr<GraphTimer> capture_graph(const std::function<void(void*)>&) {
  throw std::runtime_error("this build has no CUDA half");
}

}  // namespace sluice::tools
