// Declares where a benchmark runs: memory, timing and limits of the host or of a GPU behind one interface,
// and CUDA graphs, which are what an engine's decode step is.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_MACHINE_HPP_
#define SLUICE_TOOLS_BENCH_MACHINE_HPP_

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sluice/sluice.hpp"

namespace sluice::tools {

/// What most benchmarks are asked for.
struct RunOptions {
  std::string json = {}, commit = "unknown";
  sluice_dtype dtype = kBFloat16;
  Implementation backend = Implementation::kCuda;
  int repeat = 15;
};
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// What a machine can do at best, and how that was found.
struct Ceilings {
  double flop_per_second = 0, bytes_per_second = 0;
  std::string flop_source, bytes_source;
};

/// Seconds of each timed call; the clock while they ran, in MHz, 0 where it cannot be asked.
struct CallTimes {
  std::vector<double> seconds;
  double clock_mhz = 0;
};

/// Failures throw std::runtime_error with the name of what failed.
class Machine {
 public:
  virtual ~Machine() = default;

  virtual sluice_device device() const = 0;
  /// "NVIDIA H200"; a CPU's model name.
  virtual std::string name() const = 0;
  /// Multiprocessors or threads.
  virtual int processors() const = 0;
  /// Versions and sizes for the record.
  virtual nlohmann::json describe() const = 0;

  /// Memory of its own, 256-byte aligned, freed with the last copy of the pointer.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  /// `rows` rows of `row_bytes`, `stride` bytes apart, packed into `to`.
  virtual void download_rows(void* to, const void* from, size_t row_bytes, size_t stride,
                             size_t rows) = 0;
  virtual void fill(void* data, int byte, size_t bytes) = 0;
  virtual void synchronize() = 0;

  /// Measures; takes well under a second.
  virtual Ceilings measure_ceilings() = 0;
  /// Times `repeat` calls that enqueue work on the default stream. cold: each finds the caches full
  /// of other data.
  virtual CallTimes time_calls(const std::function<void()>& call, int repeat, bool cold) = 0;
};

/// The lines of sluice_capability(): key and value, in its order.
std::vector<std::pair<std::string, std::string>> capabilities();

std::unique_ptr<Machine> make_host_machine();
/// The first GPU. *start_seconds: what making its context took.
std::unique_ptr<Machine> make_cuda_machine(double* start_seconds);

class GraphTimer {
 public:
  virtual ~GraphTimer() = default;
  /// Seconds from before the first launch to after the last one.
  virtual double replay() = 0;
};

/// Captures what `enqueue` puts on the stream that it is given; throws std::runtime_error.
std::unique_ptr<GraphTimer> capture_graph(const std::function<void(void* stream)>& enqueue);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_MACHINE_HPP_
