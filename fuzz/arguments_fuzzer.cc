// Measures that arguments are refused or handled right, whatever they hold: no crash, no access
// outside the views, the args struct and the workspace, nothing written when a call is refused.
// How: nearly valid arguments on small guarded memory are damaged, asked about, and run if they
// fit.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "arguments_scene.hpp"

namespace {

constexpr size_t kLargestWorkspace = size_t{16} << 20;
constexpr std::align_val_t kAlignment{256};

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s; last error: %s\n", what, sluice_last_error());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sluice::fuzz::Scene scene(sluice::fuzz::Bytes(data, size));
  char kernel[64];
  size_t bytes = 0;
  const int supported = sluice_supported(scene.op(), scene.args(), kernel, sizeof kernel);
  require((supported == SLUICE_OK) == (sluice_last_error()[0] == '\0'),
          "message and code disagree");
  const int sized = sluice_workspace_size(scene.op(), scene.args(), &bytes);
  require((supported == SLUICE_OK) == (sized == SLUICE_OK), "supported and sized disagree");
  require(scene.memory_kept(true), "a query has written");
  if (!scene.safe_to_run() || bytes > kLargestWorkspace) return 0;

  // Exactly as many bytes as asked for: one more is an error that a sanitizer sees.
  void* workspace = bytes == 0 ? nullptr : ::operator new(bytes, kAlignment);
  if (workspace != nullptr) std::memset(workspace, 0xff, bytes);
  const int ran = scene.run({workspace, bytes});
  if (workspace != nullptr) ::operator delete(workspace, kAlignment);
  require(supported == SLUICE_OK || ran != SLUICE_OK, "ran what is not supported");
  require(ran != SLUICE_WORKSPACE_TOO_SMALL, "the workspace asked for is too small");
  require(ran != SLUICE_INTERNAL, "internal error");
  require(scene.memory_kept(ran != SLUICE_OK), "memory outside the outputs has changed");
  return 0;
}
