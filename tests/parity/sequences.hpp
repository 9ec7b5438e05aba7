// Makes inputs of single sequences, cut, joined and permuted, for tests that compare the bits of
// the same rows in different company. All of it works on arrays, never on the library.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_SEQUENCES_HPP_
#define SLUICE_TESTS_PARITY_SEQUENCES_HPP_

#include <vector>

#include "support/case_runner.hpp"

namespace sluice::check {

/// Entries `indices` of dimension `axis`, in that order. An empty array stays empty.
Array take(const Array& array, size_t axis, const std::vector<int64_t>& indices);
/// first, first + 1, .., count of them.
std::vector<int64_t> range(int64_t first, int64_t count);
/// Arrays one after the other along `axis`.
Array join(const std::vector<Array>& arrays, size_t axis);

/// Tokens first .. first + count - 1 of every tensor that has tokens.
GdnInputs take_tokens(const GdnInputs& inputs, int64_t first, int64_t count);
/// Key heads in this order, with the value heads that they serve under head map BLOCK.
GdnInputs take_heads(const GdnInputs& inputs, const std::vector<int64_t>& key_heads);
/// Sequences of one batch entry each as one packed batch entry.
GdnInputs pack_sequences(const std::vector<GdnInputs>& sequences);

/// Same shape and the same bits, NaN for NaN.
bool same_bits(const Array& a, const Array& b);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_SEQUENCES_HPP_
