// The layer in 16 bits as separate operators would compute it, for tolerances.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_LAYER_YARDSTICK_HPP_
#define SLUICE_TOOLS_LAYER_YARDSTICK_HPP_

#include "tools/execute.hpp"

namespace sluice::tools {

/// Convolution, delta rule and gated norm in float64, each result stored in `dtype`. Its distance
/// from the layer in float64 is what a layer in `dtype` may err by.
Execution layer_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_LAYER_YARDSTICK_HPP_
