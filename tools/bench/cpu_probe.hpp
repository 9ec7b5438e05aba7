// Measures what this machine can do at best, beside the operators: arithmetic and memory; and allocates
// memory for timing, in huge pages or not.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_CPU_PROBE_HPP_
#define SLUICE_TOOLS_BENCH_CPU_PROBE_HPP_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>

namespace sluice::tools {

/// "AMD EPYC 9R14", as the kernel names it.
std::string cpu_name();

/// CPU seconds that this process has used, all threads together.
double process_seconds();

/// float32 fused multiply-adds in registers on `threads` threads, in GFLOP/s (two per FMA), with
/// the widest vectors of this CPU. Runs about `seconds`, a block of each thread at least.
/// One thread is timed by CPU time, more by wall time, as contenders are.
double fma_peak(int threads, double seconds);

/// Reading and writing memory in place: x <- c x over a buffer of its own, split over threads.
class BandwidthProbe {
 public:
  explicit BandwidthProbe(size_t bytes);
  /// GB/s, bytes read and written counted; one sweep of each thread at least.
  double run(int threads, double seconds);

 private:
  struct Free {
    void operator()(float* p) const noexcept { std::free(p); }
  };
  size_t count_;
  std::unique_ptr<float, Free> values_;
};

/// From now on allocate_pages() asks for 2 MiB pages (Linux: MADV_HUGEPAGE) where a block is large
/// enough to hold one. The system may refuse.
void ask_for_huge_pages(bool ask);

/// Zeroed memory, every page of it touched, aligned to 256 bytes at least; for std::free(). Throws
/// std::bad_alloc.
void* allocate_pages(size_t bytes);

/// Bytes of this process that lie in huge pages now; 0 where that is not known.
double huge_page_bytes();

/// Most bytes of memory that this process ever held; 0 where that is not known.
double peak_resident_bytes();

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_CPU_PROBE_HPP_
