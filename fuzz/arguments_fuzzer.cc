// Measures that arguments are refused or handled right, whatever they hold: no crash, no access
// outside the views, the args struct and the workspace, nothing written when a call is refused, no
// input changed by what is written, and no size that wraps.
// How: nearly valid arguments on small guarded memory are damaged, asked about, and run if they
// fit; memory that no view holds is closed to AddressSanitizer meanwhile.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "arguments_scene.hpp"

namespace sluice::fuzz {
namespace {

void require(const Scene& scene, bool condition, const char* what) {
  if (condition) return;
  scene.describe();
  std::fprintf(stderr, "%s; last error: %s\n", what, sluice_last_error());
  std::abort();
}

// How far the inputs come, printed at the end: a fuzzer whose inputs are all refused finds nothing.
struct Tally {
  struct {
    int64_t asked = 0, supported = 0, made = 0, done = 0;
  } of[SLUICE_OP_COUNT];

  ~Tally() {
    for (int op = 0; op < SLUICE_OP_COUNT; ++op) {
      std::fprintf(stderr, "operator %d: %lld asked, %lld supported, %lld called, %lld done\n", op,
                   static_cast<long long>(of[op].asked), static_cast<long long>(of[op].supported),
                   static_cast<long long>(of[op].made), static_cast<long long>(of[op].done));
    }
  }
} tally;

struct Answer {
  int code = SLUICE_OK;
  size_t bytes = 0;
  char kernel[64] = {};
};

// What the library says of a call, which reads no memory of views.
Answer ask(const Scene& scene) {
  Answer answer;
  scene.memory().close();
  answer.code = sluice_supported(scene.op(), scene.args(), answer.kernel, sizeof answer.kernel);
  require(scene, (answer.code == SLUICE_OK) == (sluice_last_error()[0] == '\0'),
          "message and code disagree");
  const int sized = sluice_workspace_size(scene.op(), scene.args(), &answer.bytes);
  require(scene, (answer.code == SLUICE_OK) == (sized == SLUICE_OK),
          "supported and sized disagree");
  require(scene, answer.bytes <= SIZE_MAX / 2, "a size has wrapped");
  scene.memory().open_all();
  require(scene, !scene.memory().changed({}), "a query has written");
  ++tally.of[scene.op()].asked;
  tally.of[scene.op()].supported += answer.code == SLUICE_OK;
  return answer;
}

// A call that the library answers for, made.
void make(const Scene& scene, const Answer& answer) {
  int ran = SLUICE_OK;
  {
    const SceneWorkspace workspace(answer.bytes);
    ran = scene.run(workspace.get());
  }
  scene.memory().open_all();
  ++tally.of[scene.op()].made;
  tally.of[scene.op()].done += ran == SLUICE_OK;
  require(scene, answer.code == SLUICE_OK || ran != SLUICE_OK, "ran what is not supported");
  require(scene, ran != SLUICE_WORKSPACE_TOO_SMALL, "the workspace asked for is too small");
  require(scene, ran != SLUICE_INTERNAL, "internal error");
  if (ran != SLUICE_OK) {
    require(scene, !scene.memory().changed({}), "a refused call has written");
    const bool shared = std::strstr(sluice_last_error(), "overlap no other view") != nullptr;
    require(scene, !shared || scene.sharing() != Sharing::kNothing, "memory of its own is refused");
    return;
  }
  require(scene, scene.only_outputs_changed(), "memory outside the outputs has changed");
  // A stage looks at some of its views only, and the others may lie where it writes.
  require(scene, scene.op() == SLUICE_OP_CHUNK_STAGE || !scene.shared_changed(),
          "an input has changed, or two outputs in one memory");
}

// Half the size needs at most `factor` times the scratch, where the same kernel runs.
void check_half(const Bytes& bytes, Halved halved, size_t factor, const Answer& whole) {
  const Scene scene(bytes, halved);
  const Answer half = ask(scene);
  const bool comparable = half.code == SLUICE_OK && std::strcmp(half.kernel, whole.kernel) == 0;
  require(scene, !comparable || half.bytes / factor <= whole.bytes, "a size has wrapped");
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::fuzz;
  const Bytes bytes(data, size);
  Answer answer;
  Layout layout{};
  {
    const Scene scene(bytes);
    layout = scene.layout();
    answer = ask(scene);
    if (scene.safe_to_run() && answer.bytes <= SceneWorkspace::kMost) make(scene, answer);
  }
  if (layout != Layout::kHuge || answer.code != SLUICE_OK) return 0;
  // Fewer tokens need no more, says the contract. How heads are dealt out may depend on their number,
  // but not by much: what has wrapped is small.
  check_half(bytes, Halved::kTokens, 1, answer);
  check_half(bytes, Halved::kAll, 4, answer);
  return 0;
}
