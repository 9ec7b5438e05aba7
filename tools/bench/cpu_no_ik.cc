// Stands in for cpu_peer_ik.cc where ik_llama.cpp was not linked in.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_contender.hpp"

namespace sluice::tools {

std::unique_ptr<Contender> make_ik_contender(const BenchProblem&, int64_t, int) { return nullptr; }

}  // namespace sluice::tools
