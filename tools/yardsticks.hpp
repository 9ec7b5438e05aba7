// Finds tolerances of cases in 16 bits: of the delta rule and its gradients, and of the layer as separate
// operators would compute it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_YARDSTICKS_HPP_
#define SLUICE_TOOLS_YARDSTICKS_HPP_

#include "tools/execute.hpp"
#include "tools/judge.hpp"

namespace sluice::tools {

/// Results of a prefill or decode case by the yardstick; l2norm_eps = 1e-6, scalar gates.
Results delta_rule_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

/// Every gradient of a case of op gradients by the yardstick of gradients; l2norm_eps = 1e-6.
Results gradient_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

/// Convolution, delta rule and gated norm, each result stored in `dtype`, prefill with the rounding
/// points of chunked kernels. Its distance from the layer in float64 is what a layer in `dtype` may
/// err by.
Execution layer_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

/// A state in the case's layout as [N,HV,K,V], and back.
check::Array exchange_state(const io::Case& which, check::Array state);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_YARDSTICKS_HPP_
