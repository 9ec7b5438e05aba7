// Drafts a case file of one case, to be changed before it is read.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_UNIT_CASE_DRAFT_HPP_
#define SLUICE_TESTS_UNIT_CASE_DRAFT_HPP_

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/case_file.hpp"
#include "io/safetensors_writer.hpp"

namespace sluice::io {

using Shape = std::vector<int64_t>;

/// Every number of its tensors is one half.
struct Draft {
  nlohmann::json description;
  std::map<std::string, Shape> floats;
  std::vector<int64_t> cu_seqlens;
  std::map<std::string, std::string> metadata = {};  ///< in place of what follows from the rest
  std::string name = "a.b";

  Status read(CaseFile* out) const {
    SafetensorsWriter writer;
    for (const auto& [tensor, shape] : floats) {
      size_t size = 1;
      for (const int64_t n : shape) size *= static_cast<size_t>(n);
      writer.add_floats(name + "." + tensor, ElementType::kF32, shape,
                        std::vector<double>(size, 0.5));
    }
    if (!cu_seqlens.empty()) {
      writer.add_integers(name + ".cu_seqlens", {static_cast<int64_t>(cu_seqlens.size())},
                          cu_seqlens);
    }
    writer.set_metadata(kCasesKey, nlohmann::json{{name, description}}.dump());
    for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
    const std::vector<std::byte> bytes = writer.serialize();
    SafetensorsFile file;
    const Status status = SafetensorsFile::parse(bytes, "folder/draft", &file);
    return status.ok() ? read_cases(std::move(file), out) : status;
  }
};

}  // namespace sluice::io

#endif  // SLUICE_TESTS_UNIT_CASE_DRAFT_HPP_
