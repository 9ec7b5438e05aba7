// Loads and stores the elements of a run.
// SPDX-License-Identifier: Apache-2.0
#include "check/runs.hpp"

#include <cstring>

#include "core/numeric.hpp"

namespace sluice::check {
namespace {

/// Bytes of an element.
int64_t width_of(const sluice_tensor& view) noexcept { return view.dtype.bits / 8; }

const std::byte* first_byte(const sluice_tensor& view, const Run& run) noexcept {
  return static_cast<const std::byte*>(view.data) + run.offset * width_of(view);
}

/// values[i] = convert(element i), elements of type Element.
template <class Element, class Convert>
void load_as(const sluice_tensor& view, const Run& run, double* values, Convert convert) noexcept {
  const std::byte* source = first_byte(view, run);
  const int64_t apart = run.stride * static_cast<int64_t>(sizeof(Element));
  for (int64_t i = 0; i < run.count; ++i, source += apart) {
    Element element;
    std::memcpy(&element, source, sizeof element);
    values[i] = static_cast<double>(convert(element));
  }
}

/// Element i = convert(values[i]), elements of type Element.
template <class Element, class Convert>
void store_as(const sluice_tensor& view, const Run& run, const double* values,
              Convert convert) noexcept {
  auto* target = const_cast<std::byte*>(first_byte(view, run));
  const int64_t apart = run.stride * static_cast<int64_t>(sizeof(Element));
  for (int64_t i = 0; i < run.count; ++i, target += apart) {
    const Element element = static_cast<Element>(convert(values[i]));
    std::memcpy(target, &element, sizeof element);
  }
}

constexpr auto kItself = [](auto element) noexcept { return element; };

/// Calls visit(element, from, to) with a value of the type that elements of a view are stored as,
/// and conversions from it and from double.
template <class Visit>
void with_element(sluice_dtype dtype, Visit visit) noexcept {
  if (same_dtype(dtype, kF32)) {
    visit(float{}, kItself, kItself);
  } else if (same_dtype(dtype, kBF16)) {
    visit(uint16_t{}, core::float_from_bfloat16, [](double value) noexcept {
      return core::bfloat16_from_float(core::float_to_odd_from_double(value));
    });
  } else if (same_dtype(dtype, kF16)) {
    visit(uint16_t{}, core::float_from_float16, [](double value) noexcept {
      return core::float16_from_float(core::float_to_odd_from_double(value));
    });
  } else if (same_dtype(dtype, kF64)) {
    visit(double{}, kItself, kItself);
  } else if (same_dtype(dtype, kI32)) {
    visit(int32_t{}, kItself, kItself);
  } else if (same_dtype(dtype, kI64)) {
    visit(int64_t{}, kItself, kItself);
  } else {
    visit(uint8_t{}, kItself, kItself);
  }
}

}  // namespace

void load_run(const sluice_tensor& view, const Run& run, double* values) noexcept {
  with_element(view.dtype, [&](auto element, auto from, auto) {
    load_as<decltype(element)>(view, run, values, from);
  });
}

void store_run(const sluice_tensor& view, const Run& run, const double* values) noexcept {
  with_element(view.dtype, [&](auto element, auto, auto to) {
    store_as<decltype(element)>(view, run, values, to);
  });
}

void copy_run(const sluice_tensor& view, const Run& run, const std::byte* memory,
              std::byte* copy) noexcept {
  const int64_t width = width_of(view);
  const std::byte* source = first_byte(view, run);
  std::byte* target = copy + (source - memory);
  if (run.stride == 1) {
    std::memcpy(target, source, static_cast<size_t>(run.count * width));
    return;
  }
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t at = i * run.stride * width;
    std::memcpy(target + at, source + at, static_cast<size_t>(width));
  }
}

}  // namespace sluice::check
