// Turns the padding of a call's slot tables into indices past the pools, and back afterwards.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_FAR_PADS_HPP_
#define SLUICE_TESTS_PARITY_FAR_PADS_HPP_

#include <limits>
#include <type_traits>
#include <vector>

#include "check/array.hpp"

namespace sluice::check {

/// Whether call_operator() does that to the calls it makes.
inline bool pads_past_pools = false;

/// While it lives, padded slots of a call in host memory are the first index past their pool and
/// the largest one, by turns.
class FarPads {
 public:
  template <class Args>
  explicit FarPads(const Args& args) {
    if (!pads_past_pools) return;
    if constexpr (requires { args.state.pad_below; }) {
      const auto& s = args.state;
      // Without a pool to read, or to write, nothing is past it.
      push(s.read_slots, s.pad_below, s.initial);
      const sluice_tensor& written = s.final.data != nullptr ? s.final : s.initial;
      if (s.write_slots.data != s.read_slots.data) push(s.write_slots, s.pad_below, written);
      if constexpr (std::is_same_v<Args, sluice_chunk_forward_args>) {
        push(args.checkpoint_slots, s.pad_below, args.checkpoints);
      }
    }
  }
  ~FarPads() {
    for (const Changed& c : changed_) store_element(c.table, c.offset, c.value);
  }
  FarPads(const FarPads&) = delete;
  FarPads& operator=(const FarPads&) = delete;

 private:
  struct Changed {
    sluice_tensor table;
    int64_t offset;
    double value;
  };

  void push(const sluice_tensor& table, int64_t pad_below, const sluice_tensor& pool) {
    if (table.data == nullptr || pool.data == nullptr) return;
    const int64_t columns = table.rank == 2 ? table.shape[1] : 1;
    for (int64_t i = 0; i < table.shape[0] * columns; ++i) {
      const int64_t row = i / columns, column = i % columns;
      const int64_t offset =
          row * table.stride[0] + (table.rank == 2 ? column * table.stride[1] : 0);
      const double value = load_element(table, offset);
      if (value >= static_cast<double>(pad_below)) continue;
      const auto first = static_cast<double>(pool.shape[0]);
      const bool last = (row + column) % 2 != 0;
      const double largest = std::numeric_limits<int32_t>::max();
      changed_.push_back({table, offset, value});
      store_element(table, offset, last ? largest : first);
    }
  }

  std::vector<Changed> changed_;
};

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_FAR_PADS_HPP_
