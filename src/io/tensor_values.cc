// Gives callers the tensors of a file: views for the C interface, values for comparisons.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "core/dense_view.hpp"
#include "core/numeric.hpp"
#include "io/safetensors_reader.hpp"

namespace sluice::io {
namespace {

template <class Raw, class Value, class Convert>
std::vector<Value> convert_all(const TensorEntry& entry, Convert convert) {
  std::vector<Value> values(static_cast<size_t>(entry.elements));
  for (size_t i = 0; i < values.size(); ++i) {
    Raw raw;
    std::memcpy(&raw, entry.data + i * sizeof raw, sizeof raw);
    values[i] = convert(raw);
  }
  return values;
}

}  // namespace

sluice_tensor input_view(const TensorEntry& entry) noexcept {
  return core::dense_view(const_cast<std::byte*>(entry.data), dlpack_type(entry.type), entry.shape);
}

std::vector<double> read_floats(const TensorEntry& entry) {
  switch (entry.type) {
    case ElementType::kF64:
      return convert_all<double, double>(entry, [](double x) { return x; });
    case ElementType::kF16:
      return convert_all<uint16_t, double>(
          entry, [](uint16_t x) { return static_cast<double>(core::float_from_float16(x)); });
    case ElementType::kBF16:
      return convert_all<uint16_t, double>(
          entry, [](uint16_t x) { return static_cast<double>(core::float_from_bfloat16(x)); });
    default:
      return convert_all<float, double>(entry, [](float x) { return static_cast<double>(x); });
  }
}

std::vector<int64_t> read_integers(const TensorEntry& entry) {
  if (entry.type == ElementType::kI64) {
    return convert_all<int64_t, int64_t>(entry, [](int64_t x) { return x; });
  }
  return convert_all<int32_t, int64_t>(entry, [](int32_t x) { return int64_t{x}; });
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dimension : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dimension);
  }
  return text + "]";
}

}  // namespace sluice::io
