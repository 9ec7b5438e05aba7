// Reads the fields of one case description.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_CASE_FIELDS_HPP_
#define SLUICE_IO_CASE_FIELDS_HPP_

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "io/case_file.hpp"

namespace sluice::io {

/// Fills everything but shape and expected from a description. Returns the first complaint, or an
/// empty string.
std::string read_case_fields(const nlohmann::json& description, Case* out);

}  // namespace sluice::io

#endif  // SLUICE_IO_CASE_FIELDS_HPP_
