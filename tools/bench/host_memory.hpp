// Allocates memory of the host for timing, in huge pages or not, and tells how much of it there is.
// Memory of the host for timing: in huge pages or not, and how much of it there is.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_HOST_MEMORY_HPP_
#define SLUICE_TOOLS_BENCH_HOST_MEMORY_HPP_

#include <cstddef>

namespace sluice::tools {

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

#endif  // SLUICE_TOOLS_BENCH_HOST_MEMORY_HPP_
