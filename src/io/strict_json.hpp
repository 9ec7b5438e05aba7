// Parses JSON of untrusted origin: without exceptions, with limits, duplicate keys refused.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_STRICT_JSON_HPP_
#define SLUICE_IO_STRICT_JSON_HPP_

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace sluice::io {

/// What a text may contain; anything beyond is refused before memory is spent on it.
struct JsonLimits {
  size_t depth;         ///< nested objects and arrays, the outermost counted
  size_t array_length;  ///< elements of one array
  size_t keys;          ///< of one object
};

/// Parses a whole text into *out. Returns an empty string, or why the text was refused: not JSON,
/// not UTF-8, a key given twice in one object (parsers differ in which one counts), a limit.
std::string parse_strict_json(std::string_view text, const JsonLimits& limits, nlohmann::json* out);

/// A name out of an untrusted file as it may stand in a message: printable ASCII, at most `size`
/// characters.
std::string printable(std::string_view text, size_t size = 60);

}  // namespace sluice::io

#endif  // SLUICE_IO_STRICT_JSON_HPP_
