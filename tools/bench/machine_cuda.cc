// Makes a GPU a machine, through the CUDA runtime: events around each call, a sweep of the L2 before it;
// and captures, replays and times CUDA graphs.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/core.h>
#include <algorithm>
#include <stdexcept>
#include <string>

#include "tools/bench/machine.hpp"
#include "tools/bench/matmul_probe.h"
#include "tools/call.hpp"

namespace sluice::tools {
namespace {

/// Throws std::runtime_error "what: name (text)" unless the call succeeded.
void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(
      fmt::format("{}: {} ({})", what, cudaGetErrorName(error), cudaGetErrorString(error)));
}

// Written before a cold call: several times the L2 of any GPU. As Triton's do_bench does.
constexpr size_t kSweepBytes = size_t{256} << 20;
constexpr size_t kCopyBytes = size_t{1} << 30;
constexpr int kCopies = 11;
// A bfloat16 matrix product of 8192^3 on random data, on an H200: where the probe cannot run.
constexpr double kDocumentedFlops = 790e12;

struct Event {
  Event() { check_cuda(cudaEventCreate(&handle), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(handle); }
  void record(cudaStream_t stream = nullptr) const {
    check_cuda(cudaEventRecord(handle, stream), "cudaEventRecord");
  }
  cudaEvent_t handle = nullptr;
};

double seconds_between(const Event& begin, const Event& end) {
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, begin.handle, end.handle), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(ms);
}

/// Reads a GPU's clock and driver version through NVIDIA's management library, loaded at run time,
/// so that nothing has to be linked.
class ClockReader {
 public:
  /// pci_bus: as cudaDeviceGetPCIBusId() writes it.
  explicit ClockReader(const char* pci_bus) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    const auto start = symbol<int (*)()>("nvmlInit_v2");
    const auto find = symbol<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    const auto version = symbol<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
    if (start == nullptr || find == nullptr || start() != kSuccess) return;
    if (find(pci_bus, &device_) != kSuccess) device_ = nullptr;
    char text[96] = {};
    if (version != nullptr && version(text, sizeof text) == kSuccess) driver_version_ = text;
  }
  ClockReader(const ClockReader&) = delete;
  ClockReader& operator=(const ClockReader&) = delete;
  ~ClockReader() {
    if (library_ != nullptr) dlclose(library_);
  }

  /// 0 if it cannot be asked.
  double multiprocessor_mhz() const {
    const auto read = symbol<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    unsigned mhz = 0;
    if (device_ == nullptr || read == nullptr) return 0;
    return read(device_, kMultiprocessorClock, &mhz) == kSuccess ? mhz : 0;
  }
  /// "580.159.04", empty if it cannot be asked.
  const std::string& driver_version() const { return driver_version_; }

 private:
  static constexpr int kSuccess = 0, kMultiprocessorClock = 1;  // NVML_SUCCESS, NVML_CLOCK_SM

  template <class Function>
  Function symbol(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_ = nullptr;
  void* device_ = nullptr;
  std::string driver_version_;
};

class CudaMachine final : public Machine {
 public:
  CudaMachine() {
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    check_cuda(cudaGetDeviceProperties(&properties_, 0), "cudaGetDeviceProperties");
    char bus[32] = {};
    check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, 0), "cudaDeviceGetPCIBusId");
    clock_ = std::make_unique<ClockReader>(bus);
  }

  sluice_device device() const override { return cuda_device(); }
  std::string name() const override { return properties_.name; }
  int processors() const override { return properties_.multiProcessorCount; }

  nlohmann::json describe() const override {
    int driver = 0, runtime = 0, clock_khz = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0);
    return {{"name", name()},
            {"compute_capability", fmt::format("{}.{}", properties_.major, properties_.minor)},
            {"multiprocessors", processors()},
            {"memory_bytes", properties_.totalGlobalMem},
            {"l2_bytes", properties_.l2CacheSize},
            {"highest_clock_mhz", clock_khz / 1000},
            {"driver", clock_->driver_version()},
            {"driver_cuda_version", driver},
            {"runtime_cuda_version", runtime}};
  }

  std::shared_ptr<void> allocate(size_t bytes) override {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, std::max<size_t>(bytes, 1)),
               fmt::format("cudaMalloc of {} MB", bytes >> 20).c_str());
    return {memory, [](void* p) { cudaFree(p); }};
  }
  void upload(void* to, const void* from, size_t bytes) override {
    check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
  }
  void download_rows(void* to, const void* from, size_t row_bytes, size_t stride,
                     size_t rows) override {
    check_cuda(cudaMemcpy2D(to, row_bytes, from, stride, row_bytes, rows, cudaMemcpyDeviceToHost),
               "copy from the GPU");
  }
  void fill(void* data, int byte, size_t bytes) override {
    check_cuda(cudaMemset(data, byte, bytes), "cudaMemset");
  }
  void synchronize() override { check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

  Ceilings measure_ceilings() override {
    Ceilings out;
    const std::shared_ptr<void> from = allocate(kCopyBytes), to = allocate(kCopyBytes);
    fill(from.get(), 0x3c, kCopyBytes);
    CallTimes copies = time_calls(
        [&] {
          check_cuda(cudaMemcpyAsync(to.get(), from.get(), kCopyBytes, cudaMemcpyDeviceToDevice),
                     "copy on the GPU");
        },
        kCopies, false);
    std::sort(copies.seconds.begin(), copies.seconds.end());
    out.bytes_per_second = 2.0 * static_cast<double>(kCopyBytes) / copies.seconds[kCopies / 2];
    out.bytes_source = "copy of 1 GiB, bytes read and written, measured in this run";
    out.flop_per_second = matmul_flops_per_second();
    out.flop_source = "wgmma bfloat16 m64n128k16 on random data, sustained, measured in this run";
    if (out.flop_per_second <= 0) {
      cudaGetLastError();
      out.flop_per_second = kDocumentedFlops;
      out.flop_source = "documented: 8192^3 bfloat16 matrix product on an H200";
    }
    return out;
  }

  CallTimes time_calls(const std::function<void()>& call, int repeat, bool cold) override {
    if (cold && sweep_ == nullptr) sweep_ = allocate(kSweepBytes);
    std::vector<Event> begin(static_cast<size_t>(repeat)), end(static_cast<size_t>(repeat));
    for (size_t i = 0; i < begin.size(); ++i) {
      if (cold) {
        check_cuda(cudaMemsetAsync(sweep_.get(), static_cast<int>(i % 128), kSweepBytes),
                   "L2 sweep");
      }
      begin[i].record();
      call();
      end[i].record();
    }
    CallTimes out;
    // WHY here: the clocks have settled, and the last quarter of the queue still runs.
    check_cuda(cudaEventSynchronize(end[3 * end.size() / 4].handle), "calls");
    out.clock_mhz = clock_->multiprocessor_mhz();
    synchronize();
    for (size_t i = 0; i < begin.size(); ++i) {
      out.seconds.push_back(seconds_between(begin[i], end[i]));
    }
    return out;
  }

 private:
  cudaDeviceProp properties_{};
  std::unique_ptr<ClockReader> clock_;
  std::shared_ptr<void> sweep_;
};

}  // namespace

std::unique_ptr<Machine> make_cuda_machine(double* start_seconds) {
  const Stopwatch watch;
  check_cuda(cudaFree(nullptr), "start of the CUDA runtime");
  *start_seconds = watch.seconds();
  return std::make_unique<CudaMachine>();
}

namespace {

class CudaGraphTimer final : public GraphTimer {
 public:
  explicit CudaGraphTimer(const std::function<void(void*)>& enqueue) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    // WHY global mode: an allocation or a wait of the library is an error then.
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "begin of capture");
    enqueue(stream_);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "end of capture");
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(made, "graph");
    check_cuda(cudaGraphUpload(graph_, stream_), "upload of the graph");
  }
  CudaGraphTimer(const CudaGraphTimer&) = delete;
  CudaGraphTimer& operator=(const CudaGraphTimer&) = delete;
  ~CudaGraphTimer() override {
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(graph_);
    cudaStreamDestroy(stream_);
  }

  double replay() override {
    begin_.record(stream_);
    check_cuda(cudaGraphLaunch(graph_, stream_), "replay");
    end_.record(stream_);
    check_cuda(cudaEventSynchronize(end_.handle), "replay");
    return seconds_between(begin_, end_);
  }

 private:
  cudaStream_t stream_ = nullptr;
  Event begin_, end_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<GraphTimer> capture_graph(const std::function<void(void*)>& enqueue) {
  return std::make_unique<CudaGraphTimer>(enqueue);
}

}  // namespace sluice::tools
