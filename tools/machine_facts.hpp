// Says which kernels a model's layer gets on a machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_MACHINE_FACTS_HPP_
#define SLUICE_TOOLS_MACHINE_FACTS_HPP_

#include <string>
#include <vector>

#include "sluice/sluice.h"

namespace sluice::tools {

struct OperatorKernel {
  std::string op, kernel;  ///< "none: " and the refusal where there is none
};

/// Which kernels a Qwen3-Next layer (H 16, HV 32, K = V = 128) would get there with activations in
/// `io`, operator by operator.
std::vector<OperatorKernel> model_kernels(sluice_device where, sluice_dtype io);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_MACHINE_FACTS_HPP_
