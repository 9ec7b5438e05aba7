// Allocates and fills what benchmarks time: tensors of random numbers, lists, growing workspaces.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_WORK_MEMORY_HPP_
#define SLUICE_TOOLS_BENCH_WORK_MEMORY_HPP_

#include <memory>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/prefill_inputs.hpp"

namespace sluice::tools {

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
