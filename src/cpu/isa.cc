// Finds the best instruction set that the machine has and SLUICE_CPU_ISA allows.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/isa.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "core/environment.hpp"
#include "core/operators.hpp"
#include "cpu/kernels/chunk_pairs.hpp"
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace sluice::cpu {
namespace {

struct Isa {
  int64_t target;
  const char* name;
  bool bfloat16_dots = false;
};

// Best first within a machine family.
constexpr Isa kIsas[] = {
    {HWY_AVX3, "avx512-bf16", true},
    {HWY_AVX3, "avx512"},
    {HWY_AVX2, "avx2"},
    {HWY_SSE4, "sse4"},
    {HWY_SVE2_128, "sve2-128"},
    {HWY_SVE_256, "sve-256"},
    {HWY_SVE2, "sve2"},
    {HWY_SVE, "sve"},
    {HWY_NEON, "neon"},
    {HWY_EMU128, "emu128"},
    {HWY_SCALAR, "scalar"},
};

// The baseline needs no support of the machine, so Highway does not report it.
int64_t usable_targets() noexcept {
  return (hwy::SupportedTargets() | HWY_STATIC_TARGET) & HWY_TARGETS;
}

const char* wanted_name() noexcept { return core::variable(core::Variable::kCpuIsa); }

bool usable(const Isa& isa) noexcept {
  return (isa.target & usable_targets()) != 0 && (!isa.bfloat16_dots || has_pairs());
}

const Isa* find_usable(const char* name) noexcept {
  for (const Isa& isa : kIsas) {
    if (usable(isa) && std::strcmp(isa.name, name) == 0) return &isa;
  }
  return nullptr;
}

const Isa& requested_or_best() noexcept {
  const char* wanted = wanted_name();
  const Isa* found = wanted != nullptr ? find_usable(wanted) : nullptr;
  if (found != nullptr) return *found;
  for (const Isa& isa : kIsas) {
    if (usable(isa)) return isa;
  }
  return kIsas[std::size(kIsas) - 1];
}

struct Choice {
  const Isa& isa = requested_or_best();
  std::array<char[48], SLUICE_OP_COUNT> names{};
  std::array<char[48], core::kStages> stage_names{};

  Choice() noexcept {
    hwy::GetChosenTarget().Update(isa.target);
    for (size_t op = 0; op < names.size(); ++op) {
      std::snprintf(names[op], sizeof names[op], "cpu.%s.%s", core::kOperatorNames[op], isa.name);
    }
    for (size_t stage = 0; stage < stage_names.size(); ++stage) {
      std::snprintf(stage_names[stage], sizeof stage_names[stage], "cpu.%s.%s",
                    core::stage_name(static_cast<sluice_stage>(stage)), isa.name);
    }
  }
};

const Choice& choice() noexcept {
  static const Choice instance;
  return instance;
}

}  // namespace

void choose_isa() noexcept { choice(); }

Status isa_request() noexcept {
  static const Status status = []() noexcept {
    const char* wanted = wanted_name();
    if (wanted == nullptr || find_usable(wanted) != nullptr) return ok_status();
    char isas[128];
    list_isas(isas, sizeof isas);
    return Status::failure(Code::kInvalidArgument, "cpu: SLUICE_CPU_ISA = %s, expected one of:%s",
                           wanted, isas);
  }();
  return status;
}

bool isa_has_bfloat16_dots() noexcept { return choice().isa.bfloat16_dots; }

const char* isa_name() noexcept { return choice().isa.name; }

core::KernelName kernel_name(sluice_op op) noexcept {
  return choice().names[static_cast<size_t>(op)];
}

core::KernelName stage_kernel_name(sluice_stage stage) noexcept {
  return choice().stage_names[static_cast<size_t>(stage)];
}

size_t list_isas(char* out, size_t size) noexcept {
  size_t length = 0;
  for (const Isa& isa : kIsas) {
    if (!usable(isa)) continue;
    const size_t room = length < size ? size - length : 0;
    length += static_cast<size_t>(
        std::snprintf(room > 0 ? out + length : nullptr, room, " %s", isa.name));
  }
  return length;
}

}  // namespace sluice::cpu
