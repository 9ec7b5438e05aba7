// SPDX-License-Identifier: Apache-2.0
#include "emulator.hpp"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "cuda/shared_memory.hpp"

namespace emulation {

Index thread{}, block{}, block_extent{}, grid_extent{};

namespace {

constexpr size_t kStackBytes = 256 * 1024;

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  bool (*ready)(void*) = nullptr;
  void* ready_context = nullptr;
  int naps = 0;         ///< rounds to sit out
  int stores = 0;       ///< of this thread, not read yet
  uint64_t issued = 0;  ///< products
  uint64_t group_end = 0;
  std::deque<uint64_t> groups;  ///< products up to here, of each open group
};

struct Barrier {
  uint32_t arrived = 0;
  uint64_t generation = 0;
};

struct PendingProduct {
  int parts = 0;
  ProductPart part[128];
  Product work;
};

struct Warpgroup {
  std::deque<PendingProduct> products;  ///< not done
  uint64_t done = 0;
};

struct Copy {
  std::function<void()> work;
  Fiber* owner;
  bool is_store;
  uint64_t due;  ///< round
};

struct Cta {
  std::vector<Fiber> fibers;
  std::vector<Barrier> warps;
  std::vector<Exchange> exchanges;
  Barrier named[16];
  std::vector<Warpgroup> warpgroups;
  std::vector<Copy> copies;
  uint64_t round = 0;  ///< of the scheduler
  std::mt19937_64 random;
  ucontext_t scheduler;
  std::function<void()> kernel;
};

Cta* cta = nullptr;

Fiber& running() { return cta->fibers[thread.x]; }

void fiber_main() {
  cta->kernel();
  running().done = true;
  swapcontext(&running().context, &cta->scheduler);
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulation: thread %u: %s\n", thread.x, what);
  std::abort();
}

/// Rounds that an engine takes: a few, or once in a while very many.
uint64_t delay() { return cta->random() % 8 == 0 ? cta->random() % 3000 : cta->random() % 8; }

/// What is due of the engines' work.
bool engines_step() {
  bool worked = false;
  for (size_t at = 0; at < cta->copies.size();) {
    if (cta->copies[at].due > cta->round) {
      ++at;
      continue;
    }
    const Copy copy = std::move(cta->copies[at]);
    cta->copies.erase(cta->copies.begin() + static_cast<std::ptrdiff_t>(at));
    copy.work();
    if (copy.is_store) --copy.owner->stores;
    worked = true;
  }
  for (Warpgroup& group : cta->warpgroups) {
    while (!group.products.empty() && group.products.front().parts == 128 &&
           cta->random() % 4 != 0) {
      group.products.front().work(group.products.front().part);
      group.products.pop_front();
      ++group.done;
      worked = true;
    }
  }
  return worked;
}

bool engines_idle() {
  return cta->copies.empty() &&
         std::all_of(cta->warpgroups.begin(), cta->warpgroups.end(), [](const Warpgroup& group) {
           return group.products.empty() || group.products.front().parts < 128;
         });
}

std::string who_waits() {
  std::string text = "nobody can go on; waiting warps:";
  for (size_t i = 0; i < cta->fibers.size(); i += 32) {
    if (!cta->fibers[i].done) text += " " + std::to_string(i / 32);
  }
  return text;
}

}  // namespace

void wait_until(bool (*ready)(void*), void* context) {
  Fiber& fiber = running();
  // A nap now and then: no result may depend on who is late.
  if (cta->random() % 64 == 0) fiber.naps = static_cast<int>(cta->random() % 200);
  if (fiber.naps == 0 && ready(context)) return;
  fiber.ready = ready;
  fiber.ready_context = context;
  swapcontext(&fiber.context, &cta->scheduler);
}

std::string run_cta(unsigned index, unsigned ctas, unsigned threads, uint64_t seed,
                    const std::function<void()>& kernel) {
  Cta local;
  cta = &local;
  block = {index};
  grid_extent = {ctas};
  block_extent = {threads};
  local.fibers.resize(threads);
  local.warps.resize(threads / 32);
  local.exchanges.resize(threads / 32);
  local.warpgroups.resize(threads / 128);
  local.random.seed(seed);
  local.kernel = kernel;
  std::vector<unsigned> order(threads);
  for (unsigned i = 0; i < threads; ++i) {
    order[i] = i;
    Fiber& fiber = local.fibers[i];
    fiber.stack = std::make_unique<char[]>(kStackBytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
  }
  unsigned left = threads;
  for (unsigned idle = 0; left > 0; ++local.round) {
    // Warps in random order; lanes of a warp one after the other.
    const unsigned first = static_cast<unsigned>(local.random() % (threads / 32)) * 32;
    bool worked = engines_step();
    for (unsigned i = 0; i < threads; ++i) {
      const unsigned at = (first + i) % threads;
      Fiber& fiber = local.fibers[at];
      if (fiber.done) continue;
      if (fiber.naps > 0) {
        --fiber.naps;
        worked = true;
        continue;
      }
      if (fiber.ready != nullptr && !fiber.ready(fiber.ready_context)) continue;
      fiber.ready = nullptr;
      thread = {at};
      swapcontext(&local.scheduler, &fiber.context);
      worked = true;
      if (fiber.done) --left;
    }
    idle = worked || !engines_idle() ? 0 : idle + 1;
    if (idle > 4) return who_waits();
  }
  for (int i = 0; i < 10000 && !engines_idle(); ++i, ++local.round) engines_step();
  return engines_idle() ? "" : "an engine has work left";
}

void meet_warp() {
  Barrier& barrier = cta->warps[thread.x / 32];
  const uint64_t generation = barrier.generation;
  if (++barrier.arrived == 32) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  wait_until([&] { return barrier.generation != generation; });
}

Exchange& exchange() { return cta->exchanges[thread.x / 32]; }

void named_barrier(uint32_t id, uint32_t threads, bool wait) {
  if (id >= 16) fail("a barrier beyond the sixteenth");
  Barrier& barrier = cta->named[id];
  const uint64_t generation = barrier.generation;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  if (wait) wait_until([&] { return barrier.generation != generation; });
}

void copy_later(std::function<void()> work, bool is_store) {
  if (is_store) ++running().stores;
  cta->copies.push_back({std::move(work), &running(), is_store, cta->round + delay()});
}

void wait_for_stores() {
  Fiber& fiber = running();
  wait_until([&] { return fiber.stores == 0; });
}

void multiply_later(const ProductPart& part, const Product& product) {
  Fiber& fiber = running();
  Warpgroup& group = cta->warpgroups[thread.x / 128];
  const uint64_t at = fiber.issued++ - group.done;
  while (group.products.size() <= at) group.products.emplace_back();
  PendingProduct& pending = group.products[at];
  pending.part[thread.x % 128] = part;
  if (pending.parts++ == 0) pending.work = product;
}

void close_group() { running().groups.push_back(running().issued); }

void wait_for_groups(int pending) {
  Fiber& fiber = running();
  if (static_cast<int>(fiber.groups.size()) <= pending) return;
  const uint64_t end = fiber.groups[fiber.groups.size() - static_cast<size_t>(pending) - 1];
  while (static_cast<int>(fiber.groups.size()) > pending) fiber.groups.pop_front();
  const Warpgroup& group = cta->warpgroups[thread.x / 128];
  wait_until([&] { return group.done >= end; });
}

uint8_t* shared_at(uint32_t address) {
  if (address >= kSharedBytes) fail("a shared address past the end");
  return shared_memory() + address;
}

uint32_t address_of(const void* pointer) {
  const auto offset = static_cast<const uint8_t*>(pointer) - shared_memory();
  if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(kSharedBytes)) {
    fail("a pointer outside of shared memory");
  }
  return static_cast<uint32_t>(offset);
}

}  // namespace emulation
