// Measures that no bytes whatever make the safetensors reader, the case parser or the operators that
// run a case misbehave.
// How: the input is a file; what the reader accepts is read in full, written and read again, and small
// cases of it are run by the reference and by the CPU backend, as `sluice run` would.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "io/case_file.hpp"
#include "io/safetensors_writer.hpp"
#include "tools/execute.hpp"

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

// Whether a case takes milliseconds: no dimension is large, whatever the others are.
bool small(const sluice::io::Case& c) {
  const sluice::io::CaseShape& s = c.shape;
  constexpr int64_t kMost = 80, kMostElements = 20000;
  for (const int64_t size :
       {s.B, s.T, s.N, s.H, s.HV, s.K, s.V, s.D, s.L, s.C, s.chunks, c.steps}) {
    if (size > kMost) return false;
  }
  const int64_t rows = std::max<int64_t>({s.B * s.T, s.N, 1});
  const int64_t row = std::max<int64_t>({s.HV * s.K * s.V, s.HV * s.C, s.D * s.L, s.hidden, 1});
  return s.hidden <= kMostElements && s.hidden * s.V <= kMostElements &&
         rows * row <= kMostElements;
}

// Executes a case; recorded numbers may be anything, so results are not judged.
void run(const CaseFile& cases, const sluice::io::Case& which) {
  sluice::tools::ExecuteOptions options;
  for (const auto implementation :
       {sluice::Implementation::kReference, sluice::Implementation::kCpu}) {
    options.implementation = implementation;
    const sluice::Status status = sluice::tools::execute(cases, which, options).status;
    require(status.code != sluice::Code::kInternal);
    require(status.code != sluice::Code::kWorkspaceTooSmall);
    require(status.ok() == (status.message[0] == '\0'));
  }
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
  if (!read.ok()) return 0;
  for (const sluice::io::Case& which : cases.cases) {
    if (small(which)) run(cases, which);
  }
  return 0;
}
