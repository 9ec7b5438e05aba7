// Checks the tensors of one case against its description.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_CASE_TENSORS_HPP_
#define SLUICE_IO_CASE_TENSORS_HPP_

#include <set>
#include <string>

#include "io/case_file.hpp"

namespace sluice::io {

/// Fills out->shape and out->expected from the tensors named `<case>.*`, and adds the full names of
/// those that belong to the case to *used. Returns the first complaint, or an empty string.
std::string read_case_tensors(const SafetensorsFile& file, Case* out, std::set<std::string>* used);

}  // namespace sluice::io

#endif  // SLUICE_IO_CASE_TENSORS_HPP_
