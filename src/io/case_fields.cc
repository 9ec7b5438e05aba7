// Reads the fields of one case description, and names what is wrong with them.
// SPDX-License-Identifier: Apache-2.0
#include "io/case_fields.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "io/strict_json.hpp"
#include "sluice/enumerations.hpp"

namespace sluice::io {
namespace {

using nlohmann::json;

// Dimensions beyond this are no layer of any model; products of two stay far from overflow.
constexpr int64_t kMaxDimension = 1 << 20;

// Words in the order of their values. CaseOp:
constexpr const char* kCaseOps[] = {"prefill", "decode", "conv1d",    "gated_norm",
                                    "layer",   "stages", "gradients", nullptr};
constexpr const char* kStateTypeWords[] = {"f32", "bf16", "f16", nullptr};
constexpr const char* kLayoutWords[] = {"bthd", "bhtd", nullptr};  // whether heads come first
constexpr const char* kFusedWords[] = {"none", "pairs", nullptr};
constexpr const char* kPackingNames[] = {"qwen3_5", "qwen3_next", nullptr};  // sluice_packing

// Takes fields one by one, remembers the first complaint and which fields were asked for.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  /// One of `words` (those of an enumeration are in sluice/enumerations.hpp) from `first` on, at
  /// most `count`.
  template <class Value>
  void word(const char* name, const char* const* words, Value* out, int first = 0, int count = 99,
            bool required = false) {
    const json* field = take(name, required);
    if (field == nullptr) return;
    std::string known;
    for (int i = first; words[i] != nullptr && i < first + count; ++i) {
      if (field->is_string() && field->get_ref<const std::string&>() == words[i]) {
        *out = static_cast<Value>(i);
        return;
      }
      known += (known.empty() ? "" : ", ") + std::string(words[i]);
    }
    complain(name, *field, "one of " + known);
  }
  template <class Value>
  void required_word(const char* name, const char* const* words, Value* out) {
    word(name, words, out, 0, 99, true);
  }

  void number(const char* name, double smallest, double* out) {
    const json* field = take(name, false);
    if (field == nullptr) return;
    const double value = field->is_number() ? field->get<double>() : std::nan("");
    if (!std::isfinite(value) || value < smallest) {
      complain(name, *field, "a number >= " + json(smallest).dump());
    } else {
      *out = value;
    }
  }

  // null is the default, as absence is.
  void optional_number(const char* name, std::optional<double>* out) {
    const json* field = take(name, false);
    if (field == nullptr || field->is_null()) return;
    const double value = field->is_number() ? field->get<double>() : std::nan("");
    if (!std::isfinite(value)) {
      complain(name, *field, "a finite number or null");
    } else {
      *out = value;
    }
  }

  void integer(const char* name, int64_t* out, bool required) {
    const json* field = take(name, required);
    if (field == nullptr) return;
    const uint64_t value = field->is_number_unsigned() ? field->get<uint64_t>() : 0;
    if (value < 1 || value > kMaxDimension) {
      complain(name, *field, "an integer in 1.." + std::to_string(kMaxDimension));
    } else {
      *out = static_cast<int64_t>(value);
    }
  }

  void boolean(const char* name, bool* out) {
    const json* field = take(name, false);
    if (field == nullptr) return;
    if (field->is_boolean()) {
      *out = field->get<bool>();
    } else {
      complain(name, *field, "true or false");
    }
  }

  // For fields that say something to people only.
  void ignore(const char* name) { taken_.insert(name); }

  std::string finish() {
    for (const auto& [name, value] : object_.items()) {
      if (reason_.empty() && !taken_.contains(name)) {
        reason_ = "field '" + printable(name) + "' is unknown (it may change what is computed)";
      }
    }
    return reason_;
  }

 private:
  const json* take(const char* name, bool required) {
    taken_.insert(name);
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    if (required && reason_.empty()) reason_ = "field '" + std::string(name) + "' is missing";
    return nullptr;
  }

  void complain(const char* name, const json& found, const std::string& expected) {
    if (!reason_.empty()) return;
    reason_ = "field '" + std::string(name) + "' = " + printable(found.dump(), 40) + ", expected " +
              expected;
  }

  const json& object_;
  std::set<std::string> taken_;
  std::string reason_;
};

void read_state_fields(Fields& fields, Case* out) {
  fields.word("state_layout", kStateLayoutWords, &out->state_layout);
  constexpr ElementType kTypes[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16};
  size_t type = 0;
  fields.word("state_dtype", kStateTypeWords, &type);
  out->state_type = kTypes[type];
}

void read_options(Fields& fields, Case* out) {
  core::for_each_option(out->options, [&](const core::Option& option, auto& member) {
    using Member = std::remove_reference_t<decltype(member)>;
    if (!has_option(out->op, option.name)) return;
    if constexpr (std::is_enum_v<Member>) {
      fields.word(option.name, option.words, &member);
    } else if constexpr (!std::is_same_v<Member, double>) {
      fields.optional_number(option.name, &member);
    } else if (option.standard > 0) {
      fields.number(option.name, 0, &member);
    } else {
      std::optional<double> value;
      fields.optional_number(option.name, &value);
      member = value.value_or(option.standard);
    }
  });
}

void read_delta_rule_fields(Fields& fields, Case* out) {
  read_state_fields(fields, out);
  read_options(fields, out);
  fields.word("layout", kLayoutWords, &out->head_first);
  bool l2norm = false;
  fields.boolean("use_qk_l2norm", &l2norm);
  out->options.qk_norm = l2norm ? SLUICE_QK_NORM_L2 : SLUICE_QK_NORM_NONE;
}

void read_norm_fields(Fields& fields, const char* activation, Case* out) {
  fields.number("norm_eps", 0, &out->norm_eps);
  fields.word(activation, kActivationWords, &out->activation, SLUICE_ACTIVATION_SILU);
}

void read_layer_fields(Fields& fields, Case* out) {
  fields.required_word("packing", kPackingNames, &out->packing);
  fields.integer("num_k_heads", &out->shape.H, true);
  fields.integer("num_v_heads", &out->shape.HV, true);
  fields.integer("head_k_dim", &out->shape.K, true);
  fields.integer("head_v_dim", &out->shape.V, true);
  fields.integer("conv_width", &out->shape.W, true);
  fields.integer("steps", &out->steps, true);
  read_state_fields(fields, out);
  read_options(fields, out);
  read_norm_fields(fields, "gate_activation", out);
  fields.word("norm_rounding", kNormRoundingWords, &out->rounding);
}

void read_gated_norm_fields(Fields& fields, Case* out) {
  read_norm_fields(fields, "activation", out);
  fields.word("norm_rounding", kNormRoundingWords, &out->rounding, 0, SLUICE_NORM_ROUND_INPUT);
}

void read_stage_fields(Fields& fields, Case* out) {
  fields.integer("chunk_size", &out->shape.C, true);
  fields.word("layout", kLayoutWords, &out->head_first);
  fields.word("state_layout", kStateLayoutWords, &out->state_layout);
  read_options(fields, out);
  fields.word("direction", kDirectionWords, &out->direction);
  fields.word("triangle", kTriangleWords, &out->triangle);
  fields.word("fused", kFusedWords, &out->fused_pairs);
}

std::string check_combination(const Case& c) {
  const bool layer = c.op == CaseOp::kLayer, bounds = c.options.gate_lower_bound < 0;
  const bool bounded = layer ? bounds : c.options.gate_space == SLUICE_GATE_RAW_BOUNDED;
  if (bounded != bounds || c.options.gate_lower_bound > 0) {
    return "field 'gate_lower_bound' = " + json(c.options.gate_lower_bound).dump() +
           (layer     ? ", expected a number < 0 (bounded gates)"
            : bounded ? ", expected a number < 0 (gate_space raw_bounded)"
                      : ", expected none (only with gate_space raw_bounded)");
  }
  if (c.op == CaseOp::kLayer && c.shape.HV % c.shape.H != 0) {
    return "field 'num_v_heads' = " + std::to_string(c.shape.HV) +
           ", expected a multiple of num_k_heads = " + std::to_string(c.shape.H) +
           " (grouped value heads)";
  }
  const int64_t C = c.shape.C;
  if (c.op == CaseOp::kStages && C != 16 && C != 32 && C != 64 && C != 128) {
    return "field 'chunk_size' = " + std::to_string(C) + ", expected 16, 32, 64 or 128";
  }
  const bool interleaved = c.op == CaseOp::kLayer && c.packing == SLUICE_PACKING_INTERLEAVED;
  if (interleaved && c.options.head_map != SLUICE_HEAD_MAP_BLOCK) {
    return "field 'head_map' = \"cyclic\", expected \"block\" (packing qwen3_next)";
  }
  return {};
}

}  // namespace

const char* case_op_name(CaseOp op) noexcept { return kCaseOps[static_cast<size_t>(op)]; }

bool has_option(CaseOp op, std::string_view name) {
  const std::vector<std::string_view> layer = {"scale", "l2norm_eps", "eigenvalues", "head_map",
                                               "gate_lower_bound"},
                                      stages = {"scale", "head_map", "rule"};
  const auto in = [&](const auto& list) { return std::ranges::find(list, name) != list.end(); };
  if (op == CaseOp::kConv1d || op == CaseOp::kGatedNorm) return false;
  if (op == CaseOp::kLayer) return in(layer);
  return op == CaseOp::kStages ? in(stages) : name != "qk_norm";
}

std::string read_case_fields(const json& description, Case* out) {
  if (!description.is_object()) return "is described by no object";
  Fields fields(description);
  fields.required_word("op", kCaseOps, &out->op);
  fields.number("tolerance_rel_l2", 0, &out->tolerance);
  for (const char* name : {"text", "note", "generator"}) fields.ignore(name);
  switch (out->op) {
    case CaseOp::kDecode:
      fields.integer("steps", &out->steps, true);
      [[fallthrough]];
    case CaseOp::kPrefill:
    case CaseOp::kGradients:
      read_delta_rule_fields(fields, out);
      break;
    case CaseOp::kConv1d:
      fields.word("activation", kActivationWords, &out->activation, 0, SLUICE_ACTIVATION_SIGMOID);
      break;
    case CaseOp::kGatedNorm:
      read_gated_norm_fields(fields, out);
      break;
    case CaseOp::kLayer:
      read_layer_fields(fields, out);
      break;
    case CaseOp::kStages:
      read_stage_fields(fields, out);
      break;
  }
  const std::string reason = fields.finish();
  return reason.empty() ? check_combination(*out) : reason;
}

}  // namespace sluice::io
