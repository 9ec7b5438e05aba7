// Implements `sluice doctor`: what this machine has, which kernels will run, and whether they are
// right.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "tools/bench/cpu_probe.hpp"
#include "tools/bench/machine.hpp"
#include "tools/commands.hpp"
#include "tools/machine_facts.hpp"
#include "tools/self_check.hpp"
#include "tools/terminal.hpp"

extern char** environ;

namespace sluice::tools {
namespace {

constexpr size_t kIndent = 12;

/// "what        text", folded.
void print_fact(const std::string& what, const std::string& text) {
  const size_t width = terminal_width();
  fmt::print("{}\n", folded(fmt::format("{:<{}}{}", what, kIndent, text), kIndent, width));
}

std::string fact(const std::string& key) {
  for (const auto& [name, value] : capabilities()) {
    if (name == key) return value;
  }
  return {};
}

/// 13000 as "13.0", 0 as "none".
std::string cuda_version(const std::string& number) {
  const int version = number.empty() ? 0 : std::stoi(number);
  return version == 0 ? "none" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Why no GPU was found, where the driver says why: empty, or that it is for an older CUDA than the build's.
std::string driver_is_old() {
  const std::string driver = fact("cuda.driver");
  const int built = std::stoi(fact("cuda.runtime")) / 1000;
  if (driver == "0" || std::stoi(driver) / 1000 >= built) return "";
  return fmt::format(": the driver is for CUDA {}, this build needs one for CUDA {}",
                     cuda_version(driver), built);
}

/// Shared libraries of this process that decide what runs.
std::string libraries() {
  std::set<std::string> names;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.rfind('/');
    const std::string name = slash == std::string::npos ? "" : line.substr(slash + 1);
    for (const char* wanted : {"libsluice", "libhwy", "libcuda", "libstdc++"}) {
      if (name.rfind(wanted, 0) == 0) names.insert(name);
    }
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Variables of the environment that change what runs.
std::string variables() {
  std::string text;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string(*entry).rfind("SLUICE_", 0) != 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(*entry);
  }
  return text.empty() ? "no SLUICE_ variable" : text;
}

void print_machine() {
  fmt::print("sluice {} (interface {})\n\n", sluice_version(), sluice_abi_version());
  const std::string threads = counted(std::atoll(fact("cpu.threads").c_str()), "thread");
  print_fact("cpu", fmt::format("{}: {}, {}, quota {}", cpu_name(), fact("cpu.isa"), threads,
                                fact("cpu.quota")));
  const std::string devices = fact("cuda.devices");
  if (devices.empty()) {
    print_fact("gpu", "not in this build (-DSLUICE_CUDA=ON)");
  } else if (devices == "0") {
    print_fact("gpu", "none found" + driver_is_old());
  }
  for (int i = 0; !devices.empty() && i < std::stoi(devices); ++i) {
    print_fact(fmt::format("gpu {}", i), fact(fmt::format("cuda.device{}", i)));
  }
  if (!devices.empty()) {
    print_fact("driver",
               fmt::format("for CUDA {}; built with CUDA {}", cuda_version(fact("cuda.driver")),
                           cuda_version(fact("cuda.runtime"))));
  }
  print_fact("libraries", libraries());
  print_fact("environment", variables());
}

void print_layer_kernels(sluice_device where, sluice_dtype io) {
  fmt::print("\nWill run on the {} for {} and the heads of Qwen3-Next (16, 32, 128 x 128):\n",
             where.type == SLUICE_DEVICE_CUDA ? "GPU" : "CPU", check::dtype_name(io));
  for (const auto& [op, kernel] : model_kernels(where, io)) {
    const bool layer = op == "chunk_forward" || op == "recurrent_step" || op == "layer_prefill" ||
                       op == "layer_decode" || op == "causal_conv1d" || op == "gated_rms_norm";
    if (layer) fmt::print("  {:<16}{}\n", op, kernel);
  }
}

/// One backend and type against the reference; whether all of it is right.
bool compare(const io::CaseFile& file, Implementation backend, sluice_dtype dtype) {
  ExecuteOptions options;
  options.implementation = backend;
  options.inputs = options.outputs = dtype;
  CheckTally tally;
  const Status status = check_cases(file, options, "", &tally);
  const std::string who = fmt::format("{}, {}", backend_name(backend), check::dtype_name(dtype));
  if (!status.ok()) {
    fmt::print("  {:<16}{}  {}\n", who, verdict_word(false), status.message);
    return false;
  }
  fmt::print("  {:<16}{}  {} of {} right, {} in {}\n", who, verdict_word(tally.failed == 0),
             tally.right(), tally.tensors, counted(tally.cases, "case"),
             seconds_text(tally.seconds));
  for (const std::string& line : tally.wrong) {
    fmt::print("{}\n", folded("    " + line, 6, terminal_width()));
  }
  return tally.failed == 0 && tally.cases > 0;
}

int doctor() {
  print_machine();
  const bool gpu = unavailable(Implementation::kCuda).empty();
  if (gpu) print_layer_kernels(cuda_device(), check::kBF16);
  print_layer_kernels(kCpuDevice, check::kF32);
  fmt::print("\nEvery operator against the float64 reference:\n");
  CasesInMemory cases;
  if (const Status status = self_check_cases(&cases); !status.ok()) return fail(status.message);
  bool right = compare(cases.file, Implementation::kCpu, check::kF32);
  if (gpu) {
    for (const sluice_dtype dtype : {check::kBF16, check::kF32}) {
      right = compare(cases.file, Implementation::kCuda, dtype) && right;
    }
  }
  fmt::print("\n{}\n", right ? "Everything is right."
                             : "Something is WRONG: please report this page as it is.");
  return right ? kExitDone : kExitWrong;
}

}  // namespace

Action add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "doctor", "What this machine has, which kernels will run, and whether they are right");
  command->footer(
      "Takes a second or two. Exit status 1 if a result is outside its limit.\n"
      "Example:\n  sluice doctor");
  return doctor;
}

}  // namespace sluice::tools
