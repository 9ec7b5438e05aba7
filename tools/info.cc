// Implements `sluice info`: tells what this build and this machine can do. And `sluice doctor`: what this
// machine has, which kernels will run, and whether they are right.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <deque>
#include <fstream>
#include <set>

#include "check/tensors.hpp"
#include "sluice/enumerations.hpp"
#include "tools/bench/cpu_probe.hpp"
#include "tools/bench/machine.hpp"
#include "tools/call.hpp"
#include "tools/case_settings.hpp"
#include "tools/commands.hpp"
#include "tools/judge.hpp"
#include "tools/terminal.hpp"

extern char** environ;

namespace sluice::tools {

namespace {

struct OperatorKernel {
  std::string op, kernel;  ///< "none: " and the refusal where there is none
};

/// Which kernels a Qwen3-Next layer (H 16, HV 32, K = V = 128) would get there with activations in
/// `io`, operator by operator.
std::vector<OperatorKernel> model_kernels(sluice_device where, sluice_dtype io);

// The memory is the host's: nothing is computed.
std::vector<OperatorKernel> model_kernels(sluice_device where, sluice_dtype io) {
  constexpr int64_t T = 1, H = 16, HV = 32, K = 128, V = 128, D = 2 * H * K + HV * V, C = 64;
  std::deque<check::TestTensor> memory;
  const auto tensor = [&](sluice_dtype dtype, std::vector<int64_t> shape) {
    TensorView out(memory.emplace_back(dtype, std::move(shape)).view());
    out.device = where;
    return out;
  };
  std::vector<OperatorKernel> kernels;
  // The kernel that `args` would run on, or why none does.
  const auto add = [&](const char* name, int op, const auto& args) {
    const Result<KernelChoice> choice = supported(op, args);
    kernels.push_back(
        {name, choice.ok() ? choice.value.name : std::string("none: ") + choice.status.message});
  };
  const TensorView keys = tensor(io, {1, T, H, K}), values = tensor(io, {1, T, HV, V}),
                   outputs = tensor(io, {1, T, HV, V}), gates = tensor(check::kF32, {1, T, HV}),
                   state = tensor(check::kF32, {1, HV, K, V});

  ChunkForwardArgs prefill;
  prefill.q = prefill.k = keys;
  prefill.v = values;
  prefill.o = outputs;
  prefill.gate = prefill.beta = gates;
  add("chunk_forward", SLUICE_OP_CHUNK_FORWARD, prefill);

  RecurrentStepArgs decode;
  decode.q = decode.k = keys;
  decode.v = values;
  decode.o = outputs;
  decode.gate = decode.beta = gates;
  decode.state.initial = state;
  add("recurrent_step", SLUICE_OP_RECURRENT_STEP, decode);

  CausalConv1dArgs conv;
  conv.x = tensor(io, {1, T, D});
  conv.out = tensor(io, {1, T, D});
  conv.weight = tensor(io, {D, 4});
  add("causal_conv1d", SLUICE_OP_CAUSAL_CONV1D, conv);

  GatedRmsNormArgs gated;
  gated.x = gated.z = values;
  gated.out = outputs;
  gated.weight = tensor(io, {V});
  add("gated_rms_norm", SLUICE_OP_GATED_RMS_NORM, gated);

  LayerArgs layer;
  layer.qkv = conv.x;
  layer.z = tensor(io, {1, T, HV * V});
  layer.a = layer.b = gates;
  layer.conv_weight = conv.weight;
  layer.A_log = layer.dt_bias = tensor(check::kF32, {HV});
  layer.norm_weight = gated.weight;
  layer.out = values;
  layer.conv_initial = tensor(io, {1, D, 3});
  layer.state.initial = state;
  layer.num_k_heads = H, layer.num_v_heads = HV, layer.head_k_dim = K, layer.head_v_dim = V;
  add("layer_prefill", SLUICE_OP_LAYER_PREFILL, layer);
  add("layer_decode", SLUICE_OP_LAYER_DECODE, layer);

  // The stages, for chunks of 64 tokens.
  ChunkStageArgs args;
  args.q = args.k = keys;
  args.v = values;
  args.gate = args.beta = gates;
  args.g_cumsum = tensor(check::kF32, {1, T, HV});
  args.A = tensor(io, {1, T, HV, C}), args.A_inverse = tensor(io, {1, T, HV, C});
  args.w = tensor(io, {1, T, HV, K}), args.u = tensor(io, {1, T, HV, V});
  args.v_new = tensor(io, {1, T, HV, V});
  args.h = tensor(io, {1, 1, HV, K, V}), args.o = outputs;
  for (int32_t stage = 0; kStageWords[stage] != nullptr; ++stage) {
    add(kStageWords[stage], SLUICE_OP_CHUNK_STAGE, stage_args(args, static_cast<Stage>(stage)));
  }
  args.h = {};
  add("simple_gla", SLUICE_OP_CHUNK_STAGE, simple_gla_args(args));
  return kernels;
}

void print_kernels(sluice_device where, sluice_dtype io) {
  Table table({"<operator",
               fmt::format("<kernel for {} on {}, H 16, HV 32, K = V = 128", check::dtype_name(io),
                           where.type == SLUICE_DEVICE_CUDA ? "the GPU" : "the host")});
  for (const auto& [op, kernel] : model_kernels(where, io)) table.add({op, kernel});
  table.print();
}

int info() {
  fmt::print("sluice {} (interface {})\n\n", sluice_version(), sluice_abi_version());
  sluice_implementation_info list[16];
  const int count = std::min(sluice_implementations(list, 16), 16);
  Table backends({"<backend", "<here", "<needs", "<what"});
  bool cuda = false, cuda_runs = false;
  for (int i = 0; i < count; ++i) {
    cuda = cuda || list[i].id == SLUICE_IMPL_CUDA;
    cuda_runs = cuda_runs || (list[i].id == SLUICE_IMPL_CUDA && list[i].available != 0);
    backends.add({list[i].name, list[i].available != 0 ? "yes" : "no", list[i].requirement,
                  list[i].description});
  }
  backends.print();
  if (!cuda) fmt::print("The CUDA half is not part of this build.\n");
  fmt::print("\n");
  for (const auto& [key, value] : capabilities()) {
    fmt::print("{}\n", folded(key + ": " + value, 4, terminal_width()));
  }
  fmt::print("\n");
  print_kernels(kCpuDevice, check::kF32);
  if (cuda_runs) {
    for (const sluice_dtype io : {check::kBF16, check::kF32}) {
      fmt::print("\n");
      print_kernels(cuda_device(), io);
    }
  }
  return kExitDone;
}

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
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Variables of the environment that change what runs.
std::string variables() {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string(*entry).rfind("SLUICE_", 0) == 0) found.emplace_back(*entry);
  }
  return found.empty() ? "no SLUICE_ variable" : fmt::format("{}", fmt::join(found, ", "));
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

/// What came of checking cases.
struct CheckTally {
  int cases = 0, tensors = 0;
  double seconds = 0;
  std::vector<std::string> wrong;  ///< a line for each tensor outside its limit
};

/// Runs the cases that the backend supports, against the reference's answers in double.
Status check_cases(const io::CaseFile& file, const ExecuteOptions& options, CheckTally* tally) {
  const Stopwatch watch;
  for (const io::Case& c : file.cases) {
    const Truth truth = truth_of(file, c, options.inputs);
    if (!truth.status.ok()) return truth.status;
    const Execution execution = execute(file, c, options);
    if (execution.status.code == Code::kUnsupported) continue;
    if (!execution.status.ok()) return execution.status;
    ++tally->cases;
    for (const Judgement& judgement : judge_case(file, c, execution.results, truth)) {
      ++tally->tensors;
      if (judgement.verdict.pass) continue;
      tally->wrong.push_back(c.name + ": " + judgement.verdict.line);
    }
  }
  tally->seconds = watch.seconds();
  return ok_status();
}

/// One backend and type against the reference; whether all of it is right.
bool compare(const io::CaseFile& file, Implementation backend, sluice_dtype dtype) {
  ExecuteOptions options;
  options.implementation = backend;
  options.inputs = options.outputs = dtype;
  CheckTally tally;
  const Status status = check_cases(file, options, &tally);
  const std::string who = fmt::format("{}, {}", backend_name(backend), check::dtype_name(dtype));
  if (!status.ok()) {
    fmt::print("  {:<16}{}  {}\n", who, verdict_word(false), status.message);
    return false;
  }
  const bool right = tally.wrong.empty();
  fmt::print("  {:<16}{}  {} of {} right, {} in {}\n", who, verdict_word(right),
             tally.tensors - static_cast<int>(tally.wrong.size()), tally.tensors,
             counted(tally.cases, "case"), seconds_text(tally.seconds));
  for (const std::string& line : tally.wrong) {
    fmt::print("{}\n", folded("    " + line, 6, terminal_width()));
  }
  return right && tally.cases > 0;
}

int doctor() {
  print_machine();
  const bool gpu = unavailable(Implementation::kCuda).empty();
  if (gpu) print_layer_kernels(cuda_device(), check::kBF16);
  print_layer_kernels(kCpuDevice, check::kF32);
  fmt::print("\nEvery operator against the float64 reference:\n");
  CasesInMemory cases;
  if (const Status status = make_suite("self-check", &cases); !status.ok())
    return fail(status.message);
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

Action add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Backends, instruction sets, kernels, version");
  command->footer("Example:\n  sluice info");
  return info;
}

Action add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "doctor", "What this machine has, which kernels will run, and whether they are right");
  command->footer(
      "Takes a second or two. Exit status 1 if a result is outside its limit.\n"
      "Example:\n  sluice doctor");
  return doctor;
}

}  // namespace sluice::tools
