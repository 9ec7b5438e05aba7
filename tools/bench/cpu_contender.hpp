// Makes what `sluice bench cpu` times: shapes by model name, inputs, the reference's answer to a sample;
// and who is timed: Sluice, and peers that were linked in.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CPU_CONTENDER_HPP_
#define SLUICE_TOOLS_BENCH_CPU_CONTENDER_HPP_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check/array.hpp"
#include "tools/bench/work_memory.hpp"

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

/// Inputs of the delta rule with what serving sees: unit q and k, normal v, g = -A softplus(normal)
/// with A from 0.02 to 1 over the heads, beta = sigmoid(normal), states 0.1 * normal.
struct BenchProblem {
  /// decode: T <= 16 tokens go on from a pool's states, in place. key_gates: key_gate is filled.
  BenchProblem(Machine& machine, ModelShape model, int64_t batch, int64_t tokens, bool decode,
               DType dtype, bool key_gates = false);

  mutable WorkMemory memory;  ///< of whoever computes it too
  ModelShape model;
  int64_t B, T;
  bool decode;
  DType dtype;
  TensorView q, k, v, gate, beta;  ///< gate and beta are float32
  /// float32 [B,T,HV,K]: the head's gate for each channel (KDA), so that answers are the same.
  TensorView key_gate;
  TensorView initial;  ///< float32, B HV K V numbers: [B,HV,K,V] or [B,HV,V,K]

  /// The initial states as a layout has them: the same memory, other states.
  TensorView initial_as(StateLayout layout) const;
  /// A pool of states [sequences,HV,K,V] or [sequences,HV,V,K], of which the first B are `initial`.
  TensorView make_pool(DType type, int64_t sequences, StateLayout layout) const;
  /// Room for outputs [B,T,HV,V].
  TensorView make_output(DType type) const;
  /// 7 K V per token and value head, whoever computes it.
  double flops() const noexcept;
  /// Each sequence's state read once and written once, numbers of so many bytes.
  double state_bytes(int64_t number_bytes = 4) const noexcept;
};

/// Tokens that are checked: the first ones of the first sequence.
constexpr int64_t kSampleTokens = 64;

/// The float64 reference's o [1,T',HV,V] for the sample, in the conventions given.
check::Array sample_answer(const BenchProblem& problem, HeadMap head_map, StateLayout layout);

/// One implementation on one problem. Prefill calls start from the initial states; decode calls go
/// on from the states that the last call on the same slots left.
class Contender {
 public:
  virtual ~Contender() = default;
  /// Name and version.
  virtual std::string name() const = 0;
  /// One call. Throws std::runtime_error that says what went wrong.
  virtual void run() = 0;
  /// Lets no thread of its own spin while others take their turns.
  virtual void rest() {}
  /// The outputs [B,T,HV,V] of the last call.
  virtual TensorView output() const = 0;
  virtual HeadMap head_map() const { return HeadMap::kBlock; }
  virtual StateLayout state_layout() const { return StateLayout::kKV; }
  /// Whether output() answers the problem's own inputs.
  virtual bool comparable() const { return true; }
  /// Working memory beside inputs, outputs and states, as far as it is known.
  virtual size_t scratch_bytes() const { return 0; }
  /// Of one number of a state.
  virtual int64_t state_number_bytes() const { return 4; }
};

/// How a pool keeps its states.
struct StateForm {
  DType dtype = kFloat32;
  StateLayout layout = StateLayout::kKV;
};

/// slots: how many sets of B states decode calls rotate through. key_gates:
/// with the problem's key-wise gates.
std::unique_ptr<Contender> make_sluice_contender(const BenchProblem& problem, StateForm form,
                                                 int64_t slots, bool key_gates);

/// The same on one of the library's threads, whatever SLUICE_NUM_THREADS says.
std::unique_ptr<Contender> make_one_thread_contender(const BenchProblem& problem, int64_t slots);

/// layer_prefill or layer_decode of a layer with the problem's sizes:
/// convolution, gates, delta rule and norm, on inputs of its own.
std::unique_ptr<Contender> make_layer_contender(const BenchProblem& problem, int64_t slots);

/// ggml's ggml_gated_delta_net; null where it was not linked in or does not take the problem.
std::unique_ptr<Contender> make_ggml_contender(const BenchProblem& problem, int64_t slots,
                                               int threads, bool key_gates);

/// ik_llama.cpp's fused delta rule; null where it was not linked in or does not take the problem.
std::unique_ptr<Contender> make_ik_contender(const BenchProblem& problem, int64_t slots,
                                             int threads);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CPU_CONTENDER_HPP_
