// Remembers the tensor maps that were made last. PERF: of the 18 maps of a backward pass 14 differ, and half
// of these are of its workspace, which the next call often gets again.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_TILE_RECENT_MAPS_HPP_
#define SLUICE_CUDA_TILE_RECENT_MAPS_HPP_

#include <cstddef>
#include <cstdint>

#include "cuda/tile/token_map.hpp"

namespace sluice::cuda::tile {

/// What a map is made of: a map is the same wherever these are.
struct MapKey {
  TokenTensor tensor;
  uint32_t rows = 0, column_blocks = 0;

  bool operator==(const MapKey&) const = default;
};

/// Maps by their keys; one that is kept may displace another.
template <class Map>
class RecentMaps {
 public:
  /// Null if it is not kept.
  const Map* find(const MapKey& key) const noexcept {
    const Place& place = places_[index_of(key)];
    return place.key == key ? &place.map : nullptr;
  }
  void keep(const MapKey& key, const Map& map) noexcept { places_[index_of(key)] = {key, map}; }

 private:
  static constexpr size_t kPlaces = 64;
  struct Place {
    MapKey key;
    Map map;
  };

  static size_t index_of(const MapKey& key) noexcept {
    // Tensors begin at multiples of 256 bytes, mostly; the product's upper bits depend on all below.
    const uint64_t from =
        (reinterpret_cast<uintptr_t>(key.tensor.data) >> 4) + 8 * key.column_blocks + key.rows;
    return static_cast<size_t>((from * 0x9E3779B97F4A7C15u) >> 32) % kPlaces;
  }

  Place places_[kPlaces] = {};
};

}  // namespace sluice::cuda::tile

#endif  // SLUICE_CUDA_TILE_RECENT_MAPS_HPP_
