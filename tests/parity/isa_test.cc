// Measures that the suite runs on the instruction set that SLUICE_CPU_ISA names. Where the machine
// lacks it every test is skipped, which says "compiled only" rather than "passed".
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "sluice/sluice.h"

namespace sluice::check {
namespace {

/// Value of the line "key: value" of sluice_capability().
std::string capability(const char* key) {
  std::string text(sluice_capability(nullptr, 0) + 1, '\0');
  sluice_capability(text.data(), text.size());
  std::istringstream lines(text);
  for (std::string word, rest; lines >> word && std::getline(lines, rest);) {
    if (word == key) return rest.substr(1);
  }
  return {};
}

/// SLUICE_CPU_ISA where this machine runs it and not by itself; skips everything elsewhere.
class RequestedIsa : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* isa = std::getenv("SLUICE_CPU_ISA");
    if (isa == nullptr) return;
    if (capability("cpu.isa:") != isa) {
      GTEST_SKIP() << "cannot run the instruction set " << isa << " on this machine";
    }
    std::istringstream best_first(capability("cpu.isas:"));
    std::string best;
    best_first >> best;
    if (best == isa) GTEST_SKIP() << "the tests without SLUICE_CPU_ISA run on " << isa;
  }
};
const auto* const registered = ::testing::AddGlobalTestEnvironment(new RequestedIsa);

TEST(Isa, TheOneInUseIsListed) {
  ASSERT_NE(registered, nullptr);
  const std::string used = capability("cpu.isa:");
  std::istringstream list(capability("cpu.isas:"));
  bool listed = false;
  for (std::string isa; list >> isa;) listed = listed || isa == used;
  EXPECT_TRUE(listed) << used;
}

}  // namespace
}  // namespace sluice::check
