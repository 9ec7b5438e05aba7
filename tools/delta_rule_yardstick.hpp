// Finds tolerances for cases of the delta rule and of its gradients in 16 bits.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_DELTA_RULE_YARDSTICK_HPP_
#define SLUICE_TOOLS_DELTA_RULE_YARDSTICK_HPP_

#include "tools/judge.hpp"

namespace sluice::tools {

/// Results of a prefill or decode case by the yardstick; l2norm_eps = 1e-6, scalar gates.
Results delta_rule_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

/// Every gradient of a case of op gradients by the yardstick of gradients; l2norm_eps = 1e-6.
Results gradient_yardstick(const io::CaseFile& file, const io::Case& which, sluice_dtype dtype);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_DELTA_RULE_YARDSTICK_HPP_
