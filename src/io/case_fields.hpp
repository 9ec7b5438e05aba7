// Reads the fields of one case description, and checks its tensors against them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_CASE_FIELDS_HPP_
#define SLUICE_IO_CASE_FIELDS_HPP_

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "io/case_file.hpp"

namespace sluice::io {

/// Fills everything but shape and expected from a description. Returns the first complaint, or an
/// empty string.
std::string read_case_fields(const nlohmann::json& description, Case* out);

/// Fills out->shape and out->expected from the tensors named `<case>.*`, and adds the full names of
/// those that belong to the case to *used. Returns the first complaint, or an empty string.
std::string read_case_tensors(const SafetensorsFile& file, Case* out, std::set<std::string>* used);

}  // namespace sluice::io

#endif  // SLUICE_IO_CASE_FIELDS_HPP_
