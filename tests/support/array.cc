// SPDX-License-Identifier: Apache-2.0
#include "support/array.hpp"

#include <cstring>

#include "core/host_access.hpp"

namespace sluice::testing {
namespace {

template <class Element>
double load_as(const void* source) noexcept {
  Element element;
  std::memcpy(&element, source, sizeof element);
  return static_cast<double>(element);
}

template <class Element>
void store_as(void* target, double value) noexcept {
  const Element element = static_cast<Element>(value);
  std::memcpy(target, &element, sizeof element);
}

}  // namespace

const char* dtype_name(sluice_dtype dtype) noexcept {
  if (same_dtype(dtype, kF32)) return "float32";
  if (same_dtype(dtype, kF16)) return "float16";
  if (same_dtype(dtype, kBF16)) return "bfloat16";
  if (same_dtype(dtype, kF64)) return "float64";
  if (same_dtype(dtype, kI32)) return "int32";
  if (same_dtype(dtype, kI64)) return "int64";
  return same_dtype(dtype, kBool) ? "bool" : "unknown";
}

int64_t element_count(const std::vector<int64_t>& shape) noexcept {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

sluice_tensor view_of(const Array& array) noexcept {
  sluice_tensor view{};
  if (array.empty()) return view;
  // An array of no elements is still a present view.
  static double nothing = 0.0;
  view.data = array.values.empty() ? &nothing : const_cast<double*>(array.values.data());
  view.device = {SLUICE_DEVICE_CPU, 0};
  view.dtype = kF64;
  view.rank = static_cast<uint16_t>(array.shape.size());
  int64_t stride = 1;
  for (size_t i = array.shape.size(); i-- > 0;) {
    view.shape[i] = array.shape[i];
    view.stride[i] = stride;
    stride *= array.shape[i];
  }
  return view;
}

double round_to(sluice_dtype dtype, double value) noexcept {
  if (same_dtype(dtype, kF64)) return value;
  if (same_dtype(dtype, kF32)) return static_cast<double>(static_cast<float>(value));
  const float odd = core::float_to_odd_from_double(value);
  return static_cast<double>(same_dtype(dtype, kBF16)
                                 ? core::float_from_bfloat16(core::bfloat16_from_float(odd))
                                 : core::float_from_float16(core::float16_from_float(odd)));
}

Array round_to(sluice_dtype dtype, Array array) noexcept {
  for (double& value : array.values) value = round_to(dtype, value);
  return array;
}

double load_element(const sluice_tensor& view, int64_t offset) noexcept {
  const void* source =
      static_cast<const std::byte*>(view.data) + offset * core::element_size(view.dtype);
  if (core::is_float(view.dtype)) return static_cast<double>(core::load_float(source, view.dtype));
  if (same_dtype(view.dtype, kF64)) return load_as<double>(source);
  if (same_dtype(view.dtype, kI32)) return load_as<int32_t>(source);
  return same_dtype(view.dtype, kI64) ? load_as<int64_t>(source) : load_as<uint8_t>(source);
}

void store_element(const sluice_tensor& view, int64_t offset, double value) noexcept {
  void* target = static_cast<std::byte*>(view.data) + offset * core::element_size(view.dtype);
  if (core::is_float(view.dtype)) {
    core::store_float(target, view.dtype, static_cast<float>(round_to(view.dtype, value)));
  } else if (same_dtype(view.dtype, kF64)) {
    store_as<double>(target, value);
  } else if (same_dtype(view.dtype, kI32)) {
    store_as<int32_t>(target, value);
  } else if (same_dtype(view.dtype, kI64)) {
    store_as<int64_t>(target, value);
  } else {
    store_as<uint8_t>(target, value);
  }
}

Array to_array(const sluice_tensor& view) {
  Array array;
  if (view.data == nullptr) return array;
  array = Array({view.shape, view.shape + view.rank});
  std::vector<int64_t> index(view.rank, 0);
  for (double& value : array.values) {
    int64_t offset = 0;
    for (size_t i = 0; i < index.size(); ++i) offset += index[i] * view.stride[i];
    value = load_element(view, offset);
    for (size_t i = index.size(); i-- > 0 && ++index[i] == array.shape[i];) index[i] = 0;
  }
  return array;
}

}  // namespace sluice::testing
