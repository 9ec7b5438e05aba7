// Schedules the fibers of an emulated CTA, and runs its copy engine and tensor cores late.
// SPDX-License-Identifier: Apache-2.0
#include "emulator.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "context.hpp"
#include "cuda/shared_memory.hpp"

namespace emulation {

std::function<void()> earlier_launches;
Index thread{}, block{}, block_extent{}, grid_extent{};

namespace {

constexpr size_t kStackBytes = 256 * 1024;

/// Stacks of fibers that have ended, for those to come.
std::vector<std::unique_ptr<char[]>> spare_stacks;

struct Fiber {
  Context context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  bool (*ready)(void*) = nullptr;
  void* ready_context = nullptr;
  int naps = 0;         ///< rounds to sit out
  int stores = 0;       ///< of this thread, not read yet
  uint64_t issued = 0;  ///< products
  uint64_t group_end = 0;
  std::deque<uint64_t> groups;  ///< products up to here, of each open group
  bool in_cluster_barrier = false;
  uint64_t cluster_generation = 0;  ///< of the barrier that it has arrived at
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

struct Cta;

struct Cluster {
  std::vector<Cta*> ctas;
  uint32_t threads = 0;
  Barrier barrier;
};

struct Cta {
  Index index{}, extent{}, grid{};
  unsigned left = 0;  ///< fibers that have not ended
  int naps = 0;       ///< rounds to sit out
  Cluster* cluster = nullptr;
  std::vector<uint8_t> shared;  ///< of its own, in a grid
  size_t shared_bytes() const { return shared.empty() ? kSharedBytes : shared.size(); }
  std::vector<Fiber> fibers;
  std::vector<Barrier> warps;
  std::vector<Exchange> exchanges;
  Barrier named[16];
  std::vector<Warpgroup> warpgroups;
  std::vector<Copy> copies;
  uint64_t round = 0;  ///< of the scheduler
  std::mt19937_64 random;
  Context scheduler;
  std::function<void()> kernel;
};

Cta* cta = nullptr;

Fiber& running() { return cta->fibers[thread.x]; }

void fiber_main() {
  cta->kernel();
  running().done = true;
  running().context.switch_to(cta->scheduler);
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
  fiber.context.switch_to(cta->scheduler);
}

namespace {

void start(Cta& c, unsigned index, unsigned ctas, unsigned threads, uint64_t seed,
           const std::function<void()>& kernel) {
  c.index = {index};
  c.grid = {ctas, 1, 1};
  c.extent = {threads};
  c.left = threads;
  c.fibers.resize(threads);
  c.warps.resize(threads / 32);
  c.exchanges.resize(threads / 32);
  c.warpgroups.resize((threads + 127) / 128);
  c.random.seed(seed);
  c.kernel = kernel;
  for (Fiber& fiber : c.fibers) {
    if (spare_stacks.empty()) {
      fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    } else {
      fiber.stack = std::move(spare_stacks.back());
      spare_stacks.pop_back();
    }
    fiber.context.prepare(fiber.stack.get(), kStackBytes, fiber_main);
  }
}

/// One round: every thread that can go on does, from a random warp on. Whether anybody could.
bool run_round(Cta& c) {
  cta = &c;
  block = c.index;
  grid_extent = c.grid;
  block_extent = c.extent;
  const unsigned threads = c.extent.x;
  const unsigned first = static_cast<unsigned>(c.random() % (threads / 32)) * 32;
  bool worked = engines_step();
  for (unsigned i = 0; i < threads; ++i) {
    const unsigned at = (first + i) % threads;
    Fiber& fiber = c.fibers[at];
    if (fiber.done) continue;
    if (fiber.naps > 0) {
      --fiber.naps;
      worked = true;
      continue;
    }
    if (fiber.ready != nullptr && !fiber.ready(fiber.ready_context)) continue;
    fiber.ready = nullptr;
    thread = {at};
    c.scheduler.switch_to(fiber.context);
    worked = true;
    if (!fiber.done) continue;
    --c.left;
    spare_stacks.push_back(std::move(fiber.stack));
  }
  ++c.round;
  return worked || !engines_idle();
}

/// Empty, or what is left of the engines' work after the CTA's end.
std::string finish(Cta& c) {
  cta = &c;
  for (int i = 0; i < 10000 && !engines_idle(); ++i, ++c.round) engines_step();
  return engines_idle() ? "" : "an engine has work left";
}

/// A cluster on its way.
struct Live {
  Cluster cluster;
  std::vector<std::unique_ptr<Cta>> ctas;
};

std::unique_ptr<Live> start_cluster(const Grid& grid, unsigned index, uint64_t seed,
                                    const std::function<void()>& kernel) {
  auto live = std::make_unique<Live>();
  live->cluster.threads = grid.cluster * grid.threads;
  for (unsigned rank = 0; rank < grid.cluster; ++rank) {
    auto c = std::make_unique<Cta>();
    const unsigned number = index * grid.cluster + rank;
    start(*c, number, grid.ctas, grid.threads, seed + number, kernel);
    if (grid.x > 0) {
      c->index = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
      c->grid = {grid.x, grid.y, grid.ctas / grid.x / grid.y};
    }
    c->cluster = &live->cluster;
    c->shared.assign(grid.shared_bytes, 0xFF);  // NaN, to whoever reads before anybody wrote
    live->cluster.ctas.push_back(c.get());
    live->ctas.push_back(std::move(c));
  }
  return live;
}

}  // namespace

std::string run_cta(unsigned index, unsigned ctas, unsigned threads, uint64_t seed,
                    const std::function<void()>& kernel) {
  Cta local;
  start(local, index, ctas, threads, seed, kernel);
  for (unsigned idle = 0; local.left > 0;) {
    idle = run_round(local) ? 0 : idle + 1;
    if (idle > 4) return who_waits();
  }
  return finish(local);
}

std::string run_grid(const Grid& grid, uint64_t seed, const std::function<void()>& kernel) {
  std::mt19937_64 random(seed);
  std::vector<unsigned> waiting(grid.ctas / grid.cluster);
  for (unsigned i = 0; i < waiting.size(); ++i) waiting[i] = i;
  std::shuffle(waiting.begin(), waiting.end(), random);
  std::vector<std::unique_ptr<Live>> live;
  for (unsigned idle = 0; !waiting.empty() || !live.empty();) {
    while (live.size() < grid.resident && !waiting.empty()) {
      live.push_back(start_cluster(grid, waiting.back(), seed, kernel));
      waiting.pop_back();
    }
    const auto at = live.begin() + static_cast<std::ptrdiff_t>(random() % live.size());
    Live& chosen = **at;
    Cta& c = *chosen.ctas[random() % chosen.ctas.size()];
    if (c.left == 0) continue;
    // Some CTAs are late, some by far and from their start: no result may depend on who is.
    if (idle == 0 && c.naps == 0 && random() % 32 == 0) {
      c.naps = static_cast<int>(random() % (random() % 8 == 0 ? 3000 : 100));
    }
    if (c.naps > 0) {
      --c.naps, idle = std::min(idle, 1u);  // who waits for this one does not wait for ever
      continue;
    }
    idle = run_round(c) ? 0 : idle + 1;
    if (idle > 64 * grid.cluster * grid.resident) return who_waits();
    if (c.left > 0) continue;
    if (std::string trouble = finish(c); !trouble.empty()) return trouble;
    // An ended CTA's shared memory is nobody's: what others still read of it is NaN.
    std::fill(c.shared.begin(), c.shared.end(), uint8_t{0xFF});
    const auto ended = [](const auto& one) { return one->left == 0; };
    if (std::all_of(chosen.ctas.begin(), chosen.ctas.end(), ended)) live.erase(at);
  }
  return "";
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

void cluster_arrive() {
  Fiber& fiber = running();
  if (fiber.in_cluster_barrier) fail("a second arrival at the cluster's barrier without a wait");
  Barrier& barrier = cta->cluster->barrier;
  fiber.in_cluster_barrier = true;
  fiber.cluster_generation = barrier.generation;
  if (++barrier.arrived < cta->cluster->threads) return;
  barrier.arrived = 0;
  ++barrier.generation;
}

void cluster_wait() {
  Fiber& fiber = running();
  if (!fiber.in_cluster_barrier) fail("a wait at the cluster's barrier without an arrival");
  const Barrier& barrier = cta->cluster->barrier;
  wait_until([&] { return barrier.generation != fiber.cluster_generation; });
  fiber.in_cluster_barrier = false;
}

uint8_t* own_shared() { return cta->shared.empty() ? shared_memory() : cta->shared.data(); }

uint8_t* remote_shared(const void* own, uint32_t rank) {
  const auto offset = static_cast<const uint8_t*>(own) - cta->shared.data();
  if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(cta->shared.size())) {
    fail("a pointer outside of shared memory");
  }
  if (rank >= cta->cluster->ctas.size()) fail("a rank outside of the cluster");
  return cta->cluster->ctas[rank]->shared.data() + offset;
}

uint8_t* shared_at(uint32_t address) {
  if (address - kFirstAddress >= cta->shared_bytes()) fail("a shared address past the end");
  return own_shared() + (address - kFirstAddress);
}

uint32_t address_of(const void* pointer) {
  const auto offset = static_cast<const uint8_t*>(pointer) - own_shared();
  if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(cta->shared_bytes())) {
    fail("a pointer outside of shared memory");
  }
  return static_cast<uint32_t>(offset) + kFirstAddress;
}

}  // namespace emulation
