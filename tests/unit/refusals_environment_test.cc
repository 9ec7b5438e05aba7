// Measures what the SLUICE_ variables change, which a process reads once. Each test sets its
// variable and does its work in a child process, so the order of tests does not matter.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "refusals_scene.hpp"

namespace sluice::check {
namespace {

constexpr int64_t kT = 2, kHV = 2, kD = 4;

/// One sequence of two tokens whose gates are legal log gates.
struct StepCall {
  Memory memory;
  sluice_recurrent_step_args args{};
  sluice_workspace workspace{};
  float* gate = nullptr;

  StepCall() {
    args.struct_size = sizeof args;
    args.q = memory.tensor(kFloat32, {2, kT, kHV, kD});
    args.k = memory.tensor(kFloat32, {2, kT, kHV, kD});
    args.v = memory.tensor(kFloat32, {2, kT, kHV, kD});
    args.gate = memory.tensor(kFloat32, {2, kT, kHV});
    args.o = memory.tensor(kFloat32, {2, kT, kHV, kD});
    args.state.initial = memory.tensor(kFloat32, {4, kHV, kD, kD});
    args.state.read_slots = memory.indices({3, 1});
    args.implementation = SLUICE_IMPL_AUTO;
    args.options.qk_norm = SLUICE_QK_NORM_L2;
    workspace = {memory.take(16384), 16384};
    gate = static_cast<float*>(args.gate.data);
    for (int i = 0; i < 2 * kT * kHV; ++i) gate[i] = -0.1f;
  }
};

/// Runs the call; ends the process with 0 if it gave this code, this message, and, on success, ran
/// this kernel, and wrote nothing on a failure.
[[noreturn]] void expect_in_child(const StepCall& step, int code, const std::string& text) {
  const std::vector<std::byte> before = step.memory.snapshot();
  const int found = sluice_recurrent_step(&step.args, step.workspace, nullptr);
  const std::string seen = found == SLUICE_OK ? sluice_last_kernel() : sluice_last_error();
  const bool untouched = found == SLUICE_OK || step.memory.snapshot() == before;
  std::fprintf(stderr, "code %d: %s\n", found, seen.c_str());
  std::_Exit(found == code && seen == text && untouched ? 0 : 1);
}

/// Whether `body` ends its own fresh process with 0.
#define EXPECT_IN_CHILD(...)                                         \
  do {                                                               \
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";          \
    EXPECT_EXIT({ __VA_ARGS__; }, ::testing::ExitedWithCode(0), ""); \
  } while (false)

TEST(EnvironmentDeathTest, ImplementationByName) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_IMPL", "reference-chunked", 1);
    StepCall step;
    step.args.implementation = SLUICE_IMPL_AUTO;
    expect_in_child(step, SLUICE_OK, "reference.recurrent_step");
  });
}

TEST(EnvironmentDeathTest, ArgumentGoesBeforeEnvironment) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_IMPL", "nonsense", 1);
    StepCall step;
    step.args.implementation = SLUICE_IMPL_REFERENCE;
    expect_in_child(step, SLUICE_OK, "reference.recurrent_step");
  });
}

TEST(EnvironmentDeathTest, UnknownImplementationIsRefused) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_IMPL", "nonsense", 1);
    expect_in_child(StepCall(), SLUICE_INVALID_ARGUMENT,
                    "recurrent_step: SLUICE_IMPL = nonsense, expected auto, cpu, cuda, reference "
                    "or reference-chunked, as far as in this build");
  });
}

TEST(EnvironmentDeathTest, UnknownInstructionSetIsRefused) {
  EXPECT_IN_CHILD({
    std::string text(sluice_capability(nullptr, 0) + 1, '\0');
    setenv("SLUICE_CPU_ISA", "mmx", 1);
    sluice_capability(text.data(), text.size());
    const size_t list = text.find("cpu.isas:") + 9;
    expect_in_child(StepCall(), SLUICE_INVALID_ARGUMENT,
                    "cpu: SLUICE_CPU_ISA = mmx, expected one of:" +
                        text.substr(list, text.find('\n', list) - list));
  });
}

TEST(EnvironmentDeathTest, ThreadsThatAreNoNumberAreRefused) {
  for (const char* threads : {"two", "0", "-1", "2x", "5000"}) {
    EXPECT_IN_CHILD({
      setenv("SLUICE_NUM_THREADS", threads, 1);
      expect_in_child(StepCall(), SLUICE_INVALID_ARGUMENT,
                      std::string("cpu: SLUICE_NUM_THREADS = ") + threads +
                          ", expected a number from 1 to 4096");
    });
  }
}

TEST(EnvironmentDeathTest, ImplementationOfAnotherDeviceIsRefused) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_IMPL", "reference", 1);
    StepCall step;
    for (sluice_tensor* t : {&step.args.q, &step.args.k, &step.args.v, &step.args.gate,
                             &step.args.o, &step.args.state.initial, &step.args.state.read_slots}) {
      t->device.type = SLUICE_DEVICE_CUDA;
    }
    expect_in_child(step, SLUICE_UNSUPPORTED,
                    "recurrent_step: implementation = reference, expected one for CUDA views (the "
                    "backend follows the device of the views)");
  });
}

TEST(EnvironmentDeathTest, DebugNamesLinearGatesGivenAsLog) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_DEBUG", "1", 1);
    StepCall step;
    step.gate[5] = 0.9f;
    expect_in_child(step, SLUICE_INVALID_ARGUMENT,
                    "recurrent_step: gate[1,0,1] = 0.9, expected a log gate <= 0; is this alpha? "
                    "(SLUICE_DEBUG check)");
  });
}

TEST(EnvironmentDeathTest, DebugNamesKeysThatAreNotNormalised) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_DEBUG", "1", 1);
    StepCall step;
    step.args.options.qk_norm = SLUICE_QK_NORM_NONE;
    expect_in_child(
        step, SLUICE_INVALID_ARGUMENT,
        "recurrent_step: k[0,0,0] with beta |k|^2 = 2.23239, expected at most 2 (past it "
        "the state grows with every token); is the l2 norm of q and k missing? "
        "(SLUICE_DEBUG check)");
  });
}

TEST(EnvironmentDeathTest, DebugNamesLogitsGivenAsWriteStrengths) {
  for (const float beta : {-0.5f, 3.0f}) {
    EXPECT_IN_CHILD({
      setenv("SLUICE_DEBUG", "1", 1);
      StepCall step;
      step.args.beta = step.memory.tensor(kFloat32, {2, kT, kHV});
      static_cast<float*>(step.args.beta.data)[6] = beta;
      expect_in_child(step, SLUICE_INVALID_ARGUMENT,
                      beta < 0 ? "recurrent_step: beta[1,1,0] = -0.5, expected 0 to 2; is this a "
                                 "logit? (SLUICE_DEBUG check)"
                               : "recurrent_step: beta[1,1,0] = 3, expected 0 to 2; is this a "
                                 "logit? (SLUICE_DEBUG check)");
    });
  }
}

TEST(EnvironmentDeathTest, DebugNamesChannelsOfKeyGates) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_DEBUG", "1", 1);
    StepCall step;
    step.args.gate = step.memory.tensor(kFloat32, {2, kT, kHV, kD});
    auto* const gate = static_cast<float*>(step.args.gate.data);
    std::fill_n(gate, 2 * kT * kHV * kD, -0.1f);
    gate[(kT * kHV + 1) * kD + 3] = 0.5f;
    expect_in_child(step, SLUICE_INVALID_ARGUMENT,
                    "recurrent_step: gate[1,0,1,3] = 0.5, expected a log gate <= 0; is this alpha? "
                    "(SLUICE_DEBUG check)");
  });
}

TEST(EnvironmentDeathTest, DebugNamesLogGatesGivenAsLinear) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_DEBUG", "1", 1);
    StepCall step;
    step.args.options.gate_space = SLUICE_GATE_LINEAR;
    expect_in_child(step, SLUICE_INVALID_ARGUMENT,
                    "recurrent_step: gate[0,0,0] = -0.1, expected alpha in [0, 1]; is this a log "
                    "gate? (SLUICE_DEBUG check)");
  });
}

TEST(EnvironmentDeathTest, DebugNamesSlotsWrittenTwice) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_DEBUG", "1", 1);
    StepCall step;
    step.args.state.read_slots = step.memory.indices({3, 3});
    expect_in_child(step, SLUICE_INVALID_ARGUMENT,
                    "recurrent_step: state.write_slots[1] = 3, expected a slot that no other "
                    "sequence writes (SLUICE_DEBUG check; sequence 0 does)");
  });
}

TEST(EnvironmentDeathTest, DebugAcceptsWhatIsLegal) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_DEBUG", "1", 1);
    StepCall step;
    step.args.state.read_slots = step.memory.indices({-1, -1});
    step.args.implementation = SLUICE_IMPL_REFERENCE;
    expect_in_child(step, SLUICE_OK, "reference.recurrent_step");
  });
}

TEST(EnvironmentDeathTest, WithoutDebugContentsAreTheCallersBusiness) {
  EXPECT_IN_CHILD({
    setenv("SLUICE_DEBUG", "0", 1);
    StepCall step;
    step.gate[0] = 0.9f;
    step.args.implementation = SLUICE_IMPL_REFERENCE;
    expect_in_child(step, SLUICE_OK, "reference.recurrent_step");
  });
}

}  // namespace
}  // namespace sluice::check
