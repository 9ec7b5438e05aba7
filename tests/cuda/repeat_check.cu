// Measures whether a CUDA prefill gives the same bits every time: thousands of launches, alone and
// beside another stream's and copies, compared on the device with the first one's. Prints where the
// first difference is. Argument: seconds for each configuration (default 0.5).
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "device_scene.hpp"

namespace {
using namespace sluice::check;

/// What differed first, and how much in all.
struct Difference {
  unsigned long long words, launches;
  unsigned long long launch, at;
  unsigned expected, found;
};

/// Compares 32-bit words; `launch` counts from 1.
__global__ void compare_words(const unsigned* expected, const unsigned* found,
                              unsigned long long count, unsigned long long launch,
                              Difference* difference) {
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += gridDim.x * blockDim.x) {
    if (expected[i] == found[i]) continue;
    if (atomicAdd(&difference->words, 1ull) == 0) {
      difference->launch = launch;
      difference->at = i;
      difference->expected = expected[i];
      difference->found = found[i];
    }
    atomicMax(&difference->launches, launch);
  }
}

/// Copies in the background, which make the kernel's own loads and stores late.
class Traffic {
 public:
  Traffic() {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    for (void*& memory : memory_) cudaMalloc(&memory, kBytes);
  }
  Traffic(const Traffic&) = delete;
  ~Traffic() {
    for (void* memory : memory_) cudaFree(memory);
    cudaStreamDestroy(stream_);
  }
  void add() { cudaMemcpyAsync(memory_[0], memory_[1], kBytes, cudaMemcpyDeviceToDevice, stream_); }

 private:
  static constexpr size_t kBytes = size_t{64} << 20;
  void* memory_[2] = {};
  cudaStream_t stream_ = nullptr;
};

/// One scene, its expected results on the device, and its stream.
class Repeated {
 public:
  Repeated(const GdnCase& c, const GdnInputs& inputs)
      : case_(c),
        scene_(c, inputs),
        o_(c.io, scene_.o.values()),
        state_(c.state_dtype, scene_.final_state.values()) {
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    cudaMalloc(&differences_, 2 * sizeof(Difference));
    cudaMemset(differences_, 0, 2 * sizeof(Difference));
  }
  Repeated(const Repeated&) = delete;
  ~Repeated() {
    cudaFree(differences_);
    cudaStreamDestroy(stream_);
  }

  bool expect_first_run() {
    const std::string trouble = scene_.run();
    if (!trouble.empty()) std::printf("%s\n", trouble.c_str());
    copy(o_, scene_.o);
    copy(state_, scene_.final_state);
    // WHY: copies inside the device do not wait, and the launches' streams do not wait for them.
    return cudaDeviceSynchronize() == cudaSuccess && trouble.empty();
  }
  void launch() {
    ++launches_;
    cudaMemsetAsync(scene_.o.view().data, 0xff, scene_.o.size(), stream_);
    cudaMemsetAsync(scene_.final_state.view().data, 0xff, scene_.final_state.size(), stream_);
    if (scene_.enqueue(stream_) != SLUICE_OK) std::printf("%s\n", sluice_last_error());
    compare(o_, scene_.o, 0);
    compare(state_, scene_.final_state, 1);
  }
  /// True if all launches so far agreed.
  bool report(const char* name) {
    if (cudaDeviceSynchronize() != cudaSuccess) {
      std::printf("%-28s FAILED %s\n", name, cudaGetErrorName(cudaGetLastError()));
      return false;
    }
    Difference found[2];
    cudaMemcpy(found, differences_, sizeof found, cudaMemcpyDeviceToHost);
    const bool same = found[0].words == 0 && found[1].words == 0;
    std::printf("%-28s %s %llu launches\n", name, same ? "ok" : "FAILED", launches_);
    if (found[0].words > 0) print_o(found[0]);
    if (found[1].words > 0) print_state(found[1]);
    return same;
  }

 private:
  static void copy(const DeviceTensor& to, const DeviceTensor& from) {
    cudaMemcpy(to.view().data, from.view().data, from.size(), cudaMemcpyDeviceToDevice);
  }
  void compare(const DeviceTensor& expected, const DeviceTensor& found, int which) {
    compare_words<<<64, 512, 0, stream_>>>(static_cast<const unsigned*>(expected.view().data),
                                           static_cast<const unsigned*>(found.view().data),
                                           found.size() / 4, launches_, differences_ + which);
  }
  void print_o(const Difference& d) const {
    const auto element = static_cast<int64_t>(d.at) * 2;
    const int64_t row = element / (case_.HV * case_.V), head = element / case_.V % case_.HV;
    const std::vector<int64_t> rows = case_.cu_seqlens();
    size_t n = 0;
    while (n + 2 < rows.size() && rows[n + 1] <= row) ++n;
    std::printf(
        "  o: %llu words, launches %llu .. %llu; first: sequence %zu of %lld tokens, token "
        "%lld, head %lld, column %lld: %08x, expected %08x\n",
        d.words, d.launch, d.launches, n, static_cast<long long>(rows[n + 1] - rows[n]),
        static_cast<long long>(row - rows[n]), static_cast<long long>(head),
        static_cast<long long>(element % case_.V), d.found, d.expected);
  }
  void print_state(const Difference& d) const {
    const auto element = static_cast<int64_t>(d.at), size = case_.K * case_.V;
    std::printf(
        "  state: %llu words, launches %llu .. %llu; first: sequence %lld, head %lld, (%lld, "
        "%lld): %08x, expected %08x\n",
        d.words, d.launch, d.launches, static_cast<long long>(element / size / case_.HV),
        static_cast<long long>(element / size % case_.HV),
        static_cast<long long>(element % size / case_.V), static_cast<long long>(element % case_.V),
        d.found, d.expected);
  }

  GdnCase case_;
  DeviceScene scene_;
  DeviceTensor o_, state_;
  cudaStream_t stream_ = nullptr;
  Difference* differences_ = nullptr;
  unsigned long long launches_ = 0;
};

GdnCase make_case(sluice_dtype io, bool l2norm, bool planned) {
  std::vector<int64_t> lengths = {700, 64, 513};
  if (planned) lengths.clear();
  for (int64_t n = 0; planned && n < 60; ++n) lengths.push_back(n * 37 % 200);
  GdnCase c = prefill_case("repeat", lengths, planned ? 2 : 4, planned ? 8 : 32);
  c.io = io;
  if (l2norm) c.options.qk_norm = SLUICE_QK_NORM_L2;
  return c;
}

bool run(const char* name, const GdnCase& c, bool two_streams, double seconds) {
  const GdnInputs inputs = make_inputs(c);
  Repeated first(c, inputs), second(c, inputs);
  if (!first.expect_first_run() || !second.expect_first_run()) return false;
  Traffic traffic;
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  while (passed() < seconds) {
    for (int i = 0; i < 200; ++i) {
      first.launch();
      if (two_streams) second.launch(), traffic.add();
    }
    cudaDeviceSynchronize();
  }
  const bool same = first.report(name);
  return (two_streams ? second.report(name) : true) && same;
}

}  // namespace

int main(int argc, char** argv) {
  if (!has_hopper_gpu()) {
    std::printf("skipped: no CUDA device of compute capability 9.0 here\n");
    return 77;
  }
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.5;
  bool same = true;
  for (const bool two_streams : {false, true}) {
    for (const bool planned : {true, false}) {
      for (const bool l2norm : {false, true}) {
        for (const sluice_dtype io : {kF16, kBF16}) {
          char name[64];
          std::snprintf(name, sizeof name, "%s%s%s%s", dtype_name(io), l2norm ? " l2norm" : "",
                        planned ? " planned" : " long", two_streams ? " two streams" : "");
          same = run(name, make_case(io, l2norm, planned), two_streams, seconds) && same;
        }
      }
    }
  }
  std::printf("%s\n", same ? "all ok" : "FAILED");
  return same ? 0 : 1;
}
