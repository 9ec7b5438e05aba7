// Makes the host a machine: wall time, and the probes of `bench cpu`.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "tools/bench/cpu_probe.hpp"
#include "tools/bench/machine.hpp"
#include "tools/call.hpp"
#include "tools/machine_facts.hpp"

namespace sluice::tools {
namespace {

constexpr size_t kHostAlignment = 256;
// More than the last-level cache of common CPUs.
constexpr size_t kSweepBytes = size_t{256} << 20;
// Seconds of each probe.
constexpr double kProbeSeconds = 0.05;

class HostMachine final : public Machine {
 public:
  sluice_device device() const override { return kCpuDevice; }
  std::string name() const override { return cpu_name(); }
  int processors() const override {
    for (const auto& [key, value] : capabilities()) {
      if (key == "cpu.threads") return std::stoi(value);
    }
    return 1;
  }
  nlohmann::json describe() const override { return {{"name", name()}, {"threads", processors()}}; }

  std::shared_ptr<void> allocate(size_t bytes) override {
    void* memory =
        std::aligned_alloc(kHostAlignment, (bytes / kHostAlignment + 1) * kHostAlignment);
    if (memory == nullptr) throw std::bad_alloc();
    return {memory, std::free};
  }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download_rows(void* to, const void* from, size_t row_bytes, size_t stride,
                     size_t rows) override {
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * row_bytes,
                  static_cast<const std::byte*>(from) + row * stride, row_bytes);
    }
  }
  void fill(void* data, int byte, size_t bytes) override { std::memset(data, byte, bytes); }
  void synchronize() override {}

  Ceilings measure_ceilings() override {
    Ceilings out;
    out.flop_per_second = fma_peak(processors(), kProbeSeconds) * 1e9;
    out.flop_source = "float32 FMA in registers, all threads, measured in this run";
    BandwidthProbe probe(kSweepBytes);
    out.bytes_per_second = probe.run(processors(), kProbeSeconds) * 1e9;
    out.bytes_source = "x <- c x in place, bytes read and written, measured in this run";
    return out;
  }

  CallTimes time_calls(const std::function<void()>& call, int repeat, bool cold) override {
    CallTimes out;
    for (int i = 0; i < repeat; ++i) {
      if (cold) {
        sweep_.resize(kSweepBytes);
        std::memset(sweep_.data(), i, sweep_.size());
      }
      const Stopwatch watch;
      call();
      out.seconds.push_back(watch.seconds());
    }
    return out;
  }

 private:
  std::vector<char> sweep_;
};

}  // namespace

std::unique_ptr<Machine> make_host_machine() { return std::make_unique<HostMachine>(); }

}  // namespace sluice::tools
