// Makes a call of layer_prefill or layer_decode: one config and one seed give the same values in
// either packing, and the same memory for every implementation that runs it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_LAYER_CALL_HPP_
#define SLUICE_TESTS_PARITY_LAYER_CALL_HPP_

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "parity/delta_call.hpp"

namespace sluice::check {

struct LayerConfig {
  std::string name;
  uint64_t seed = 1;
  sluice_op op = SLUICE_OP_LAYER_PREFILL;
  int64_t B = 2, T = 5, H = 2, HV = 4, K = 24, V = 16, W = 4;
  int64_t L = 0;              ///< columns of the convolution states; 0 = W - 1
  bool conv_outside = false;  ///< dense convolution states [slots,L,D] in memory
  bool packed = false;
  std::vector<int64_t> lengths = {};
  int64_t rows_past_end = 0;
  bool wild = false;  ///< strides at random
  sluice_dtype io = kF32, parameters = kF32, out = kF32, core = kF32;
  sluice_dtype state = kF32, conv_state = kF32, index = kI32;
  sluice_packing packing = SLUICE_PACKING_FLAT;
  bool key_gates = false;       ///< not with INTERLEAVED
  double gate_lower_bound = 0;  ///< of bounded gates
  bool has_rates = true;        ///< A_log and dt_bias, where bounded gates can do without
  sluice_conv_state_form form = SLUICE_CONV_STATE_SHIFT;
  sluice_state_layout layout = SLUICE_STATE_KV;
  sluice_eigenvalues eigenvalues = SLUICE_EIGENVALUES_POSITIVE;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_activation gate_activation = SLUICE_ACTIVATION_SILU;
  sluice_norm_rounding rounding = SLUICE_NORM_ROUND_ONCE;
  sluice_state_writes state_writes = SLUICE_STATE_WRITE_LAST;
  std::optional<double> scale = std::nullopt;
  double l2norm_eps = 0, norm_eps = 0;  ///< 0 = the default
  bool has_bias = true, has_core = true;
  bool states = true;    ///< initial and final states of both kinds
  bool in_place = true;  ///< states replace what they started from
  Slots slots = Slots::kRead;
  int64_t pad_below = 0, columns = 0;
  bool num_accepted = false;
  std::vector<int64_t> padded = {}, fresh = {};
  bool nan_pads = false;  ///< every input of padded sequences is NaN

  int64_t sequences() const { return packed ? static_cast<int64_t>(lengths.size()) : B; }
  int64_t rows() const;  ///< per batch entry
  int64_t batch() const { return packed ? 1 : B; }
  int64_t channels() const { return 2 * H * K + HV * V; }
  std::vector<int64_t> offsets() const;
};

inline void PrintTo(const LayerConfig& config, std::ostream* out) { *out << config.name; }

/// The layer's inputs, in packing FLAT; a [B,T,HV,K] and dt_bias [HV,K] of key-wise gates.
struct LayerValues {
  Array qkv, z, b, a;                               ///< [B,T,..]
  Array weight, bias, A_log, dt_bias, norm_weight;  ///< parameters
};
LayerValues make_layer_values(const LayerConfig& config);

struct LayerResult {
  int code = SLUICE_OK;
  std::string message, kernel;
  Array out, core;                                 ///< [B,T,HV,V]
  Array state_initial, state, conv_initial, conv;  ///< whole pools; state, conv: written ones
  std::string damage;                              ///< empty = nothing
};

/// Builds the call from the config and runs it once. workspace_fill: its bytes before the call.
LayerResult run_layer(const LayerConfig& config, sluice_implementation implementation,
                      int workspace_fill = 0xff);

/// core_out, out and states, each by the caps of the dtypes on its way.
Verdict judge_layer(const LayerConfig& config, const LayerResult& found, const LayerResult& truth);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_LAYER_CALL_HPP_
