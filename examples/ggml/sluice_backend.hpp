// Declares Sluice as a ggml backend: GGML_OP_GATED_DELTA_NET on the CPU, beside ggml's own kernels, and,
// built with SLUICE_GGML_CUDA, within ggml's CUDA backend.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_EXAMPLES_GGML_SLUICE_BACKEND_HPP_
#define SLUICE_EXAMPLES_GGML_SLUICE_BACKEND_HPP_

#include <ggml-backend.h>

/// The registry entry: ggml_backend_register(sluice_ggml_reg()) before backends are made. Its device is
/// an accelerator, which ggml's scheduler and llama.cpp ask before the CPU. For CUDA there is no device
/// of its own: those that ggml has make backends which give gated delta nets to Sluice.
ggml_backend_reg_t sluice_ggml_reg();

/// Operations that ran on Sluice in this process.
long sluice_ggml_calls();

#endif  // SLUICE_EXAMPLES_GGML_SLUICE_BACKEND_HPP_
