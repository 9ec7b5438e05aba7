// Copies a call's tensors to a CUDA device and back. Host memory of all views is merged into
// disjoint spans; each span gets a device allocation at the same address modulo 256, with guard
// bytes on both sides.
// SPDX-License-Identifier: Apache-2.0
#include "check/device_copy.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace sluice::check {
namespace {

constexpr uintptr_t kAlign = 256;
constexpr size_t kGuard = 4096;
constexpr int kGuardByte = 0x5a;

struct Span {
  uintptr_t begin = 0, end = 0;  ///< host addresses
  std::byte* allocation = nullptr;
  std::byte* data = nullptr;  ///< device address of `begin`
  size_t allocated = 0;
};

Span span_of(const sluice_tensor& t) {
  const auto size = static_cast<int64_t>(t.dtype.bits / 8);
  int64_t low = 0, high = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] == 0) return {};
    const int64_t reach = (t.shape[axis] - 1) * t.stride[axis];
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<uintptr_t>(t.data);
  return {base + static_cast<uintptr_t>(low * size),
          base + static_cast<uintptr_t>((high + 1) * size)};
}

class CudaCopy : public DeviceCopy {
 public:
  ~CudaCopy() override {
    for (const Span& span : spans_) cudaFree(span.allocation);
    cudaFree(scratch_.allocation);
  }

  void upload(const std::vector<sluice_tensor*>& tensors) override {
    for (const sluice_tensor* t : tensors) {
      const Span span = t->data != nullptr ? span_of(*t) : Span{};
      if (span.end > span.begin) add(span);
    }
    for (Span& span : spans_) {
      allocate(&span, span.end - span.begin, span.begin % kAlign);
      note(cudaMemcpy(span.data, reinterpret_cast<void*>(span.begin), span.end - span.begin,
                      cudaMemcpyHostToDevice));
    }
    for (sluice_tensor* t : tensors) {
      t->device = {SLUICE_DEVICE_CUDA, 0};
      const auto address = reinterpret_cast<uintptr_t>(t->data);
      for (const Span& span : spans_) {
        if (address < span.begin || address >= span.end) continue;
        t->data = span.data + (address - span.begin);
        break;
      }
    }
  }

  sluice_workspace workspace(size_t bytes, int fill) override {
    allocate(&scratch_, bytes, 0);
    note(cudaMemset(scratch_.data, fill, bytes));
    scratch_.end = bytes;
    return {scratch_.data, bytes};
  }

  std::string wait() override {
    note(cudaDeviceSynchronize());
    return trouble_;
  }

  std::string download() override {
    wait();
    for (const Span& span : spans_) {
      check_guards(span);
      note(cudaMemcpy(reinterpret_cast<void*>(span.begin), span.data, span.end - span.begin,
                      cudaMemcpyDeviceToHost));
    }
    if (scratch_.allocation != nullptr) check_guards(scratch_);
    return trouble_;
  }

 private:
  void note(cudaError_t error) {
    if (error != cudaSuccess) trouble_ += std::string(cudaGetErrorName(error)) + "; ";
  }

  /// Merges with every span that it overlaps.
  void add(Span span) {
    std::vector<Span> kept;
    for (const Span& other : spans_) {
      if (other.end <= span.begin || span.end <= other.begin) {
        kept.push_back(other);
      } else {
        span.begin = std::min(span.begin, other.begin);
        span.end = std::max(span.end, other.end);
      }
    }
    kept.push_back(span);
    spans_ = kept;
  }

  void allocate(Span* span, size_t bytes, uintptr_t offset) {
    span->allocated = kGuard + offset + bytes + kGuard;
    void* memory = nullptr;
    note(cudaMalloc(&memory, span->allocated));
    note(cudaMemset(memory, kGuardByte, span->allocated));
    span->allocation = static_cast<std::byte*>(memory);
    span->data = span->allocation + kGuard + offset;
  }

  void check_guards(const Span& span) {
    std::vector<unsigned char> bytes(span.allocated);
    note(cudaMemcpy(bytes.data(), span.allocation, bytes.size(), cudaMemcpyDeviceToHost));
    const auto first = static_cast<size_t>(span.data - span.allocation);
    const size_t last = first + (span.end - span.begin);
    for (size_t i = 0; i < bytes.size(); ++i) {
      if ((i < first || i >= last) && bytes[i] != kGuardByte) {
        trouble_ += "device memory beside a tensor; ";
        return;
      }
    }
  }

  std::vector<Span> spans_;
  Span scratch_;
  std::string trouble_;
};

std::unique_ptr<DeviceCopy> make() { return std::make_unique<CudaCopy>(); }

[[maybe_unused]] const bool registered = [] {
  make_device_copy = make;
  return true;
}();

}  // namespace
}  // namespace sluice::check
