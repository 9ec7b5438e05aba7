// Stands in for cpu_peer_ggml.cc where ggml was not linked in.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_contender.hpp"

namespace sluice::tools {

std::unique_ptr<Contender> make_ggml_contender(const BenchProblem&, int64_t, int, bool) {
  return nullptr;
}

}  // namespace sluice::tools
