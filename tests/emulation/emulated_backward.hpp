// Declares how the emulator runs kernels of chunk_backward by tensor cores.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_BACKWARD_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_BACKWARD_HPP_

#include "cuda/launch.h"
#include "emulated_ctas.hpp"

namespace sluice::cuda::backward {

/// Runs a kernel with items that share a CTA, unless there are none.
template <class Params>
void run_tiles(void (*bf16)(Params, int64_t), void (*fp16)(Params, int64_t), const Params& p,
               bool is_bf16, int64_t items, int threads, Launcher& launcher) {
  if (!launcher.ok() || items == 0) return;
  launcher.note(run_persistent(is_bf16 ? bf16 : fp16, p, items, threads));
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_TESTS_EMULATION_EMULATED_BACKWARD_HPP_
