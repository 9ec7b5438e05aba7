// Stands in for what was not linked in: the CUDA half, ggml, ik_llama.cpp.
// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "tools/bench/cpu_contender.hpp"

namespace sluice::tools {

#if !defined(SLUICE_TOOL_HAS_CUDA)
std::unique_ptr<Machine> make_cuda_machine(double*) {
  throw std::runtime_error(
      "backend cuda is not part of this build (configure with -DSLUICE_CUDA=ON)");
}

std::unique_ptr<GraphTimer> capture_graph(const std::function<void(void*)>&) {
  throw std::runtime_error("this build has no CUDA half");
}
#endif

#if !defined(SLUICE_TOOL_HAS_GGML)
std::unique_ptr<Contender> make_ggml_contender(const BenchProblem&, int64_t, int, bool) {
  return nullptr;
}
#endif

#if !defined(SLUICE_TOOL_HAS_IK)
std::unique_ptr<Contender> make_ik_contender(const BenchProblem&, int64_t, int) { return nullptr; }
#endif

}  // namespace sluice::tools
