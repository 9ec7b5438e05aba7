// Declares how arrays of a layer in packing FLAT become those of the other packings.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_LAYER_ARRAYS_HPP_
#define SLUICE_TESTS_PARITY_LAYER_ARRAYS_HPP_

#include "parity/layer_call.hpp"

namespace sluice::check {

/// qkv and z as rows of key heads [K q | K k | rV v | rV z].
Array interleave_qkvz(const LayerConfig& config, const LayerValues& values);
/// b and a as rows of key heads [r b | r a].
Array interleave_ba(const LayerConfig& config, const LayerValues& values);

/// Entries first .. first + count - 1 along `axis`.
Array slice(const Array& from, int axis, int64_t first, int64_t count);
/// One pool [slots,D,L] of those of q's, k's and v's channels; q where k is empty.
Array join(const Array& q, const Array& k, const Array& v);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_LAYER_ARRAYS_HPP_
