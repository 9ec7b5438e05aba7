// Drafts a case file of one case, to be changed before it is read, and has a valid one of each operator.
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

/// A valid case of each operator.
namespace drafts {

inline Draft prefill() {
  return {{{"op", "prefill"}, {"use_qk_l2norm", true}, {"scale", nullptr}},
          {{"q", {1, 5, 2, 4}},
           {"k", {1, 5, 2, 4}},
           {"v", {1, 5, 6, 3}},
           {"g", {1, 5, 6}},
           {"beta", {1, 5, 6}},
           {"o", {1, 5, 6, 3}},
           {"initial_state", {3, 6, 4, 3}},
           {"final_state", {3, 6, 4, 3}}},
          {0, 2, 2, 4},
          {}};
}

inline Draft decode() {
  Draft draft = prefill();
  draft.description = {{"op", "decode"}, {"steps", 5}};
  draft.cu_seqlens.clear();
  draft.floats["initial_state"] = draft.floats["final_state"] = {1, 6, 4, 3};
  return draft;
}

inline Draft conv1d() {
  return {{{"op", "conv1d"}, {"activation", "none"}},
          {{"x", {2, 5, 8}},
           {"weight", {8, 4}},
           {"bias", {8}},
           {"initial_state", {2, 8, 3}},
           {"out", {2, 5, 8}},
           {"final_state", {2, 8, 3}}},
          {},
          {}};
}

inline Draft gated_norm() {
  return {{{"op", "gated_norm"}, {"activation", "sigmoid"}, {"norm_rounding", "hf"}},
          {{"x", {2, 5, 8}}, {"z", {2, 5, 8}}, {"weight", {8}}, {"out", {2, 5, 8}}},
          {},
          {}};
}

inline Draft layer() {
  return {{{"op", "layer"},
           {"packing", "qwen3_5"},
           {"num_k_heads", 1},
           {"num_v_heads", 2},
           {"head_k_dim", 4},
           {"head_v_dim", 3},
           {"conv_width", 4},
           {"steps", 2}},
          {{"conv_weight", {14, 4}},
           {"A_log", {2}},
           {"dt_bias", {2}},
           {"norm_weight", {3}},
           {"out_proj_weight", {5, 6}},
           {"step0.qkv", {1, 7, 14}},
           {"step0.z", {1, 7, 6}},
           {"step0.b", {1, 7, 2}},
           {"step0.a", {1, 7, 2}},
           {"step0.norm_out", {1, 7, 2, 3}},
           {"step0.output", {1, 7, 5}},
           {"step1.qkv", {1, 1, 14}},
           {"step1.z", {1, 1, 6}},
           {"step1.b", {1, 1, 2}},
           {"step1.a", {1, 1, 2}},
           {"step1.norm_out", {1, 1, 2, 3}},
           {"step1.output", {1, 1, 5}},
           {"final_state", {1, 2, 4, 3}}},
          {},
          {}};
}

}  // namespace drafts

}  // namespace sluice::io

#endif  // SLUICE_TESTS_UNIT_CASE_DRAFT_HPP_
