// Fills tensors from blocks of random numbers, and keeps workspaces.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/work_memory.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <tuple>

#include "check/array.hpp"
#include "check/generate.hpp"

namespace sluice::tools {
namespace {

/// Numbers of the block that fills every tensor: tensors may have billions of them.
constexpr int64_t kBlock = int64_t{1} << 18;

Bytes make_block(sluice_dtype dtype, double scale) {
  Bytes block(static_cast<size_t>(kBlock) * (dtype.bits / 8u));
  sluice_tensor view{};
  view.data = block.data();
  view.dtype = dtype;
  const check::Array values = check::make_normal({kBlock}, 1);
  for (int64_t i = 0; i < kBlock; ++i) {
    check::store_element(view, i, scale * values.values[static_cast<size_t>(i)]);
  }
  return block;
}

const Bytes& random_block(sluice_dtype dtype, double scale) {
  static std::map<std::tuple<int, int, double>, Bytes> blocks;
  const std::tuple<int, int, double> key{dtype.code, dtype.bits, scale};
  const auto found = blocks.find(key);
  if (found != blocks.end()) return found->second;
  return blocks.emplace(key, make_block(dtype, scale)).first->second;
}

}  // namespace

void require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message);
}

std::shared_ptr<void> uploaded(Machine& machine, const Bytes& bytes) {
  std::shared_ptr<void> memory = machine.allocate(bytes.size());
  machine.upload(memory.get(), bytes.data(), bytes.size());
  return memory;
}

void upload_repeated(Machine& machine, void* to, size_t bytes, const Bytes& block) {
  for (size_t at = 0; at < bytes; at += block.size()) {
    machine.upload(static_cast<std::byte*>(to) + at, block.data(),
                   std::min(block.size(), bytes - at));
  }
}

TensorView WorkMemory::tensor(DType type, std::initializer_list<int64_t> shape, double scale) {
  TensorView view(nullptr, type, shape, machine_.device());
  size_t bytes = type.bits / 8u;
  for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
  memory_.push_back(machine_.allocate(bytes));
  view.data = memory_.back().get();
  if (scale != 0) {
    upload_repeated(machine_, view.data, bytes, random_block(type, scale));
  } else {
    machine_.fill(view.data, 0, bytes);
  }
  return view;
}

TensorView WorkMemory::list(const std::vector<int32_t>& numbers) {
  const TensorView view = tensor(kInt32, {static_cast<int64_t>(numbers.size())}, 0);
  upload_list(machine_, view.data, numbers);
  return view;
}

TensorView WorkMemory::list(const std::vector<float>& numbers) {
  const TensorView view = tensor(kFloat32, {static_cast<int64_t>(numbers.size())}, 0);
  upload_list(machine_, view.data, numbers);
  return view;
}

size_t WorkScratch::reserve(Machine& machine, const Result<WorkspaceSize>& size) {
  require(size.status);
  if (size.value.bytes > bytes_) {
    memory_.reset();
    memory_ = machine.allocate(size.value.bytes);
    bytes_ = size.value.bytes;
  }
  return size.value.bytes;
}

}  // namespace sluice::tools
