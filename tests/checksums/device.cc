// Provides host memory, and GPU memory through the CUDA runtime where the program is built with it.
// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <cstring>
#include <new>

#ifdef SLUICE_CHECKSUMS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace sluice::checksums {
namespace {

constexpr std::align_val_t kAlignment{256};

class Cpu : public Device {
 public:
  [[nodiscard]] sluice_device name() const override { return {SLUICE_DEVICE_CPU, 0}; }
  void* allocate(size_t bytes) override { return ::operator new(bytes, kAlignment); }
  void release(void* memory) override { ::operator delete(memory, kAlignment); }
  void fill(void* memory, int byte, size_t bytes) override { std::memset(memory, byte, bytes); }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  std::string wait() override { return {}; }
  [[nodiscard]] std::string model() const override { return {}; }
};

#ifdef SLUICE_CHECKSUMS_CUDA

class Cuda : public Device {
 public:
  [[nodiscard]] sluice_device name() const override { return {SLUICE_DEVICE_CUDA, 0}; }
  void* allocate(size_t bytes) override {
    void* memory = nullptr;
    note(cudaMalloc(&memory, bytes));
    return memory;
  }
  void release(void* memory) override { note(cudaFree(memory)); }
  void fill(void* memory, int byte, size_t bytes) override {
    note(cudaMemset(memory, byte, bytes));
  }
  void upload(void* to, const void* from, size_t bytes) override {
    note(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  }
  void download(void* to, const void* from, size_t bytes) override {
    note(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
  }
  std::string wait() override {
    note(cudaDeviceSynchronize());
    return trouble_;
  }
  [[nodiscard]] std::string model() const override {
    int major = 0, minor = 0, processors = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    return "sm" + std::to_string(10 * major + minor) + "x" + std::to_string(processors);
  }

 private:
  void note(cudaError_t error) {
    if (error != cudaSuccess) trouble_ = cudaGetErrorName(error);
  }
  std::string trouble_;
};

#endif

}  // namespace

Device& cpu_device() {
  static Cpu device;
  return device;
}

Device* cuda_device() {
#ifdef SLUICE_CHECKSUMS_CUDA
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return nullptr;
  static Cuda device;
  return &device;
#else
  return nullptr;
#endif
}

}  // namespace sluice::checksums
