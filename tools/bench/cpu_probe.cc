// Measures multiply-adds and in-place scaling, the limits of a CPU, and asks for huge pages.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_probe.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace sluice::tools {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

double process_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLine = 64;     // bytes of a cache line
constexpr int kFmaBlock = 4096;  // FMA rounds between two looks at the clock

// Runs body(thread) on each thread at once, and returns the seconds until the last was done: of CPU
// time on one thread, as its contenders are judged, else of wall time.
template <class Body>
double on_threads(int threads, Body body) {
  const auto start = Clock::now();
  const double cpu = process_seconds();
  std::vector<std::jthread> pool;
  for (int i = 1; i < threads; ++i) pool.emplace_back([&body, i] { body(i); });
  body(0);
  pool.clear();
  if (threads == 1) return process_seconds() - cpu;
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool expired(Clock::time_point start, double seconds) {
  return std::chrono::duration<double>(Clock::now() - start).count() >= seconds;
}

// Each returns the FLOP of one block. Ten chains cover the latency (4 cycles) of two pipes.
#if defined(__x86_64__)
__attribute__((target("avx512f"))) double fma_block_avx512(float* sink) {
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  __m512 x[10];
  // WHY different starts: equal chains would be computed once.
  for (int j = 0; j < 10; ++j) x[j] = _mm512_set1_ps(sink[j]);
  for (int i = 0; i < kFmaBlock; ++i) {
#pragma GCC unroll 10
    for (int j = 0; j < 10; ++j) x[j] = _mm512_fmadd_ps(x[j], a, b);
  }
  for (int j = 0; j < 10; ++j) sink[j] = _mm512_cvtss_f32(x[j]);
  return 2.0 * 16 * 10 * kFmaBlock;
}

__attribute__((target("avx2,fma"))) double fma_block_avx2(float* sink) {
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  __m256 x[10];
  for (int j = 0; j < 10; ++j) x[j] = _mm256_set1_ps(sink[j]);
  for (int i = 0; i < kFmaBlock; ++i) {
#pragma GCC unroll 10
    for (int j = 0; j < 10; ++j) x[j] = _mm256_fmadd_ps(x[j], a, b);
  }
  for (int j = 0; j < 10; ++j) sink[j] = _mm256_cvtss_f32(x[j]);
  return 2.0 * 8 * 10 * kFmaBlock;
}
#endif

// Without intrinsics: what the compiler makes of it.
double fma_block_plain(float* sink) {
  float x[40];
  for (int j = 0; j < 40; ++j) x[j] = sink[j % 10] + static_cast<float>(j);
  for (int i = 0; i < kFmaBlock; ++i) {
    for (float& chain : x) chain = __builtin_fmaf(chain, 0.999f, 1e-3f);
  }
  std::copy_n(x, 10, sink);
  return 2.0 * 40 * kFmaBlock;
}

// x <- c x.
void scale_plain(float* values, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] *= 0.999999f;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void scale_avx2(float* values, size_t count) {
  const __m256 c = _mm256_set1_ps(0.999999f);
  size_t i = 0;
  for (; i + 32 <= count; i += 32) {
#pragma GCC unroll 4
    for (size_t j = 0; j < 32; j += 8) {
      float* at = values + i + j;
      _mm256_storeu_ps(at, _mm256_mul_ps(c, _mm256_loadu_ps(at)));
    }
  }
  scale_plain(values + i, count - i);
}

__attribute__((target("avx512f"))) void scale_avx512(float* values, size_t count) {
  const __m512 c = _mm512_set1_ps(0.999999f);
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
#pragma GCC unroll 4
    for (size_t j = 0; j < 64; j += 16) {
      float* at = values + i + j;
      _mm512_storeu_ps(at, _mm512_mul_ps(c, _mm512_loadu_ps(at)));
    }
  }
  scale_plain(values + i, count - i);
}
#endif

void scale(float* values, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return scale_avx512(values, count);
  if (__builtin_cpu_supports("avx2")) return scale_avx2(values, count);
#endif
  scale_plain(values, count);
}

using FmaBlock = double (*)(float*);

FmaBlock fma_block() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return fma_block_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return fma_block_avx2;
#endif
  return fma_block_plain;
}

}  // namespace

double fma_peak(int threads, double seconds) {
  const FmaBlock block = fma_block();
  std::atomic<double> flops = 0.0;
  const auto start = Clock::now();
  const double elapsed = on_threads(threads, [&](int) {
    float sink[10] = {1.0f, 1.1f, 1.2f, 1.3f, 1.4f, 1.5f, 1.6f, 1.7f, 1.8f, 1.9f};
    double done = 0.0;
    // WHY once at least: a thread that first runs when the time is over would find a peak of 0.
    do {
      done += block(sink);
    } while (!expired(start, seconds));
    // A sum that depends on the sink keeps the work.
    flops.fetch_add(sink[0] < 1e30f ? done : 0.0);
  });
  return flops / elapsed * 1e-9;
}

BandwidthProbe::BandwidthProbe(size_t bytes)
    : count_(bytes / kLine * kLine / sizeof(float)),
      values_(static_cast<float*>(allocate_pages(bytes / kLine * kLine))) {
  std::fill_n(values_.get(), count_, 1.0f);
}

double BandwidthProbe::run(int threads, double seconds) {
  constexpr size_t kLineFloats = kLine / sizeof(float);
  const size_t share = count_ / static_cast<size_t>(threads) / kLineFloats * kLineFloats;
  std::atomic<double> bytes = 0.0;
  const auto start = Clock::now();
  const double elapsed = on_threads(threads, [&](int thread) {
    float* first = values_.get() + static_cast<size_t>(thread) * share;
    double done = 0.0;
    // WHY once at least: as above.
    do {
      scale(first, share);
      done += 2.0 * sizeof(float) * static_cast<double>(share);
    } while (!expired(start, seconds));
    bytes.fetch_add(done);
  });
  // WHY: products of many rounds would become denormal, which is slow.
  std::fill_n(values_.get(), count_, 1.0f);
  return bytes / elapsed * 1e-9;
}

namespace {

constexpr size_t kAlignment = 256, kHugePage = size_t{2} << 20;
bool huge_pages = false;

// The kB after `key` in a file of the kernel's, in bytes.
double kernel_bytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) == 0) return 1024.0 * std::atof(line.c_str() + key.size() + 1);
  }
  return 0;
}

}  // namespace

void ask_for_huge_pages(bool ask) { huge_pages = ask; }

void* allocate_pages(size_t bytes) {
  const bool huge = huge_pages && bytes >= kHugePage;
  const size_t alignment = huge ? kHugePage : kAlignment;
  const size_t rounded = std::max((bytes + alignment - 1) / alignment * alignment, alignment);
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // Advice: refused, the memory is as good as any.
  if (huge) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, rounded);
  return memory;
}

double huge_page_bytes() { return kernel_bytes("/proc/self/smaps_rollup", "AnonHugePages"); }

double peak_resident_bytes() { return kernel_bytes("/proc/self/status", "VmHWM"); }

}  // namespace sluice::tools
