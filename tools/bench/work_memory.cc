// Draws random numbers on several threads, fills tensors from blocks of them, and keeps workspaces.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/work_memory.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "check/array.hpp"
#include "check/generate.hpp"

namespace sluice::tools {
namespace {

// A block has a random stream of its own, so that the numbers do not depend on how many threads
// there are.
constexpr int64_t kBlockRows = 1024;

// Mean 0, variance 1, from one draw: the sum of four 16-bit uniforms.
double bell(check::Random* random) {
  const uint64_t bits = random->bits();
  const uint64_t sum =
      (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return (static_cast<double>(sum) * 0x1p-16 - 2.0) * std::sqrt(3.0);
}

// Calls body(first row, rows, stream) for blocks of rows, on all threads.
template <class Body>
void for_each_block(int64_t rows, uint64_t seed, Body body) {
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const auto threads = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> pool;
  for (int64_t thread = 0; thread < std::min(threads, blocks); ++thread) {
    pool.emplace_back([=] {
      for (int64_t block = thread; block < blocks; block += threads) {
        check::Random random(seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(block));
        const int64_t first = block * kBlockRows;
        body(first, std::min(kBlockRows, rows - first), &random);
      }
    });
  }
}

sluice_tensor flat_view(const Bytes& bytes, sluice_dtype dtype) {
  sluice_tensor view{};
  view.data = bytes.data();
  view.dtype = dtype;
  return view;
}

double log_gate(const std::string& name, int64_t column, check::Random* random) {
  if (name == "flat") return 0.0;
  if (name == "slow") return -5e-4 - 1e-3 * random->uniform();
  if (name == "uniform") return -random->uniform();
  if (name == "kda_bounded") return -5.0 / (1.0 + std::exp(1.0 - bell(random)));
  if (name == "kda_slow") return column % 16 == 5 ? -1e-6 : -0.01 - 0.29 * random->uniform();
  return column % 4 == 3 ? 0.0 : -std::log1p(std::exp(-bell(random))) / 16.0;
}

/// Numbers of the block that fills every tensor: tensors may have billions of them.
constexpr int64_t kBlock = int64_t{1} << 18;

const Bytes& random_block(sluice_dtype dtype, double scale) {
  static std::map<std::tuple<int, int, double>, Bytes> blocks;
  const std::tuple<int, int, double> key{dtype.code, dtype.bits, scale};
  const auto found = blocks.find(key);
  if (found != blocks.end()) return found->second;
  return blocks.emplace(key, random_rows(kBlock / kBlockRows, kBlockRows, false, scale, dtype, 1))
      .first->second;
}

}  // namespace

const std::vector<std::string>& gate_names() {
  static const std::vector<std::string> kNames = {"published", "slow",        "flat",
                                                  "uniform",   "kda_bounded", "kda_slow"};
  return kNames;
}

bool are_key_wise(const std::string& gates) { return gates.starts_with("kda_"); }

Bytes random_rows(int64_t rows, int64_t width, bool unit, double factor, sluice_dtype dtype,
                  uint64_t seed) {
  Bytes out(static_cast<size_t>(rows * width) * (dtype.bits / 8u));
  const sluice_tensor view = flat_view(out, dtype);
  for_each_block(rows, seed, [=](int64_t first, int64_t count, check::Random* random) {
    std::vector<double> row(static_cast<size_t>(width));
    for (int64_t r = first; r < first + count; ++r) {
      double square = 0.0;
      for (double& x : row) {
        x = bell(random);
        square += x * x;
      }
      const double scale = unit ? factor / std::sqrt(square) : factor;
      for (int64_t i = 0; i < width; ++i) {
        check::store_element(view, r * width + i, scale * row[static_cast<size_t>(i)]);
      }
    }
  });
  return out;
}

Bytes random_gates(const std::string& name, int64_t tokens, int64_t columns, uint64_t seed,
                   sluice_dtype dtype) {
  Bytes out(static_cast<size_t>(tokens * columns) * (dtype.bits / 8u));
  const sluice_tensor gates = flat_view(out, dtype);
  for_each_block(tokens, seed, [=](int64_t first, int64_t count, check::Random* random) {
    for (int64_t i = first * columns; i < (first + count) * columns; ++i) {
      check::store_element(gates, i, log_gate(name, i % columns, random));
    }
  });
  return out;
}

Bytes random_betas(int64_t count, uint64_t seed, sluice_dtype dtype) {
  Bytes out(static_cast<size_t>(count) * (dtype.bits / 8u));
  const sluice_tensor betas = flat_view(out, dtype);
  for_each_block(count, seed, [=](int64_t first, int64_t rows, check::Random* random) {
    for (int64_t i = first; i < first + rows; ++i) {
      check::store_element(betas, i, 1.0 / (1.0 + std::exp(-bell(random))));
    }
  });
  return out;
}

void require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message);
}

std::shared_ptr<void> uploaded(Machine& machine, const Bytes& bytes) {
  std::shared_ptr<void> memory = machine.allocate(bytes.size());
  machine.upload(memory.get(), bytes.data(), bytes.size());
  return memory;
}

DType dtype_named(const std::string& name) {
  return name == "fp32" ? kFloat32 : (name == "bf16" ? kBFloat16 : kFloat16);
}

std::vector<int32_t> even_offsets(int64_t count, int64_t T) {
  std::vector<int32_t> offsets;
  for (int64_t n = 0; n <= count; ++n) offsets.push_back(static_cast<int32_t>(n * T));
  return offsets;
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
