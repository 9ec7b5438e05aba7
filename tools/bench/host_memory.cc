// Allocates aligned host memory and asks for huge pages.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/host_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace sluice::tools {
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
