// Names the element types of safetensors files and converts their values.
// SPDX-License-Identifier: Apache-2.0
#include "io/element_type.hpp"

#include <array>
#include <cstddef>

namespace sluice::io {
namespace {

struct TypeRow {
  const char* name;
  uint8_t dlpack_code;
  uint8_t bits;
};

// In the order of ElementType. The DLPack codes: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool,
// 10 float8_e4m3fn, 12 float8_e5m2.
constexpr std::array<TypeRow, 15> kTypes = {{{"F64", 2, 64},
                                             {"F32", 2, 32},
                                             {"F16", 2, 16},
                                             {"BF16", 4, 16},
                                             {"I64", 0, 64},
                                             {"I32", 0, 32},
                                             {"I16", 0, 16},
                                             {"I8", 0, 8},
                                             {"U64", 1, 64},
                                             {"U32", 1, 32},
                                             {"U16", 1, 16},
                                             {"U8", 1, 8},
                                             {"F8_E4M3", 10, 8},
                                             {"F8_E5M2", 12, 8},
                                             {"BOOL", 6, 8}}};

const TypeRow& row(ElementType type) noexcept { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

const char* element_type_name(ElementType type) noexcept { return row(type).name; }

std::optional<ElementType> element_type_from_name(std::string_view name) noexcept {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (name == kTypes[i].name) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

uint64_t element_type_size(ElementType type) noexcept { return row(type).bits / 8u; }

bool is_floating(ElementType type) noexcept { return type <= ElementType::kBF16; }

sluice_dtype dlpack_type(ElementType type) noexcept {
  return {row(type).dlpack_code, row(type).bits};
}

}  // namespace sluice::io
