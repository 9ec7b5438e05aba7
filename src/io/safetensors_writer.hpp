// Writes safetensors files.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_IO_SAFETENSORS_WRITER_HPP_
#define SLUICE_IO_SAFETENSORS_WRITER_HPP_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/element_type.hpp"
#include "sluice/status.hpp"

namespace sluice::io {

/// Collects tensors and writes them in one go. Every file it writes passes SafetensorsFile::open().
class SafetensorsWriter {
 public:
  /// Metadata are strings; a key set twice keeps the last value.
  void set_metadata(const std::string& key, const std::string& value);

  /// Adds a tensor of row-major bytes. A name added twice keeps the last tensor.
  void add_bytes(const std::string& name, ElementType type, std::vector<int64_t> shape,
                 std::vector<std::byte> bytes);

  /// Adds values rounded to nearest even in `type`: F64, F32, F16 or BF16.
  void add_floats(const std::string& name, ElementType type, std::vector<int64_t> shape,
                  std::span<const double> values);

  /// Adds an I64 tensor.
  void add_integers(const std::string& name, std::vector<int64_t> shape,
                    std::span<const int64_t> values);

  /// The file's bytes.
  std::vector<std::byte> serialize() const;

  /// Writes the file as a whole: whole_file.hpp.
  Status write(const std::string& path) const noexcept;

 private:
  struct Tensor {
    ElementType type;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Values as row-major elements of a floating type, each rounded to nearest even.
std::vector<std::byte> encode_floats(ElementType type, std::span<const double> values);

}  // namespace sluice::io

#endif  // SLUICE_IO_SAFETENSORS_WRITER_HPP_
