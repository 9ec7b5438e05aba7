// Defines options that several subcommands have.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cstdio>
#include <map>

#include "check/array.hpp"
#include "tools/commands.hpp"

namespace sluice::tools {
namespace {

const std::map<std::string, Implementation>& backends() {
  static const std::map<std::string, Implementation> kBackends = {
      {"auto", Implementation::kAuto},
      {"reference", Implementation::kReference},
      {"reference-chunked", Implementation::kReferenceChunked},
      {"cpu", Implementation::kCpu},
      {"cuda", Implementation::kCuda}};
  return kBackends;
}

template <class Value>
std::string take_choice(const std::map<std::string, Value>& choices, const std::string& text,
                        Value* out) {
  const auto found = choices.find(text);
  if (found != choices.end()) {
    *out = found->second;
    return {};
  }
  std::string known;
  for (const auto& [name, value] : choices) known += (known.empty() ? "" : ", ") + name;
  return fmt::format("'{}' is none of {}", text, known);
}

}  // namespace

int fail(const std::string& message) {
  fmt::print(stderr, "sluice: {}\n", message);
  return kExitError;
}

int fail_unavailable(const std::string& message) {
  fail(message);
  return kExitUnavailable;
}

sluice_device device_of(Implementation implementation) {
  return implementation == Implementation::kCuda ? cuda_device() : kCpuDevice;
}

void add_backend_option(CLI::App& command, Implementation* out) {
  command
      .add_option_function<std::string>(
          "--backend", [](const std::string&) {},
          "auto, reference (float64, token by token), reference-chunked, cpu or cuda")
      ->type_name("NAME")
      ->default_str("auto")
      ->check([out](const std::string& text) { return take_choice(backends(), text, out); });
}

void add_dtype_option(CLI::App& command, sluice_dtype* out, const std::string& name,
                      const std::string& help) {
  static const std::map<std::string, sluice_dtype> kTypes = {{"f32", check::kF32},
                                                             {"bf16", check::kBF16},
                                                             {"f16", check::kF16},
                                                             {"fp32", check::kF32},
                                                             {"fp16", check::kF16}};
  command.add_option_function<std::string>(
             name, [](const std::string&) {}, help)
      ->type_name("TYPE")
      ->default_str(check::same_dtype(*out, check::kF32) ? "f32" : "bf16")
      ->check([out](const std::string& text) { return take_choice(kTypes, text, out); });
}

const char* backend_name(Implementation implementation) {
  for (const auto& [name, value] : backends()) {
    if (value == implementation) return name.c_str();
  }
  return "unknown";
}

std::string unavailable(Implementation implementation) {
  if (implementation == Implementation::kAuto) return {};
  sluice_implementation_info list[16];
  const int count = std::min(sluice_implementations(list, 16), 16);
  for (int i = 0; i < count; ++i) {
    if (list[i].id != static_cast<int32_t>(implementation)) continue;
    if (list[i].available != 0) return {};
    return fmt::format("backend {} cannot run here; it needs {}", list[i].name,
                       list[i].requirement);
  }
  return fmt::format("backend {} is not part of this build", backend_name(implementation));
}

}  // namespace sluice::tools
