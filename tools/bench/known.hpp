// Handles numbers that may not be known, which are NaN in rows.
// Numbers that may not be known, which are NaN in rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_KNOWN_HPP_
#define SLUICE_TOOLS_BENCH_KNOWN_HPP_

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::tools {

/// For tables: "-" for what is not known.
inline std::string text_of(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

/// For records: null for what is not known.
inline nlohmann::json number_or_null(double value) {
  return std::isnan(value) ? nlohmann::json(nullptr) : nlohmann::json(value);
}

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_KNOWN_HPP_
