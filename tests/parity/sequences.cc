// Cuts, joins and permutes sequences of inputs and results.
// SPDX-License-Identifier: Apache-2.0
#include "parity/sequences.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace sluice::check {
namespace {

int64_t product(const std::vector<int64_t>& shape, size_t first, size_t last) {
  int64_t count = 1;
  for (size_t i = first; i < last; ++i) count *= shape[i];
  return count;
}

}  // namespace

std::vector<int64_t> range(int64_t first, int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

Array take(const Array& array, size_t axis, const std::vector<int64_t>& indices) {
  if (array.empty()) return {};
  std::vector<int64_t> shape = array.shape;
  shape[axis] = static_cast<int64_t>(indices.size());
  Array result(shape);
  const int64_t outer = product(shape, 0, axis);
  const auto inner = static_cast<size_t>(product(shape, axis + 1, shape.size()));
  size_t to = 0;
  for (int64_t i = 0; i < outer; ++i) {
    for (const int64_t index : indices) {
      const auto from = static_cast<size_t>(i * array.shape[axis] + index) * inner;
      std::copy_n(array.values.begin() + static_cast<std::ptrdiff_t>(from), inner,
                  result.values.begin() + static_cast<std::ptrdiff_t>(to));
      to += inner;
    }
  }
  return result;
}

Array join(const std::vector<Array>& arrays, size_t axis) {
  if (arrays.empty() || arrays[0].empty()) return {};
  std::vector<int64_t> shape = arrays[0].shape;
  shape[axis] = 0;
  for (const Array& array : arrays) shape[axis] += array.shape[axis];
  Array result(shape);
  const int64_t outer = product(shape, 0, axis);
  size_t to = 0;
  for (int64_t i = 0; i < outer; ++i) {
    for (const Array& array : arrays) {
      const auto count = static_cast<size_t>(product(array.shape, axis, shape.size()));
      std::copy_n(
          array.values.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(i) * count), count,
          result.values.begin() + static_cast<std::ptrdiff_t>(to));
      to += count;
    }
  }
  return result;
}

GdnInputs take_tokens(const GdnInputs& inputs, int64_t first, int64_t count) {
  GdnInputs part = inputs;
  for (Array* array : {&part.q, &part.k, &part.v, &part.gate, &part.beta}) {
    *array = take(*array, 1, range(first, count));
  }
  return part;
}

GdnInputs take_heads(const GdnInputs& inputs, const std::vector<int64_t>& key_heads) {
  const int64_t r = inputs.v.shape[2] / inputs.q.shape[2];
  std::vector<int64_t> value_heads;
  for (const int64_t h : key_heads) {
    for (int64_t i = 0; i < r; ++i) value_heads.push_back(h * r + i);
  }
  GdnInputs part = inputs;
  for (Array* array : {&part.q, &part.k}) *array = take(*array, 2, key_heads);
  for (Array* array : {&part.v, &part.gate, &part.beta}) *array = take(*array, 2, value_heads);
  part.initial = take(part.initial, 1, value_heads);
  part.A_log = take(part.A_log, 0, value_heads);
  part.dt_bias = take(part.dt_bias, 0, value_heads);
  return part;
}

GdnInputs pack_sequences(const std::vector<GdnInputs>& sequences) {
  const auto joined = [&](Array GdnInputs::* member, size_t axis) {
    std::vector<Array> arrays;
    for (const GdnInputs& sequence : sequences) arrays.push_back(sequence.*member);
    return join(arrays, axis);
  };
  GdnInputs packed = sequences.at(0);
  for (const auto member :
       {&GdnInputs::q, &GdnInputs::k, &GdnInputs::v, &GdnInputs::gate, &GdnInputs::beta}) {
    packed.*member = joined(member, 1);
  }
  packed.initial = joined(&GdnInputs::initial, 0);
  return packed;
}

bool same_bits(const Array& a, const Array& b) {
  // WHY the size: memcmp may not be given the null pointer of an empty array.
  return a.shape == b.shape &&
         (a.values.empty() ||
          std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(double)) == 0);
}

}  // namespace sluice::check
