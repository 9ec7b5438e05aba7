// Makes what `sluice bench cpu` times: shapes by model name, inputs, and the reference's answer to
// a sample.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CPU_PROBLEM_HPP_
#define SLUICE_TOOLS_BENCH_CPU_PROBLEM_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check/array.hpp"
#include "sluice/sluice.hpp"

namespace sluice::tools {

/// Heads of one Gated DeltaNet layer; K = V = 128 in all named models.
struct ModelShape {
  std::string name;
  int64_t H = 0, HV = 0, K = 128, V = 128;
};

/// Shape by name: qwen3-next, qwen3.5-27b, .. with -tp2, -tp4, -tp8 for tensor parallelism, which
/// divides both head counts. Or any other: "H/HV" or "H/HV/KxV", e.g. "8/24/64x64".
std::optional<ModelShape> find_model(const std::string& name);
/// Names of models that find_model() takes, without the -tp forms.
std::vector<std::string> model_names();

/// A row-major tensor of its own, from allocate_pages().
class Buffer {
 public:
  Buffer(sluice_dtype dtype, std::vector<int64_t> shape);
  TensorView view() const noexcept { return view_; }
  int64_t size() const noexcept { return size_; }
  float* floats() const noexcept { return static_cast<float*>(view_.data); }
  void set(int64_t i, double value) noexcept { check::store_element(view_, i, value); }
  /// Rounds all of `source` into the first elements, and those into the rest, again and again.
  void fill_with(const Buffer& source) noexcept;
  double get(int64_t i) const noexcept { return check::load_element(view_, i); }

 private:
  struct Free {
    void operator()(void* p) const noexcept;
  };
  std::unique_ptr<void, Free> memory_;
  TensorView view_;
  int64_t size_ = 0;
};

/// factor times something near enough to normal for timing.
void fill_normal(double factor, uint64_t seed, Buffer* out);

/// Inputs of the delta rule with what serving sees: unit q and k, normal v, g = -A softplus(normal)
/// with A from 0.02 to 1 over the heads, beta = sigmoid(normal), states 0.1 * normal.
struct BenchProblem {
  /// decode: T <= 16 tokens go on from a pool's states, in place. key_gates: key_gate is filled.
  BenchProblem(ModelShape model, int64_t batch, int64_t tokens, bool decode, sluice_dtype dtype,
               bool key_gates = false);

  ModelShape model;
  int64_t B, T;
  bool decode;
  sluice_dtype dtype;
  Buffer q, k, v, gate, beta;  ///< gate and beta are float32
  /// float32 [B,T,HV,K]: the head's gate for each channel (KDA), so that answers are the same.
  Buffer key_gate;
  Buffer initial;  ///< float32, B HV K V numbers: [B,HV,K,V] or [B,HV,V,K]

  /// The initial states as a layout has them: the same memory, other states.
  TensorView initial_as(StateLayout layout) const;
  /// 7 K V per token and value head, whoever computes it.
  double flops() const noexcept;
  /// Each sequence's state read once and written once, numbers of so many bytes.
  double state_bytes(int64_t number_bytes = 4) const noexcept;
};

/// Tokens that are checked: the first ones of the first sequence.
constexpr int64_t kSampleTokens = 64;

/// [B,HV,K,V] or [B,HV,V,K].
std::vector<int64_t> state_shape(const ModelShape& model, int64_t B, StateLayout layout);

/// The float64 reference's o [1,T',HV,V] for the sample, in the conventions given.
check::Array sample_answer(const BenchProblem& problem, HeadMap head_map, StateLayout layout);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CPU_PROBLEM_HPP_
