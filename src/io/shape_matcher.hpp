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
  Matcher(const SafetensorsFile& file, const Case& of, std::set<std::string>* used)
      : file_(file), prefix_(of.name + "."), used_(used) {}

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
  const TensorEntry* floats(const std::string& tensor, const Symbols& shape, bool required) {
    const TensorEntry* entry = get(tensor, required);
    if (entry == nullptr) return nullptr;
    if (!is_floating(entry->type)) {
      complain(quoted(tensor) + " dtype = " + element_type_name(entry->type) +
               ", expected F64, F32, F16 or BF16");
    }
    match(tensor, *entry, shape);
    return entry;
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
  std::string prefix_;
  std::set<std::string>* used_;
  std::map<std::string, int64_t> sizes_;
  std::string reason_;
};

// Adds an expected result if it is there.
inline void expect(Matcher& match, const std::string& tensor, const Symbols& shape, bool required,
                   Case* out) {
  if (match.floats(tensor, shape, required) != nullptr) out->expected.push_back(tensor);
}

// Symbols of a tensor with a row for each token and head, in the case's layout.
inline Symbols token_rows(const Case& of, const std::string& heads, const std::string& inner) {
  Symbols shape = of.head_first ? Symbols{"B", heads, "T"} : Symbols{"B", "T", heads};
  if (!inner.empty()) shape.push_back(inner);
  return shape;
}

// g as [B,T,HV] or, by its rank, key-wise [B,T,HV,K].
void match_gates(Matcher& match, Case* out);

// cu_seqlens of a packed batch fixes N; otherwise N = B.
void match_rows(Matcher& match);

// Inputs of the delta rule but states and rows: q, k, v, gates, write strengths.
void match_delta_inputs(Matcher& match, Case* out);

// A complaint unless HV is a multiple of H, once both are known.
void check_value_heads(Matcher& match);

// Symbols of a recurrent state in the case's layout.
inline Symbols state_symbols(const Case& of) {
  const bool vk = of.state_layout == SLUICE_STATE_VK;
  return {"N", "HV", vk ? "V" : "K", vk ? "K" : "V"};
}

// Tensors of op gradients.
void match_gradients(Matcher& match, Case* out);

// Tensors of op stages.
void match_stages(Matcher& match, Case* out);

}  // namespace sluice::io

#endif  // SLUICE_IO_SHAPE_MATCHER_HPP_
