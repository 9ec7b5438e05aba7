// Multiplies matrices in double, and takes them out of arrays of rows, for yardsticks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_PRODUCTS_HPP_
#define SLUICE_CHECK_PRODUCTS_HPP_

#include "check/array.hpp"

namespace sluice::check {

/// Which product instead of a b: a b^T; a^T b; a lower triangular, its upper half not looked at.
struct Product {
  bool transpose_b = false, transpose_a = false, lower_a = false;
};

inline Array multiply(const Array& a, const Array& b, Product kind = {}) {
  const int64_t rows = a.shape[kind.transpose_a ? 1 : 0], inner = a.shape[kind.transpose_a ? 0 : 1];
  const int64_t cols = b.shape[kind.transpose_b ? 0 : 1];
  Array c({rows, cols});
  const double *const as = a.values.data(), *const bs = b.values.data();
  for (int64_t i = 0; i < rows; ++i) {
    double* const ci = c.values.data() + i * cols;
    // Row l of a lower triangle has l + 1 entries.
    const int64_t first = kind.lower_a && kind.transpose_a ? i : 0;
    const int64_t last = kind.lower_a && !kind.transpose_a ? i + 1 : inner;
    const auto element = [&](int64_t l) {
      return kind.transpose_a ? as[l * rows + i] : as[i * inner + l];
    };
    if (kind.transpose_b) {
      for (int64_t j = 0; j < cols; ++j) {
        for (int64_t l = first; l < last; ++l) ci[j] += element(l) * bs[j * inner + l];
      }
    } else {
      for (int64_t l = first; l < last; ++l) {
        const double x = element(l);
        for (int64_t j = 0; j < cols; ++j) ci[j] += x * bs[l * cols + j];
      }
    }
  }
  return c;
}

/// Rows begin .. begin + C - 1 of one head of a [B,T,heads,D] array.
inline Array rows_of(const Array& a, int64_t batch, int64_t begin, int64_t C, int64_t head) {
  Array rows({C, a.shape[3]});
  for (int64_t t = 0; t < C; ++t) {
    for (int64_t i = 0; i < a.shape[3]; ++i) rows(t, i) = a(batch, begin + t, head, i);
  }
  return rows;
}

}  // namespace sluice::check

#endif  // SLUICE_CHECK_PRODUCTS_HPP_
