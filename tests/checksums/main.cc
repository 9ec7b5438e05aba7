// Prints a checksum of every tensor that the operators write on fixed inputs, or compares them with
// a committed list, so that a change of the code can be shown to change no bit of the results.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <sstream>

#include "scene.hpp"

namespace sluice::checksums {
namespace {

constexpr int kSkipped = 77;

struct Options {
  bool gpu = false;
  std::string only, pass, write, check;
};

/// Environments in which kernels run that no call asks for by itself. A process reads them once.
constexpr const char* kPasses[] = {
    "SLUICE_CUDA_SPLIT=cluster2", "SLUICE_CUDA_SPLIT=cluster4", "SLUICE_CUDA_SPLIT=cluster6",
    "SLUICE_CUDA_SPLIT=cluster8", "SLUICE_CUDA_SPLIT=prefix1",  "SLUICE_CUDA_SPLIT=prefix2",
    "SLUICE_CUDA_SPLIT=prefix4",  "SLUICE_CUDA_SPLIT=3",        "SLUICE_CUDA_KERNEL=generic"};

bool parse(int argc, char** argv, Options* options) {
  if (argc < 2) return false;
  options->gpu = std::strcmp(argv[1], "cuda") == 0;
  if (!options->gpu && std::strcmp(argv[1], "cpu") != 0) return false;
  for (int i = 2; i + 1 < argc; i += 2) {
    std::string* const value = std::strcmp(argv[i], "--only") == 0    ? &options->only
                               : std::strcmp(argv[i], "--pass") == 0  ? &options->pass
                               : std::strcmp(argv[i], "--write") == 0 ? &options->write
                               : std::strcmp(argv[i], "--check") == 0 ? &options->check
                                                                      : nullptr;
    if (value == nullptr) return false;
    *value = argv[i + 1];
  }
  return argc % 2 == 0;
}

/// "cpu.avx2", "reference", "cuda.sm90x132": lines of one backend compare with its own alone.
std::string backend_name(Device& device, bool gpu) {
  if (gpu) return "cuda." + device.model();
  const float one[12] = {};
  GatedRmsNormArgs a;
  a.x = TensorView(one, {1, 4});
  a.out = a.x;
  a.z = TensorView(one + 4, {1, 4});
  a.weight = TensorView(one + 8, {4});
  char kernel[96] = "";
  const auto c = a.c();
  if (sluice_supported(SLUICE_OP_GATED_RMS_NORM, &c, kernel, sizeof kernel) != SLUICE_OK) return {};
  const std::string name = kernel;
  const size_t first = name.find('.'), last = name.rfind('.');
  return name.substr(0, first) + (last > first ? name.substr(last) : std::string());
}

void all_cases(const Run& run) {
  if (run.pass.empty() || run.pass.find("KERNEL") != std::string::npos) {
    chunk_forward_cases(run);
    recurrent_step_cases(run);
    ring_cases(run);
    layer_cases(run);
    small_operator_cases(run);
    stage_cases(run);
    chunk_backward_cases(run);
  }
  linear_cases(run);
}

/// The lines of a run of this program in another environment.
std::vector<Line> run_pass(const std::string& pass, const std::string& only) {
  char self[4096] = "";
  std::ifstream("/proc/self/cmdline").getline(self, sizeof self, '\0');
  const std::string filter = only.empty() ? "" : " --only '" + only + "'";
  const std::string command = pass + " '" + self + "' cuda --pass '" + pass + "'" + filter;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<Line> lines;
  char text[1024];
  while (pipe != nullptr && std::fgets(text, sizeof text, pipe.get()) != nullptr) {
    Line line;
    std::istringstream fields(text);
    fields >> line.backend >> line.kernel >> line.scene >> line.tensor >> line.checksum;
    lines.push_back(line);
  }
  return lines;
}

std::string text_of(const Line& line) {
  return line.backend + "\t" + line.kernel + "\t" + line.scene + "\t" + line.tensor + "\t" +
         line.checksum + "\n";
}

/// What the list says of this backend, by case and tensor.
std::map<std::string, Line> read_list(const std::string& path, const std::string& backend) {
  std::map<std::string, Line> known;
  std::ifstream file(path);
  Line line;
  while (file >> line.backend >> line.kernel >> line.scene >> line.tensor >> line.checksum) {
    if (line.backend == backend) known[line.scene + " " + line.tensor] = line;
  }
  return known;
}

/// Other checksums are failures, and so are cases that only one side has. Kernels may have other
/// names: that is said, and is none.
int compare(const std::vector<Line>& lines, const Options& options, const std::string& backend) {
  std::map<std::string, Line> known = read_list(options.check, backend);
  if (known.empty()) {
    std::printf("skipped: %s has no lines of %s\n", options.check.c_str(), backend.c_str());
    return kSkipped;
  }
  size_t same = 0, renamed = 0, wrong = 0;
  for (const Line& line : lines) {
    const auto found = known.find(line.scene + " " + line.tensor);
    const bool equal = found != known.end() && found->second.checksum == line.checksum;
    (equal ? same : wrong) += 1;
    if (!equal) {
      std::printf("differs: %s  listed %s (%s), found %s (%s)\n",
                  (line.scene + " " + line.tensor).c_str(),
                  found == known.end() ? "nothing" : found->second.checksum.c_str(),
                  found == known.end() ? "-" : found->second.kernel.c_str(), line.checksum.c_str(),
                  line.kernel.c_str());
    } else if (found->second.kernel != line.kernel) {
      ++renamed;
      std::printf("other kernel: %s  listed %s, found %s\n", found->first.c_str(),
                  found->second.kernel.c_str(), line.kernel.c_str());
    }
    if (found != known.end()) known.erase(found);
  }
  for (const auto& [key, line] : known) {
    if (line.scene.find(options.only) == std::string::npos) continue;
    ++wrong;
    std::printf("missing: %s\n", key.c_str());
  }
  std::printf("%s: %zu tensors equal, %zu of them by kernels of other names, %zu differ\n",
              backend.c_str(), same, renamed, wrong);
  return wrong == 0 ? 0 : 1;
}

int run_all(const Options& options) {
  Device* const device = options.gpu ? cuda_device() : &cpu_device();
  if (device == nullptr) {
    std::printf("skipped: no GPU, or built without CUDA\n");
    return kSkipped;
  }
  const std::string backend = backend_name(*device, options.gpu);
  std::vector<Line> lines;
  const bool printing = options.write.empty() && options.check.empty();
  std::vector<std::future<std::vector<Line>>> passes;
  if (options.gpu && !printing) {
    for (const char* pass : kPasses) {
      passes.push_back(std::async(std::launch::async, run_pass, pass, options.only));
    }
  }
  const bool large = options.gpu && options.pass.find("KERNEL") == std::string::npos;
  const Run run{*device, options.gpu, large, options.pass, options.only, [&](Scene& scene) {
                  for (Line& line : scene.finish(backend)) {
                    if (printing) std::fputs(text_of(line).c_str(), stdout);
                    lines.push_back(std::move(line));
                  }
                }};
  all_cases(run);
  for (auto& pass : passes) {
    for (Line& line : pass.get()) lines.push_back(std::move(line));
  }
  if (!options.check.empty()) return compare(lines, options, backend);
  if (options.write.empty()) return 0;
  std::ofstream file(options.write);
  for (const Line& line : lines) file << text_of(line);
  return file.flush() ? 0 : 1;
}

}  // namespace
}  // namespace sluice::checksums

int main(int argc, char** argv) {
  sluice::checksums::Options options;
  if (!sluice::checksums::parse(argc, argv, &options)) {
    std::fprintf(
        stderr, "usage: sluice_checksums cpu|cuda [--only PREFIX] [--write FILE | --check FILE]\n");
    return 2;
  }
  return sluice::checksums::run_all(options);
}
