// Reads safetensors files, and refuses what does not fit the file.
// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors_reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "io/strict_json.hpp"

namespace sluice::io {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
// {"name": {"shape": [..]}} is three levels. The largest models have some ten thousand tensors.
constexpr JsonLimits kHeaderLimits{3, kMaxRank, 100'000};

// The end of a path is what tells files apart, and messages have a fixed size.
std::string short_path(const std::string& path) {
  constexpr size_t kShown = 90;
  return path.size() <= kShown ? printable(path, kShown)
                               : ".." + printable(path.substr(path.size() - kShown), kShown);
}

Status refuse(const std::string& path, const std::string& reason) {
  return Status::failure(Code::kInvalidArgument, "%s: %s", short_path(path).c_str(),
                         reason.c_str());
}

Status refuse_tensor(const std::string& path, const std::string& tensor,
                     const std::string& reason) {
  return refuse(path, "tensor '" + printable(tensor, 50) + "' " + reason);
}

uint64_t little_endian(const std::byte* bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    value |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

// What the header says of one tensor.
struct Declared {
  TensorEntry entry;
  uint64_t begin = 0;
};

// Fills *out from a header value; returns the complaint, or nothing.
std::string read_shape(const json& value, TensorEntry* out) {
  if (!value.is_array()) return "shape is no array";
  uint64_t elements = 1;
  bool empty = false;
  for (const json& dimension : value) {
    if (!dimension.is_number_unsigned()) {
      return "shape has " + printable(dimension.dump(), 30) +
             ", expected integers >= 0 (dimensions)";
    }
    const uint64_t size = dimension.get<uint64_t>();
    empty = empty || size == 0;
    // WHY zeros do not count: strides are products of dimensions even in an empty tensor.
    const uint64_t factor = std::max<uint64_t>(size, 1);
    if (__builtin_mul_overflow(elements, factor, &elements) || elements > INT64_MAX) {
      return "shape = " + printable(value.dump(), 50) + " has more elements than 2^63 - 1";
    }
    out->shape.push_back(static_cast<int64_t>(size));
  }
  out->elements = empty ? 0 : static_cast<int64_t>(elements);
  return {};
}

std::string read_offsets(const json& value, uint64_t data_bytes, Declared* out) {
  const bool pair = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                    value[1].is_number_unsigned();
  if (!pair) return "data_offsets = " + printable(value.dump(), 50) + ", expected [begin, end]";
  const uint64_t begin = value[0].get<uint64_t>(), end = value[1].get<uint64_t>();
  const std::string found =
      "data_offsets = [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
  if (begin > end) return found + ", expected begin <= end";
  if (end > data_bytes) {
    return found + ", expected end <= " + std::to_string(data_bytes) + " (bytes after the header)";
  }
  uint64_t bytes = 0;
  const uint64_t size = element_type_size(out->entry.type);
  if (__builtin_mul_overflow(static_cast<uint64_t>(out->entry.elements), size, &bytes) ||
      bytes != end - begin) {
    return found + ", expected " + std::to_string(out->entry.elements) + " elements of " +
           std::to_string(size) + " bytes (shape and dtype)";
  }
  out->begin = begin;
  out->entry.bytes = bytes;
  return {};
}

std::string read_declaration(const json& value, uint64_t data_bytes, Declared* out) {
  if (!value.is_object()) return "is described by no object";
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!value.contains(key)) return std::string("has no ") + key;
  }
  if (value.size() != 3) return "has fields other than dtype, shape and data_offsets";
  const json& dtype = value["dtype"];
  const std::optional<ElementType> type =
      dtype.is_string() ? element_type_from_name(dtype.get<std::string>()) : std::nullopt;
  if (!type) {
    return "dtype = " + printable(dtype.dump(), 30) +
           ", expected one of F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 F8_E4M3 F8_E5M2 BOOL";
  }
  out->entry.type = *type;
  if (std::string reason = read_shape(value["shape"], &out->entry); !reason.empty()) return reason;
  return read_offsets(value["data_offsets"], data_bytes, out);
}

std::string read_metadata(const json& value, std::map<std::string, std::string>* out) {
  if (!value.is_object()) return "__metadata__ is no object";
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return "__metadata__ '" + printable(key) + "' is no string (metadata are strings)";
    }
    out->emplace(key, text.get<std::string>());
  }
  return {};
}

// Owns a mapping, or the reason why there is none.
struct Mapping {
  std::shared_ptr<const void> owner;
  size_t size = 0;
  std::string reason;
};

Mapping map_file(const std::string& path) {
  Mapping result;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    result.reason = std::string("cannot be opened: ") + std::strerror(errno);
    return result;
  }
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    result.reason = std::string("cannot be read: ") + std::strerror(errno);
  } else if (!S_ISREG(info.st_mode)) {
    result.reason = "is not a regular file";
  } else if (info.st_size < static_cast<off_t>(kLengthBytes)) {
    result.reason =
        "has " + std::to_string(info.st_size) + " bytes, expected at least 8 (the header's length)";
  } else {
    const size_t size = static_cast<size_t>(info.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      result.reason = std::string("cannot be mapped: ") + std::strerror(errno);
    } else {
      result.owner = std::shared_ptr<const void>(
          address, [size](const void* p) { ::munmap(const_cast<void*>(p), size); });
      result.size = size;
    }
  }
  ::close(descriptor);
  return result;
}

}  // namespace

Status SafetensorsFile::open(const std::string& path, SafetensorsFile* out) noexcept {
  try {
    const Mapping mapping = map_file(path);
    if (!mapping.owner) return refuse(path, mapping.reason);
    const Status status =
        parse({static_cast<const std::byte*>(mapping.owner.get()), mapping.size}, path, out);
    out->mapping_ = mapping.owner;
    return status;
  } catch (const std::exception& error) {
    return Status::failure(Code::kInternal, "%s", error.what());
  }
}

Status SafetensorsFile::parse(std::span<const std::byte> bytes, const std::string& name,
                              SafetensorsFile* out) noexcept {
  try {
    *out = SafetensorsFile();
    out->path_ = name;
    return out->read_header(bytes);
  } catch (const std::exception& error) {
    return Status::failure(Code::kInternal, "%s", error.what());
  }
}

Status SafetensorsFile::read_header(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return refuse(path_, "has " + std::to_string(bytes.size()) +
                             " bytes, expected at least 8 (the header's length)");
  }
  const uint64_t length = little_endian(bytes.data());
  if (length > kMaxHeaderBytes) {
    return refuse(path_, "header length = " + std::to_string(length) + ", expected at most " +
                             std::to_string(kMaxHeaderBytes) + " (is this a safetensors file?)");
  }
  if (length > bytes.size() - kLengthBytes) {
    return refuse(path_, "header length = " + std::to_string(length) + ", expected at most " +
                             std::to_string(bytes.size() - kLengthBytes) + " (the file's size)");
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                                static_cast<size_t>(length));
  if (header.empty() || header.front() != '{') {
    return refuse(path_, "header does not begin with '{' (is this a safetensors file?)");
  }
  return add_tensors(header, bytes.subspan(kLengthBytes + static_cast<size_t>(length)));
}

Status SafetensorsFile::add_tensors(std::string_view text, std::span<const std::byte> data) {
  json header;
  if (const std::string reason = parse_strict_json(text, kHeaderLimits, &header); !reason.empty()) {
    return refuse(path_, "header: " + reason);
  }
  std::vector<Declared> declared;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      const std::string reason = read_metadata(value, &metadata_);
      if (!reason.empty()) return refuse(path_, reason);
      continue;
    }
    Declared& tensor = declared.emplace_back();
    tensor.entry.name = name;
    const std::string reason = read_declaration(value, data.size(), &tensor);
    if (!reason.empty()) return refuse_tensor(path_, name, reason);
    tensor.entry.data = data.data() + tensor.begin;
  }
  std::stable_sort(declared.begin(), declared.end(), [](const Declared& a, const Declared& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.entry.bytes < b.entry.bytes;
  });
  for (Declared& tensor : declared) {
    index_.emplace(tensor.entry.name, tensors_.size());
    begins_.push_back(tensor.begin);
    tensors_.push_back(std::move(tensor.entry));
  }
  return check_coverage(data.size());
}

Status SafetensorsFile::check_coverage(uint64_t data_bytes) const {
  uint64_t end = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorEntry& tensor = tensors_[i];
    if (begins_[i] < end) {
      return refuse_tensor(path_, tensor.name,
                           "data_offsets begin at " + std::to_string(begins_[i]) + " inside '" +
                               printable(tensors_[i - 1].name, 40) + "' (no overlap)");
    }
    if (begins_[i] > end) {
      return refuse_tensor(path_, tensor.name,
                           "data_offsets begin at " + std::to_string(begins_[i]) + ", expected " +
                               std::to_string(end) + " (no holes)");
    }
    if (reinterpret_cast<uintptr_t>(tensor.data) % element_type_size(tensor.type) != 0) {
      return refuse_tensor(path_, tensor.name,
                           "data begins at byte " + std::to_string(begins_[i]) +
                               " after the header, not aligned to its element size " +
                               std::to_string(element_type_size(tensor.type)));
    }
    end = begins_[i] + tensor.bytes;
  }
  if (end != data_bytes) {
    return refuse(path_, std::to_string(data_bytes - end) +
                             " bytes follow the last tensor (no trailing bytes)");
  }
  return ok_status();
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace sluice::io
