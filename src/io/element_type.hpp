// Names the element types of safetensors files, with sizes and conversions.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_ELEMENT_TYPE_HPP_
#define SLUICE_IO_ELEMENT_TYPE_HPP_

#include <cstdint>
#include <optional>
#include <string_view>

#include "sluice/sluice.h"

namespace sluice::io {

/// The types that this reader takes: those of the case files and of model checkpoints.
enum class ElementType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kF8E4M3,
  kF8E5M2,
  kBool,
};

/// The name in a file, e.g. "BF16".
const char* element_type_name(ElementType type) noexcept;

/// The type of that name, or nothing.
std::optional<ElementType> element_type_from_name(std::string_view name) noexcept;

/// Bytes of one element: 1, 2, 4 or 8.
uint64_t element_type_size(ElementType type) noexcept;

/// F64, F32, F16 or BF16: the types that read_floats() takes.
bool is_floating(ElementType type) noexcept;

/// The type as the C interface names it.
sluice_dtype dlpack_type(ElementType type) noexcept;

}  // namespace sluice::io

#endif  // SLUICE_IO_ELEMENT_TYPE_HPP_
