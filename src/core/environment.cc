// Names the environment variables of the library and reads them.
// SPDX-License-Identifier: Apache-2.0
#include "core/environment.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace sluice::core {
namespace {

constexpr const char* kNames[] = {
    "SLUICE_IMPL",       "SLUICE_CPU_ISA",      "SLUICE_NUM_THREADS", "SLUICE_CUDA_KERNEL",
    "SLUICE_CUDA_SPLIT", "SLUICE_CUDA_HISTORY", "SLUICE_DEBUG",       "SLUICE_VERBOSE",
};
static_assert(sizeof kNames / sizeof *kNames == static_cast<size_t>(Variable::kVerbose) + 1);

}  // namespace

const char* variable(Variable which) noexcept {
  const char* value = std::getenv(kNames[static_cast<size_t>(which)]);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

bool switched_on(Variable which) noexcept {
  const char* value = variable(which);
  return value != nullptr && std::strcmp(value, "0") != 0;
}

}  // namespace sluice::core
