// Makes what `sluice bench parts` times: calls of the operators around the delta rule, each on
// memory of its own, with the bytes that it cannot avoid.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_PARTS_WORK_HPP_
#define SLUICE_TOOLS_BENCH_PARTS_WORK_HPP_

#include <functional>
#include <string>
#include <vector>

#include "sluice/sluice.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {

/// One row of the table.
struct PartsCell {
  /// "conv", "update", "norm", their gradients "conv-backward", "norm-backward", "layer-backward",
  /// "layer" or "delta" (the layer's delta rule alone)
  std::string op;
  std::string shape;  ///< how rows or states lie in memory, e.g. "channel-first", "ring"
  int64_t T = 0;      ///< tokens of a sequence; 1 in updates
  int64_t N = 1;      ///< sequences, packed where T is above 1
  int64_t H = 16, HV = 32, K = 128, V = 128;

  /// Channels of the convolution.
  int64_t D() const noexcept { return 2 * H * K + HV * V; }
};

/// The grid: every cell of the operators in `ops`, for the head counts of Qwen3-Next and Qwen3.5.
std::vector<PartsCell> parts_cells(const std::vector<std::string>& ops,
                                   const std::vector<std::string>& heads);

/// Bytes read and written once: activations, states, not weights.
double parts_bytes(const PartsCell& cell, int64_t element_bytes) noexcept;
/// Of those of a layer, what the delta rule alone does not move.
double bytes_around(const PartsCell& cell, int64_t element_bytes) noexcept;

/// A cell's calls on a machine.
class PartsWork {
 public:
  /// Failures throw std::runtime_error.
  PartsWork(Machine& machine, const PartsCell& cell, DType dtype, Implementation backend);
  /// Calls on as many memories as keep every one cold when its turn comes.
  void call_all();
  /// One call.
  void call();
  int copies() const noexcept { return static_cast<int>(calls_.size()); }

 private:
  TensorView offsets();
  TensorView decay_rates();
  void add_conv();
  void add_update();
  void add_norm();
  void add_conv_backward();
  void add_norm_backward();
  void add_layer();
  void add_layer_backward();
  void add_delta();
  /// Of a layer in its packing, or their gradients.
  struct Projections {
    TensorView qkv, z, b, a;
  };
  Projections projections();
  template <class Args>
  void set_layer(Args* args);
  template <class Args>
  void add(const Args& args, Status (*run)(const Args&, Workspace, Stream) noexcept,
           const Result<WorkspaceSize>& size);

  WorkMemory memory_;
  PartsCell cell_;
  DType dtype_;
  Implementation backend_;
  std::vector<std::function<void()>> calls_;
  size_t next_ = 0;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_PARTS_WORK_HPP_
