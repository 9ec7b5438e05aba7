// Computes the layer in 16 bits as separate operators would, for tolerances.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_LAYER_YARDSTICK_HPP_
#define SLUICE_TOOLS_LAYER_YARDSTICK_HPP_

#include "tools/execute.hpp"

namespace sluice::tools {

/// Convolution, delta rule and gated norm, each result stored in `dtype`, prefill with the rounding
/// points of chunked kernels. Its distance from the layer in float64 is what a layer in `dtype` may
/// err by.
Execution layer_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

/// A state in the case's layout as [N,HV,K,V], and back.
check::Array exchange_state(const io::Case& which, check::Array state);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_LAYER_YARDSTICK_HPP_
