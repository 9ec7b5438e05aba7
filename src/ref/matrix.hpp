// Defines row-major views of doubles, the arena in the caller's workspace that they live in, and the
// tokens that both forms of the recurrence are given.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_MATRIX_HPP_
#define SLUICE_REF_MATRIX_HPP_

#include <cstddef>
#include <cstdint>

#include "sluice/sluice.h"

namespace sluice::ref {

/// size doubles, not owned.
struct Vector {
  double* data = nullptr;
  int64_t size = 0;

  double& operator[](int64_t i) const noexcept { return data[i]; }
};

/// [rows, cols] doubles, row-major, not owned.
struct Matrix {
  double* data = nullptr;
  int64_t rows = 0, cols = 0;

  double& operator()(int64_t i, int64_t j) const noexcept { return data[i * cols + j]; }
  Vector row(int64_t i) const noexcept { return {data + i * cols, cols}; }
  /// The first `count` rows.
  Matrix top(int64_t count) const noexcept { return {data, count, cols}; }
};

inline double dot(Vector x, Vector y) noexcept {
  double sum = 0.0;
  for (int64_t i = 0; i < x.size; ++i) sum += x[i] * y[i];
  return sum;
}
/// y <- y + factor x.
inline void add_scaled(Vector y, double factor, Vector x) noexcept {
  for (int64_t i = 0; i < y.size; ++i) y[i] += factor * x[i];
}

/// Hands out consecutive pieces of a workspace. With a null base it only counts, so that the code
/// that lays a workspace out also says how large it must be.
class Arena {
 public:
  explicit Arena(void* base) noexcept : base_(static_cast<double*>(base)) {}

  double* doubles(int64_t count) noexcept {
    double* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += count;
    return piece;
  }
  Vector vector(int64_t size) noexcept { return {doubles(size), size}; }
  Matrix matrix(int64_t rows, int64_t cols) noexcept { return {doubles(rows * cols), rows, cols}; }
  size_t bytes() const noexcept { return static_cast<size_t>(used_) * sizeof(double); }

 private:
  double* base_;
  int64_t used_ = 0;
};

/// C consecutive tokens of one value head.
struct Block {
  Matrix q, k;  ///< [C, K]
  Matrix v;     ///< [C, V]
  Matrix g;     ///< [C, 1], with key-wise gates [C, K]
  Vector beta;  ///< [C]
  double scale = 1.0;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
};

}  // namespace sluice::ref

#endif  // SLUICE_REF_MATRIX_HPP_
