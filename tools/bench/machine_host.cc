// Makes the host a machine: wall time, the probes of `bench cpu`, and what the library tells of it.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "tools/bench/cpu_probe.hpp"
#include "tools/bench/machine.hpp"
#include "tools/call.hpp"

namespace sluice::tools {

std::vector<std::pair<std::string, std::string>> capabilities() {
  std::string text(sluice_capability(nullptr, 0) + 1, '\0');
  sluice_capability(text.data(), text.size());
  std::vector<std::pair<std::string, std::string>> out;
  std::istringstream lines(text.c_str());
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t value = line.find_first_not_of(' ', colon + 1);
    out.emplace_back(line.substr(0, colon), value == std::string::npos ? "" : line.substr(value));
  }
  return out;
}

namespace {

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
    return {allocate_pages(bytes), std::free};
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
