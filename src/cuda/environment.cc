// Parses the environment variables of the CUDA backend.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/environment.h"

#include <cstdlib>
#include <cstring>

#include "core/environment.hpp"
#include "core/problem.hpp"
#include "cuda/machine.h"

namespace sluice::cuda {
namespace {

bool is_auto(const char* text) noexcept {
  return text == nullptr || *text == '\0' || std::strcmp(text, "auto") == 0;
}

Status parse_kernel(const char* kernel, KernelOverride* out) noexcept {
  if (is_auto(kernel)) return ok_status();
  if (std::strcmp(kernel, "fused") == 0) {
    *out = KernelOverride::kFast;
  } else if (std::strcmp(kernel, "generic") == 0) {
    *out = KernelOverride::kGeneric;
  } else {
    return Status::failure(Code::kInvalidArgument,
                           "cuda: SLUICE_CUDA_KERNEL = %s, expected auto, fused or generic",
                           kernel);
  }
  return ok_status();
}

Status parse_history(const char* history, CutOverride* out) noexcept {
  if (is_auto(history)) return ok_status();
  out->strict = std::strcmp(history, "strict") == 0;
  if (out->strict) return ok_status();
  return Status::failure(Code::kInvalidArgument,
                         "cuda: SLUICE_CUDA_HISTORY = %s, expected auto or strict", history);
}

/// Whether `text` is `word` with one of `digits` behind it, which is then *digit.
template <size_t kCount>
bool is_numbered(const char* text, const char* word, const std::array<int, kCount>& digits,
                 int32_t* digit) noexcept {
  const size_t length = std::strlen(word);
  if (std::strncmp(text, word, length) != 0 || std::strlen(text) != length + 1) return false;
  for (const int known : digits) {
    if (text[length] != static_cast<char>('0' + known)) continue;
    *digit = known;
    return true;
  }
  return false;
}

/// The words that name a way to cut; false for anything else.
bool parse_word(const char* split, CutOverride* out) noexcept {
  const struct {
    const char* name;
    sluice_split split;
  } names[] = {{"never", SLUICE_SPLIT_NEVER},
               {"columns", SLUICE_SPLIT_COLUMNS},
               {"length", SLUICE_SPLIT_LENGTH}};
  for (const auto& known : names) {
    if (std::strcmp(split, known.name) != 0) continue;
    out->split = known.split;
    return true;
  }
  return is_numbered(split, "prefix", kPrefixBlocks, &out->prefix) ||
         is_numbered(split, "cluster", kClusterSizes, &out->cluster);
}

Status parse_split(const char* split, CutOverride* out) noexcept {
  if (is_auto(split) || parse_word(split, out)) return ok_status();
  char* end = nullptr;
  const long count = std::strtol(split, &end, 10);
  if (*end != '\0' || count < 2 || count > core::kMostSegmentsAskedFor) {
    return Status::failure(Code::kInvalidArgument,
                           "cuda: SLUICE_CUDA_SPLIT = %s, expected auto, never, columns, length, "
                           "cluster2, cluster4, cluster6, cluster8, prefix1, prefix2, prefix4 or "
                           "2 to %d segments",
                           split, core::kMostSegmentsAskedFor);
  }
  out->split = SLUICE_SPLIT_SEGMENTS;
  out->value = static_cast<int32_t>(count);
  return ok_status();
}

}  // namespace

Environment parse_environment(const char* kernel, const char* split, const char* history) noexcept {
  Environment out;
  out.status = parse_kernel(kernel, &out.kernel);
  if (out.status.ok()) out.status = parse_history(history, &out.cut);
  if (out.status.ok()) out.status = parse_split(split, &out.cut);
  return out;
}

const Environment& environment() noexcept {
  static const Environment instance = parse_environment(
      core::variable(core::Variable::kCudaKernel), core::variable(core::Variable::kCudaSplit),
      core::variable(core::Variable::kCudaHistory));
  return instance;
}

}  // namespace sluice::cuda
