// Reads safetensors files that nobody vouches for: every number is checked before it is used.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_SAFETENSORS_READER_HPP_
#define SLUICE_IO_SAFETENSORS_READER_HPP_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/element_type.hpp"
#include "sluice/sluice.h"
#include "sluice/status.hpp"

namespace sluice::io {

/// Longest header accepted, the limit of the format's own library.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
/// Most dimensions of a tensor.
constexpr size_t kMaxRank = 8;

/// One tensor: contiguous, row-major, aligned to its element size, inside the file's memory.
struct TensorEntry {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  int64_t elements = 0;  ///< product of the shape
};

/// A file in memory. Movable; entries stay valid as long as it lives.
class SafetensorsFile {
 public:
  /// Maps the file at `path` and reads its header. The file must not shrink while it is mapped.
  ///
  /// Refused, with the file, the tensor and the rule in the message: files shorter than their
  /// header, headers over kMaxHeaderBytes or not JSON, names given twice, unknown element types,
  /// shapes that are negative or whose product overflows, data offsets that leave the file, do not
  /// match the shape, overlap or leave holes, data not aligned to its element size.
  /// Source: https://github.com/huggingface/safetensors, "Format".
  static Status open(const std::string& path, SafetensorsFile* out) noexcept;

  /// The same for bytes in memory, which must outlive *out and be aligned to 8 bytes. `name` stands
  /// for the file in messages.
  static Status parse(std::span<const std::byte> bytes, const std::string& name,
                      SafetensorsFile* out) noexcept;

  const std::string& path() const noexcept { return path_; }
  /// Sorted by position in the file.
  const std::vector<TensorEntry>& tensors() const noexcept { return tensors_; }
  /// The tensor of that name, or null.
  const TensorEntry* find(std::string_view name) const noexcept;
  const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }

 private:
  Status read_header(std::span<const std::byte> bytes);
  Status add_tensors(std::string_view header, std::span<const std::byte> data);
  Status check_coverage(uint64_t data_bytes) const;

  std::string path_;
  std::shared_ptr<const void> mapping_;
  std::vector<TensorEntry> tensors_;
  std::vector<uint64_t> begins_;  // offset of each tensor's data, beside tensors_
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

/// Contiguous view of a tensor of at most SLUICE_MAX_RANK dimensions. The data is read-only: it may
/// be an input only.
sluice_tensor input_view(const TensorEntry& entry) noexcept;

/// Elements of a floating tensor as doubles (exact for each of those types).
std::vector<double> read_floats(const TensorEntry& entry);

/// Elements of an I32 or I64 tensor.
std::vector<int64_t> read_integers(const TensorEntry& entry);

/// "[2, 3]" for messages.
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace sluice::io

#endif  // SLUICE_IO_SAFETENSORS_READER_HPP_
