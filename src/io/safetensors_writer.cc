// Writes safetensors files.
// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors_writer.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/numeric.hpp"
#include "io/whole_file.hpp"

namespace sluice::io {
namespace {

template <class Raw, class Convert>
std::vector<std::byte> encode(std::span<const double> values, Convert convert) {
  std::vector<std::byte> bytes(values.size() * sizeof(Raw));
  for (size_t i = 0; i < values.size(); ++i) {
    const Raw raw = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof raw, &raw, sizeof raw);
  }
  return bytes;
}

}  // namespace

std::vector<std::byte> encode_floats(ElementType type, std::span<const double> values) {
  switch (type) {
    case ElementType::kF64:
      return encode<double>(values, [](double x) { return x; });
    case ElementType::kF16:
      return encode<uint16_t>(
          values, [](double x) { return core::float16_from_float(static_cast<float>(x)); });
    case ElementType::kBF16:
      return encode<uint16_t>(
          values, [](double x) { return core::bfloat16_from_float(static_cast<float>(x)); });
    default:
      return encode<float>(values, [](double x) { return static_cast<float>(x); });
  }
}

void SafetensorsWriter::set_metadata(const std::string& key, const std::string& value) {
  metadata_[key] = value;
}

void SafetensorsWriter::add_bytes(const std::string& name, ElementType type,
                                  std::vector<int64_t> shape, std::vector<std::byte> bytes) {
  tensors_[name] = {type, std::move(shape), std::move(bytes)};
}

void SafetensorsWriter::add_floats(const std::string& name, ElementType type,
                                   std::vector<int64_t> shape, std::span<const double> values) {
  add_bytes(name, type, std::move(shape), encode_floats(type, values));
}

void SafetensorsWriter::add_integers(const std::string& name, std::vector<int64_t> shape,
                                     std::span<const int64_t> values) {
  const std::span<const std::byte> bytes = std::as_bytes(values);
  add_bytes(name, ElementType::kI64, std::move(shape), {bytes.begin(), bytes.end()});
}

std::vector<std::byte> SafetensorsWriter::serialize() const {
  std::vector<std::pair<const std::string*, const Tensor*>> order;
  for (const auto& [name, tensor] : tensors_) order.emplace_back(&name, &tensor);
  // WHY the widest elements first: each tensor is then aligned to its own element size.
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return element_type_size(a.second->type) > element_type_size(b.second->type);
  });

  nlohmann::ordered_json header;
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  size_t end = 0;
  for (const auto& [name, tensor] : order) {
    const size_t begin = end;
    end += tensor->bytes.size();
    header[*name] = {{"dtype", element_type_name(tensor->type)},
                     {"shape", tensor->shape},
                     {"data_offsets", {begin, end}}};
  }
  std::string text = header.is_null() ? "{}" : header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  std::vector<std::byte> file(8 + text.size());
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>((text.size() >> (8 * i)) & 0xff);
  std::memcpy(file.data() + 8, text.data(), text.size());
  for (const auto& [name, tensor] : order) {
    file.insert(file.end(), tensor->bytes.begin(), tensor->bytes.end());
  }
  return file;
}

Status SafetensorsWriter::write(const std::string& path) const noexcept {
  try {
    return write_whole_file(path, serialize());
  } catch (const std::exception& error) {
    return Status::failure(Code::kInternal, "%s: %s", path.c_str(), error.what());
  }
}

}  // namespace sluice::io
