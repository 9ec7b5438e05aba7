// Emulates a CTA on the CPU: its threads are fibers of one thread, scheduled at random, and the
// copy engine and the tensor cores work late and at random too. What CUDA kernels of this project
// need, no more.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATOR_HPP_
#define SLUICE_TESTS_EMULATION_EMULATOR_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace emulation {

struct Index {
  unsigned x, y = 0, z = 0;
};

/// The running fiber's.
extern Index thread, block, block_extent, grid_extent;

/// What earlier launches have left to do when a kernel starts; each thread that waits for them runs
/// it. Empty: nothing.
extern std::function<void()> earlier_launches;
/// Is told which signal a thread reads, ahead of the read. Empty: nobody.
inline std::function<void(const uint32_t*)> asked_for;

/// Runs `kernel` as each of `threads` threads of CTA `cta` of `ctas`, to the end. Empty, or why
/// not: nobody can go on, or an engine has work left.
std::string run_cta(unsigned cta, unsigned ctas, unsigned threads, uint64_t seed,
                    const std::function<void()>& kernel);

/// CTAs that run together, in clusters, each with shared memory of its own.
struct Grid {
  unsigned ctas, threads;
  unsigned cluster = 1;   ///< CTAs of one
  unsigned resident = 4;  ///< clusters at a time
  size_t shared_bytes = 0;
  unsigned x = 0, y = 1;  ///< extents of the first dimensions, clusters along x; 0: all are along x
};
/// Runs `kernel` as every thread of a grid, CTAs in random order and interleaved at random. Empty,
/// or why not.
std::string run_grid(const Grid& grid, uint64_t seed, const std::function<void()>& kernel);

/// Lets others run until ready(context) is true.
void wait_until(bool (*ready)(void*), void* context);

template <class Ready>
void wait_until(Ready ready) {
  wait_until([](void* context) { return (*static_cast<Ready*>(context))(); }, &ready);
}

/// All threads of the calling warp meet.
void meet_warp();

/// Slot of the calling warp, for collectives: one 64-byte piece a lane.
struct Exchange {
  uint32_t words[32][16];
};
Exchange& exchange();

/// Named barrier: arrives, and waits if `wait`.
void named_barrier(uint32_t id, uint32_t threads, bool wait);

/// Work that an engine does some time later, on behalf of the calling thread.
void copy_later(std::function<void()> work, bool is_store);
/// Waits until the calling thread's stores are done.
void wait_for_stores();

/// One thread's part of a warpgroup's product: results and, unless from shared memory, operand A.
struct ProductPart {
  float* d;
  const uint32_t* a;
};
/// A product of the calling warpgroup, done later, after those before it.
using Product = std::function<void(const ProductPart (&)[128])>;
void multiply_later(const ProductPart& part, const Product& product);
void close_group();
void wait_for_groups(int pending);

/// The cluster's barrier: every thread arrives, then waits.
void cluster_arrive();
void cluster_wait();
/// Shared memory of a CTA in a grid, and the same place in that of a CTA of its cluster.
uint8_t* own_shared();
uint8_t* remote_shared(const void* own, uint32_t rank);

/// Shared memory of the CTA.
inline constexpr uint32_t kSharedBytes = 227 * 1024;
/// Shared address of its first byte. WHY not 0: GPUs keep the kilobyte before it for themselves, so
/// that no address is a multiple of more than that by chance.
inline constexpr uint32_t kFirstAddress = 1024;
uint8_t* shared_at(uint32_t address);
uint32_t address_of(const void* pointer);

}  // namespace emulation

#endif  // SLUICE_TESTS_EMULATION_EMULATOR_HPP_
