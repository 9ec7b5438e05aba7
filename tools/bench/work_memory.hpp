// Allocates and fills what benchmarks time: random numbers, tensors of them, lists, growing workspaces.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_WORK_MEMORY_HPP_
#define SLUICE_TOOLS_BENCH_WORK_MEMORY_HPP_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/machine.hpp"

namespace sluice::tools {

/// Bytes that are not initialised before they are filled.
class Bytes {
 public:
  explicit Bytes(size_t size) : data_(new std::byte[size]), size_(size) {}
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_;
};

/// published: every fourth head 0, the others logsigmoid(normal) / 16, as FlashQLA's grid; slow:
/// uniform -5e-4 .. -1.5e-3; flat: 0; uniform: -uniform(0, 1), as TileOPs'. For each channel of k:
/// kda_bounded: -5 sigmoid(normal - 1); kda_slow: uniform -.01 .. -.3, every 16th channel -1e-6.
const std::vector<std::string>& gate_names();
/// Whether gates of that name are one for each channel.
bool are_key_wise(const std::string& gates);

/// Rows of `width` numbers in `dtype`: normal (nearly: four uniforms), unit rows if asked for.
Bytes random_rows(int64_t rows, int64_t width, bool unit, double factor, sluice_dtype dtype,
                  uint64_t seed);
/// [tokens, columns] log gates of a name of that list; columns are heads, times channels of key-wise
/// ones.
Bytes random_gates(const std::string& name, int64_t tokens, int64_t columns, uint64_t seed,
                   sluice_dtype dtype = kFloat32);
/// [count] sigmoid(normal).
Bytes random_betas(int64_t count, uint64_t seed, sluice_dtype dtype = kFloat32);

/// Throws std::runtime_error with the message of a failure.
void require(const Status& status);

/// Memory of a machine with these bytes.
std::shared_ptr<void> uploaded(Machine& machine, const Bytes& bytes);
/// Fills memory with a block as often as it takes.
void upload_repeated(Machine& machine, void* to, size_t bytes, const Bytes& block);
template <class T>
void upload_list(Machine& machine, const void* to, const std::vector<T>& list) {
  machine.upload(const_cast<void*>(to), list.data(), list.size() * sizeof(T));
}

/// "fp32", "bf16" or "fp16".
DType dtype_named(const std::string& name);
/// Offsets of `count` sequences of T tokens.
std::vector<int32_t> even_offsets(int64_t count, int64_t T);

/// Tensors on a machine, which live as long as this.
class WorkMemory {
 public:
  explicit WorkMemory(Machine& machine) : machine_(machine) {}
  Machine& machine() const { return machine_; }
  /// A dense tensor of normal numbers times `scale`; zeros with 0.
  TensorView tensor(DType type, std::initializer_list<int64_t> shape, double scale = 1.0);
  /// A tensor of rank 1.
  TensorView list(const std::vector<int32_t>& numbers);
  TensorView list(const std::vector<float>& numbers);

 private:
  Machine& machine_;
  std::vector<std::shared_ptr<void>> memory_;
};

/// Scratch memory that grows to the largest call's need.
class WorkScratch {
 public:
  /// Makes room for a call; throws where its size is refused. Returns the bytes asked for.
  size_t reserve(Machine& machine, const Result<WorkspaceSize>& size);
  Workspace get() const { return {memory_.get(), bytes_}; }

 private:
  std::shared_ptr<void> memory_;
  size_t bytes_ = 0;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_WORK_MEMORY_HPP_
