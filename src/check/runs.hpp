// Walks strided views by runs of evenly spaced elements: dtype and strides are looked at once a
// run.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_RUNS_HPP_
#define SLUICE_CHECK_RUNS_HPP_

#include <cstddef>
#include <vector>

#include "check/array.hpp"

namespace sluice::check {

/// `count` elements, the first `offset` elements from the start of a view, `stride` elements apart.
struct Run {
  int64_t offset = 0, count = 1, stride = 1;
};

/// Elements of one run as doubles.
void load_run(const sluice_tensor& view, const Run& run, double* values) noexcept;
/// Stores doubles as the elements of one run, each rounded once; integers must be exact.
void store_run(const sluice_tensor& view, const Run& run, const double* values) noexcept;
/// Copies the bytes of one run's elements to where they are in a copy of the memory that begins at
/// `memory` and holds the view.
void copy_run(const sluice_tensor& view, const Run& run, const std::byte* memory,
              std::byte* copy) noexcept;

/// Calls body(run) for the elements of a view, in row-major order. The last dimensions are one run
/// where their strides allow. An absent view has none.
template <class Body>
void for_each_run(const sluice_tensor& view, Body body) {
  if (view.data == nullptr) return;
  size_t outer = static_cast<size_t>(view.rank);
  Run run;
  if (outer > 0) {
    --outer;
    run.count = view.shape[outer], run.stride = view.stride[outer];
  }
  while (outer > 0 && view.stride[outer - 1] == run.count * run.stride) {
    run.count *= view.shape[--outer];
  }
  int64_t runs = 1;
  for (size_t i = 0; i < outer; ++i) runs *= view.shape[i];
  std::vector<int64_t> index(outer, 0);
  for (; runs > 0 && run.count > 0; --runs) {
    run.offset = 0;
    for (size_t i = 0; i < outer; ++i) run.offset += index[i] * view.stride[i];
    body(run);
    for (size_t i = outer; i-- > 0 && ++index[i] == view.shape[i];) index[i] = 0;
  }
}

/// Stores values[0], values[1], .. as the elements of a view, in row-major order.
inline void store_elements(const sluice_tensor& view, const double* values) {
  for_each_run(view, [&](const Run& run) {
    store_run(view, run, values);
    values += run.count;
  });
}

}  // namespace sluice::check

#endif  // SLUICE_CHECK_RUNS_HPP_
