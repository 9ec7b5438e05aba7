// Measures that no bytes whatever make the safetensors reader or the case parser misbehave.
// How: the input is a file; what the reader accepts is read in full, written and read again.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "io/case_file.hpp"
#include "io/safetensors_writer.hpp"

namespace {

using sluice::io::CaseFile;
using sluice::io::SafetensorsFile;
using sluice::io::SafetensorsWriter;
using sluice::io::TensorEntry;

void require(bool condition) {
  if (!condition) std::abort();
}

// Reads every byte of every tensor, so that a sanitizer sees one that lies outside the file.
uint64_t read_all(const SafetensorsFile& file) {
  uint64_t sum = 0;
  for (const TensorEntry& tensor : file.tensors()) {
    for (uint64_t i = 0; i < tensor.bytes; ++i) sum += std::to_integer<uint64_t>(tensor.data[i]);
    if (sluice::io::is_floating(tensor.type)) sum += sluice::io::read_floats(tensor).size();
    if (tensor.shape.size() <= SLUICE_MAX_RANK) sum += sluice::io::input_view(tensor).rank;
  }
  return sum;
}

void write_and_read_again(const SafetensorsFile& file) {
  SafetensorsWriter writer;
  for (const auto& [key, value] : file.metadata()) writer.set_metadata(key, value);
  for (const TensorEntry& tensor : file.tensors()) {
    writer.add_bytes(tensor.name, tensor.type, tensor.shape,
                     {tensor.data, tensor.data + tensor.bytes});
  }
  const std::vector<std::byte> bytes = writer.serialize();
  SafetensorsFile again;
  require(SafetensorsFile::parse(bytes, "again", &again).ok());
  require(again.tensors().size() == file.tensors().size());
  require(read_all(again) == read_all(file));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A heap block of the exact size: reading past its end is an error that is seen.
  const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  if (size > 0) std::memcpy(copy.get(), data, size);
  SafetensorsFile file;
  const sluice::Status status = SafetensorsFile::parse({copy.get(), size}, "input", &file);
  require(status.ok() == (status.message[0] == '\0'));
  if (!status.ok()) return 0;
  read_all(file);
  write_and_read_again(file);
  CaseFile cases;
  const sluice::Status read = sluice::io::read_cases(std::move(file), &cases);
  require(read.code == sluice::Code::kOk || read.code == sluice::Code::kInvalidArgument);
  require(read.ok() == (read.message[0] == '\0'));
  return 0;
}
