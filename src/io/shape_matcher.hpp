// Matches a case's tensors with symbols of shapes, for the readers of each operator.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_SHAPE_MATCHER_HPP_
#define SLUICE_IO_SHAPE_MATCHER_HPP_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/case_file.hpp"
#include "io/strict_json.hpp"

namespace sluice::io {

using Symbols = std::vector<std::string>;

// Matches shapes with symbols: a symbol that is not bound yet takes the size it meets first.
class Matcher {
 public:
  Matcher(const SafetensorsFile& file, Case* of, std::set<std::string>* used)
      : file_(file), case_(*of), prefix_(of->name + "."), used_(used) {}

  // Symbols of a tensor with a row for each token and head, in the case's layout.
  Symbols rows(const std::string& heads, const std::string& inner = "") const {
    Symbols shape = case_.head_first ? Symbols{"B", heads, "T"} : Symbols{"B", "T", heads};
    if (!inner.empty()) shape.push_back(inner);
    return shape;
  }
  // Symbols of recurrent states in the case's layout.
  Symbols states(Symbols leading = {"N"}) const {
    const bool vk = case_.state_layout == SLUICE_STATE_VK;
    for (const char* symbol : {"HV", vk ? "V" : "K", vk ? "K" : "V"}) leading.push_back(symbol);
    return leading;
  }

  void bind(const std::string& symbol, int64_t value) { sizes_[symbol] = value; }
  void unbind(const std::string& symbol) { sizes_.erase(symbol); }
  int64_t size(const std::string& symbol) const {
    const auto found = sizes_.find(symbol);
    return found == sizes_.end() ? 0 : found->second;
  }
  const std::string& reason() const { return reason_; }
  void complain(const std::string& reason) {
    if (reason_.empty()) reason_ = reason;
  }

  // The tensor if it is there and right, else null. Missing required tensors are complaints.
  const TensorEntry* floats(const std::string& tensor, const Symbols& shape,
                            bool required = false) {
    const TensorEntry* entry = get(tensor, required);
    if (entry == nullptr) return nullptr;
    if (!is_floating(entry->type)) {
      complain(quoted(tensor) + " dtype = " + element_type_name(entry->type) +
               ", expected F64, F32, F16 or BF16");
    }
    match(tensor, *entry, shape);
    return entry;
  }

  // Adds an expected result if it is there.
  void expect(const std::string& tensor, const Symbols& shape, bool required = false) {
    if (floats(tensor, shape, required) != nullptr) case_.expected.push_back(tensor);
  }

  const TensorEntry* integers(const std::string& tensor, const Symbols& shape) {
    const TensorEntry* entry = get(tensor, false);
    if (entry == nullptr) return nullptr;
    if (entry->type != ElementType::kI32 && entry->type != ElementType::kI64) {
      complain(quoted(tensor) + " dtype = " + element_type_name(entry->type) +
               ", expected I32 or I64");
    }
    match(tensor, *entry, shape);
    return reason_.empty() ? entry : nullptr;
  }

  bool has(const std::string& tensor) { return get(tensor, false) != nullptr; }
  const TensorEntry* get(const std::string& tensor, bool required) {
    const TensorEntry* entry = file_.find(prefix_ + tensor);
    if (entry != nullptr) {
      used_->insert(entry->name);
    } else if (required) {
      complain(quoted(tensor) + " is missing");
    }
    return entry;
  }

  static std::string quoted(const std::string& tensor) {
    return "tensor '" + printable(tensor) + "'";
  }

 private:
  void match(const std::string& tensor, const TensorEntry& entry, const Symbols& shape) {
    bool same = entry.shape.size() == shape.size();
    std::string expected;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (entry.shape.size() == shape.size() && !sizes_.contains(shape[i])) {
        sizes_[shape[i]] = entry.shape[i];
      }
      const auto bound = sizes_.find(shape[i]);
      same = same && bound->second == entry.shape[i];
      expected.append(i == 0 ? "[" : ", ").append(shape[i]);
      if (bound != sizes_.end()) expected.append("=").append(std::to_string(bound->second));
    }
    if (!same) {
      complain(quoted(tensor) + " shape = " + shape_text(entry.shape) + ", expected " + expected +
               "]");
    }
  }

  const SafetensorsFile& file_;
  Case& case_;
  std::string prefix_;
  std::set<std::string>* used_;
  std::map<std::string, int64_t> sizes_;
  std::string reason_;
};

}  // namespace sluice::io

#endif  // SLUICE_IO_SHAPE_MATCHER_HPP_
