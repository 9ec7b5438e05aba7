// Declares how Sluice takes gated delta nets over from ggml's CUDA backend.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_EXAMPLES_GGML_SLUICE_CUDA_HPP_
#define SLUICE_EXAMPLES_GGML_SLUICE_CUDA_HPP_

namespace sluice_ggml {

/// From here on every backend that one of ggml's CUDA devices makes gives its gated delta nets to Sluice.
/// Does nothing where ggml has no CUDA device.
void take_over_cuda();

}  // namespace sluice_ggml

#endif  // SLUICE_EXAMPLES_GGML_SLUICE_CUDA_HPP_
