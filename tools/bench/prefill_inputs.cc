// Fills the pools of inputs on several threads.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/prefill_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

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

template <class Size>
int64_t largest(const std::vector<Cell>& cells, Size size) {
  int64_t most = 0;
  for (const Cell& cell : cells) most = std::max(most, size(cell));
  return most;
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

PrefillInputs::PrefillInputs(const std::vector<Cell>& cells, sluice_dtype type,
                             const std::string& gate_name, sluice_dtype gate_type)
    : dtype(type),
      gate_dtype(gate_type),
      q(random_rows(largest(cells, [](const Cell& c) { return c.tokens() * c.H; }), cells.front().K,
                    true, 1.0, type, 1)),
      k(random_rows(largest(cells, [](const Cell& c) { return c.tokens() * c.H; }), cells.front().K,
                    true, 1.0, type, 2)),
      v(random_rows(largest(cells, [](const Cell& c) { return c.tokens() * c.HV; }),
                    cells.front().V, false, 1.0, type, 3)),
      beta(random_betas(largest(cells, [](const Cell& c) { return c.tokens() * c.HV; }), 4,
                        gate_type)),
      initial(random_rows(largest(cells, [](const Cell& c) { return c.units() * c.K; }),
                          cells.front().V, false, 0.1, check::kF32, 5)) {
  for (const Cell& cell : cells) {
    if (gates.contains(cell.HV)) continue;
    const int64_t tokens =
        largest(cells, [&](const Cell& c) { return c.HV == cell.HV ? c.tokens() : int64_t{0}; });
    const int64_t columns = cell.key_gates ? cell.HV * cell.K : cell.HV;
    gates.emplace(cell.HV, random_gates(gate_name, tokens, columns, 6, gate_type));
  }
}

}  // namespace sluice::tools
