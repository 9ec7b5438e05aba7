// Makes random inputs of prefill cells, one pool for all cells of a run: a cell takes the front of
// it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_PREFILL_INPUTS_HPP_
#define SLUICE_TOOLS_BENCH_PREFILL_INPUTS_HPP_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/cell.hpp"

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

/// Host copies: unit q and k rows, normal v, write strengths, states 0.1 normal; gates by HV.
struct PrefillInputs {
  /// Large enough for each of the cells, which share K and V.
  PrefillInputs(const std::vector<Cell>& cells, sluice_dtype dtype, const std::string& gates,
                sluice_dtype gate_dtype = kFloat32);

  sluice_dtype dtype, gate_dtype;  ///< gate_dtype: of gates and write strengths
  QkNorm norm = QkNorm::kNone;     ///< that calls take of q and k, which are unit already
  Bytes q, k, v, beta, initial;
  std::map<int64_t, Bytes> gates;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_PREFILL_INPUTS_HPP_
