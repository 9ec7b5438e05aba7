// Captures work in a CUDA graph and replays it: what an engine's decode step is.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_GRAPH_TIMER_HPP_
#define SLUICE_TOOLS_BENCH_GRAPH_TIMER_HPP_

#include <functional>
#include <memory>

namespace sluice::tools {

class GraphTimer {
 public:
  virtual ~GraphTimer() = default;
  /// Seconds from before the first launch to after the last one.
  virtual double replay() = 0;
};

/// Captures what `enqueue` puts on the stream that it is given; throws std::runtime_error.
std::unique_ptr<GraphTimer> capture_graph(const std::function<void(void* stream)>& enqueue);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_GRAPH_TIMER_HPP_
