// Copies strided views of any dtype to dense arrays of doubles and back.
// SPDX-License-Identifier: Apache-2.0
#include "check/array.hpp"

#include "check/runs.hpp"
#include "core/dense_view.hpp"
#include "core/numeric.hpp"

namespace sluice::check {

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
  if (array.empty()) return {};
  // An array of no elements is still a present view.
  static double nothing = 0.0;
  double* const data = array.values.empty() ? &nothing : const_cast<double*>(array.values.data());
  return core::dense_view(data, kF64, array.shape);
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
  double value;
  load_run(view, {.offset = offset}, &value);
  return value;
}

void store_element(const sluice_tensor& view, int64_t offset, double value) noexcept {
  store_run(view, {.offset = offset}, &value);
}

Array to_array(const sluice_tensor& view) {
  Array array;
  if (view.data == nullptr) return array;
  array = Array({view.shape, view.shape + view.rank});
  double* values = array.values.data();
  for_each_run(view, [&](const Run& run) {
    load_run(view, run, values);
    values += run.count;
  });
  return array;
}

}  // namespace sluice::check
