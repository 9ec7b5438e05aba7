// Makes a call of causal_conv1d in which everything that sluice.h leaves open can be set: one
// config, one seed, the same memory for every implementation that runs it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_CONV_CALL_HPP_
#define SLUICE_TESTS_PARITY_CONV_CALL_HPP_

#include <ostream>
#include <string>
#include <vector>

#include "parity/delta_call.hpp"

namespace sluice::check {

struct ConvConfig {
  std::string name;
  uint64_t seed = 1;
  int64_t B = 2, T = 5, D = 24, W = 4;
  int64_t L = 0;  ///< columns of the states; 0 = W - 1
  bool packed = false;
  std::vector<int64_t> lengths = {};
  int64_t rows_past_end = 0;
  bool wild = false;             ///< strides at random
  bool channel_first = false;    ///< x and out as [B,D,T] in memory
  bool columns_outside = false;  ///< states as [slot][column][channel] in memory
  sluice_dtype x = kF32, weight = kF32, bias = kF32, out = kF32, initial = kF32, final = kF32;
  sluice_dtype index = kI32;
  bool has_bias = true, has_initial = true, has_final = true, in_place = false;
  sluice_activation activation = SLUICE_ACTIVATION_SILU;
  sluice_conv_state_form form = SLUICE_CONV_STATE_SHIFT;
  bool num_accepted = false;
  Slots slots = Slots::kNone;
  int64_t pad_below = 0;
  std::vector<int64_t> padded = {}, padded_writes = {}, fresh = {};

  int64_t sequences() const { return packed ? static_cast<int64_t>(lengths.size()) : B; }
  std::vector<int64_t> offsets() const;
};

inline void PrintTo(const ConvConfig& config, std::ostream* out) { *out << config.name; }

struct ConvResult {
  int code = SLUICE_OK;
  std::string message, kernel;
  Array out;             ///< [B,T,D]
  Array initial, final;  ///< whole pools [slots,D,L]
  std::string damage;    ///< what was written that may not be; empty = nothing
};

/// Builds the call from the config and runs it once.
ConvResult run_conv(const ConvConfig& config, sluice_implementation implementation);

/// Outputs within rounding of their dtype, states exactly equal.
Verdict judge_conv(const ConvConfig& config, const ConvResult& found, const ConvResult& truth);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_CONV_CALL_HPP_
