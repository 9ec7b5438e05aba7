// Defines who is timed by `sluice bench cpu`: Sluice, and peers that were linked in; and times them in
// turns, so that what disturbs the machine disturbs all of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CPU_CONTENDER_HPP_
#define SLUICE_TOOLS_BENCH_CPU_CONTENDER_HPP_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/bench/cpu_problem.hpp"

namespace sluice::tools {

/// One implementation on one problem. Prefill calls start from the initial states; decode calls go
/// on from the states that the last call on the same slots left.
class Contender {
 public:
  virtual ~Contender() = default;
  /// Name and version.
  virtual std::string name() const = 0;
  /// One call. Returns what went wrong, or an empty string.
  virtual std::string run() = 0;
  /// Lets no thread of its own spin while others take their turns.
  virtual void rest() {}
  /// The outputs [B,T,HV,V] of the last call.
  virtual TensorView output() const = 0;
  virtual HeadMap head_map() const = 0;
  virtual StateLayout state_layout() const = 0;
  /// Whether output() answers the problem's own inputs.
  virtual bool comparable() const { return true; }
  /// Working memory beside inputs, outputs and states, as far as it is known.
  virtual size_t scratch_bytes() const { return 0; }
  /// Of one number of a state.
  virtual int64_t state_number_bytes() const { return 4; }
};

/// Working memory of Sluice's calls.
class Scratch {
 public:
  /// At least `bytes`.
  Workspace reserve(size_t bytes);
  size_t bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<Buffer> memory_;
  size_t bytes_ = 0;
};

/// How a pool keeps its states.
struct StateForm {
  sluice_dtype dtype = check::kF32;
  StateLayout layout = StateLayout::kKV;
};

/// slots: how many sets of B states decode calls rotate through.
std::unique_ptr<Contender> make_sluice_contender(const BenchProblem& problem, StateForm form,
                                                 int64_t slots);

/// The same with the problem's key-wise gates.
std::unique_ptr<Contender> make_key_gates_contender(const BenchProblem& problem, int64_t slots);

/// The same on one of the library's threads, whatever SLUICE_NUM_THREADS says.
std::unique_ptr<Contender> make_one_thread_contender(const BenchProblem& problem, int64_t slots);

/// layer_prefill or layer_decode of a layer with the problem's sizes: convolution, gates, delta
/// rule and norm, on inputs of its own.
std::unique_ptr<Contender> make_layer_contender(const BenchProblem& problem, int64_t slots);

/// ggml's ggml_gated_delta_net; null where it was not linked in or does not take the problem.
std::unique_ptr<Contender> make_ggml_contender(const BenchProblem& problem, int64_t slots,
                                               int threads, bool key_gates);

/// ik_llama.cpp's fused delta rule; null where it was not linked in or does not take the problem.
std::unique_ptr<Contender> make_ik_contender(const BenchProblem& problem, int64_t slots,
                                             int threads);

/// Seconds per call: the median over rounds, and the middle half's ends.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> samples);

struct Measurement {
  std::string name, failure;  ///< failure: what run() said, or empty
  Spread wall, cpu;           ///< cpu: of the whole process
  int64_t state_number_bytes = 4;
  size_t scratch_bytes = 0;
  double error = 0;  ///< relative L2 of the sample against the reference, NaN if not comparable
};

struct MeasureOptions {
  int rounds = 9;
  double seconds = 0.05;  ///< at least, of each contender in each round
};

/// First each contender once for its error (and to warm up), then rounds in which each runs for a
/// while in turn, then `beside()` for the probes.
std::vector<Measurement> measure(const BenchProblem& problem,
                                 const std::vector<std::unique_ptr<Contender>>& contenders,
                                 const MeasureOptions& options,
                                 const std::function<void()>& beside);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CPU_CONTENDER_HPP_
