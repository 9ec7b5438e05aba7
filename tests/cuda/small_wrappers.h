// Declares what wrappers_check runs of small_wrappers.cu.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CUDA_SMALL_WRAPPERS_H_
#define SLUICE_TESTS_CUDA_SMALL_WRAPPERS_H_

namespace sluice::check {

/// Prints a line; true if every wrapper did what it says.
bool check_small_wrappers();

}  // namespace sluice::check

#endif  // SLUICE_TESTS_CUDA_SMALL_WRAPPERS_H_
