// Lists layer steps of single tokens, for the parity suites and the emulator.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_SINGLE_LAYERS_HPP_
#define SLUICE_TESTS_PARITY_SINGLE_LAYERS_HPP_

#include <utility>
#include <vector>

#include "parity/layer_call.hpp"
#include "parity/naming.hpp"

namespace sluice::check {

/// Layer steps of one token, K = V = 128, as models have them: what a GPU has a kernel of its own
/// for.
inline std::vector<LayerConfig> single_layers() {
  std::vector<LayerConfig> all;
  for (const auto& [H, HV] : {std::pair<int64_t, int64_t>{2, 2}, {1, 2}, {1, 3}, {2, 8}, {1, 8}}) {
    for (const int kind : {0, 1, 2}) {
      const sluice_dtype state = kind == 0 ? kF32 : (kind == 1 ? kBF16 : kF16);
      LayerConfig c{.name = named("H", H, "_HV", HV, "_", dtype_name(state))};
      c.op = SLUICE_OP_LAYER_DECODE, c.T = 1;
      c.K = c.V = 128, c.H = H, c.HV = HV, c.B = 4, c.state = state, c.has_bias = false;
      c.io = c.out = c.core = c.parameters = c.conv_state = kind == 2 ? kF16 : kBF16;
      c.L = HV == 2 ? 3 : 4, c.padded = {1}, c.fresh = {2}, c.conv_outside = HV == 3;
      c.head_map = HV == 8 ? SLUICE_HEAD_MAP_CYCLIC : SLUICE_HEAD_MAP_BLOCK;
      c.packing = HV == 2 ? SLUICE_PACKING_INTERLEAVED : SLUICE_PACKING_FLAT;
      c.in_place = HV != 3 || kind == 0, c.has_core = kind != 2;
      c.slots = H == 2 ? Slots::kShared : Slots::kRead;
      if (HV == 3) c.rounding = SLUICE_NORM_ROUND_HF, c.gate_activation = SLUICE_ACTIVATION_SIGMOID;
      if (HV == 8) c.rounding = SLUICE_NORM_ROUND_INPUT;
      all.push_back(c);
    }
  }
  return all;
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_SINGLE_LAYERS_HPP_
