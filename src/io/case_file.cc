// Reads case files and checks that descriptions and tensors belong together.
// SPDX-License-Identifier: Apache-2.0
#include "io/case_file.hpp"

#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "io/case_fields.hpp"
#include "io/strict_json.hpp"

namespace sluice::io {
namespace {

// Descriptions are flat but for what a generator notes about itself.
constexpr JsonLimits kDescriptionLimits{6, 4096, 4096};

Status refuse(const SafetensorsFile& file, const std::string& reason) {
  const std::string& path = file.path();
  const size_t slash = path.rfind('/');
  return Status::failure(Code::kInvalidArgument, "%s: %s",
                         printable(path.substr(slash == std::string::npos ? 0 : slash + 1)).c_str(),
                         reason.c_str());
}

Status read_all(CaseFile* out) {
  const auto found = out->file.metadata().find(kCasesKey);
  if (found == out->file.metadata().end()) {
    return refuse(out->file, "has no metadata 'sluice.cases' (is this a case file?)");
  }
  nlohmann::json descriptions;
  if (const std::string reason =
          parse_strict_json(found->second, kDescriptionLimits, &descriptions);
      !reason.empty()) {
    return refuse(out->file, "metadata 'sluice.cases': " + reason);
  }
  if (!descriptions.is_object()) {
    return refuse(out->file, "metadata 'sluice.cases' is no object of cases");
  }
  std::set<std::string> used;
  for (const auto& [name, description] : descriptions.items()) {
    Case& next = out->cases.emplace_back();
    next.name = name;
    next.description = description.dump();
    std::string reason = read_case_fields(description, &next);
    if (reason.empty()) reason = read_case_tensors(out->file, &next, &used);
    if (!reason.empty()) {
      return refuse(out->file, "case '" + printable(name, 50) + "' " + reason);
    }
  }
  for (const TensorEntry& tensor : out->file.tensors()) {
    if (!used.contains(tensor.name)) {
      return refuse(out->file, "tensor '" + printable(tensor.name) + "' belongs to no case");
    }
  }
  return ok_status();
}

}  // namespace

const TensorEntry* CaseFile::find(const Case& of, std::string_view tensor) const {
  return file.find(of.name + "." + std::string(tensor));
}

Status read_cases(SafetensorsFile file, CaseFile* out) noexcept {
  try {
    *out = CaseFile();
    out->file = std::move(file);
    return read_all(out);
  } catch (const std::exception& error) {
    return Status::failure(Code::kInternal, "%s", error.what());
  }
}

Status open_case_file(const std::string& path, CaseFile* out) noexcept {
  SafetensorsFile file;
  if (Status status = SafetensorsFile::open(path, &file); !status.ok()) return status;
  return read_cases(std::move(file), out);
}

}  // namespace sluice::io
