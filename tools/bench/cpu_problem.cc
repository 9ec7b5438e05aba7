// Fills the inputs of a CPU problem and computes the reference's answer to a sample.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "check/generate.hpp"
#include "tools/bench/cpu_probe.hpp"

namespace sluice::tools {
namespace {

// Model configurations: key heads and value heads of the linear attention layers.
const std::vector<ModelShape>& models() {
  static const std::vector<ModelShape> kModels = {
      {"qwen3-next", 16, 32},  {"qwen3.5-0.8b", 16, 16}, {"qwen3.5-2b", 16, 16},
      {"qwen3.5-4b", 16, 32},  {"qwen3.5-9b", 16, 32},   {"qwen3.5-27b", 16, 48},
      {"qwen3.5-35b", 16, 32}, {"qwen3.5-122b", 16, 64}, {"qwen3.5-397b", 16, 64}};
  return kModels;
}

// Near enough to a normal for timing, and cheap: four uniforms, variance 1.
double bell(check::Random* random) {
  double sum = -2.0;
  for (int i = 0; i < 4; ++i) sum += random->uniform();
  return sum * std::sqrt(3.0);
}

void fill_unit_rows(int64_t width, uint64_t seed, Buffer* out) {
  check::Random random(seed);
  std::vector<double> row(static_cast<size_t>(width));
  for (int64_t start = 0; start < out->size(); start += width) {
    double square = 0.0;
    for (double& x : row) {
      x = bell(&random);
      square += x * x;
    }
    for (int64_t i = 0; i < width; ++i) {
      out->set(start + i, row[static_cast<size_t>(i)] / std::sqrt(square));
    }
  }
}

// Numbers of "H/HV" or "H/HV/KxV"; empty if the text is none of these.
std::optional<ModelShape> parse_shape(const std::string& text) {
  ModelShape shape{text, 0, 0, 128, 128};
  int used = 0;
  long long H = 0, HV = 0, K = 128, V = 128;
  const int found =
      std::sscanf(text.c_str(), "%lld/%lld%n/%lldx%lld%n", &H, &HV, &used, &K, &V, &used);
  const bool whole = (found == 2 || found == 4) && used == static_cast<int>(text.size());
  const auto small = [](long long x) { return x >= 1 && x <= 1024; };
  if (!whole || !small(H) || !small(HV) || !small(K) || !small(V) || HV % H != 0) return {};
  shape.H = H, shape.HV = HV, shape.K = K, shape.V = V;
  return shape;
}

}  // namespace

void fill_normal(double factor, uint64_t seed, Buffer* out) {
  check::Random random(seed);
  for (int64_t i = 0; i < out->size(); ++i) out->set(i, factor * bell(&random));
}

std::optional<ModelShape> find_model(const std::string& name) {
  if (const auto shape = parse_shape(name)) return shape;
  std::string base = name;
  int64_t parts = 1;
  const size_t suffix = name.rfind("-tp");
  if (suffix != std::string::npos) {
    base = name.substr(0, suffix);
    const std::string digits = name.substr(suffix + 3);
    if (digits != "2" && digits != "4" && digits != "8") return std::nullopt;
    parts = std::stoll(digits);
  }
  for (const ModelShape& model : models()) {
    if (model.name != base) continue;
    ModelShape shape = model;
    shape.name = name;
    shape.H /= parts;
    shape.HV /= parts;
    return shape;
  }
  return std::nullopt;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelShape& model : models()) names.push_back(model.name);
  return names;
}

void Buffer::Free::operator()(void* p) const noexcept { std::free(p); }

Buffer::Buffer(sluice_dtype dtype, std::vector<int64_t> shape)
    : size_(check::element_count(shape)) {
  // Every page is touched there, so that no run pays for page faults.
  memory_.reset(allocate_pages(static_cast<size_t>(size_) * (dtype.bits / 8u)));
  sluice_tensor view{};
  view.data = memory_.get();
  view.device = kCpuDevice;
  view.dtype = dtype;
  view.rank = static_cast<uint16_t>(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    view.shape[i] = shape[i];
    view.stride[i] = stride;
    stride *= shape[i];
  }
  view_ = TensorView(view);
}

void Buffer::fill_with(const Buffer& source) noexcept {
  const int64_t once = std::min(size_, source.size());
  for (int64_t i = 0; i < once; ++i) set(i, source.get(i));
  auto* const bytes = static_cast<std::byte*>(memory_.get());
  const int64_t element = view_.dtype.bits / 8;
  for (int64_t at = once; at < size_; at += once) {
    std::memcpy(bytes + at * element, bytes,
                static_cast<size_t>(std::min(once, size_ - at) * element));
  }
}

BenchProblem::BenchProblem(ModelShape shape, int64_t batch, int64_t tokens, bool steps,
                           sluice_dtype type, bool key_gates)
    : model(std::move(shape)),
      B(batch),
      T(tokens),
      decode(steps),
      dtype(type),
      q(type, {B, T, model.H, model.K}),
      k(type, {B, T, model.H, model.K}),
      v(type, {B, T, model.HV, model.V}),
      gate(check::kF32, {B, T, model.HV}),
      beta(check::kF32, {B, T, model.HV}),
      key_gate(check::kF32, {key_gates ? gate.size() * model.K : 1}),
      initial(check::kF32, {B, model.HV, model.K, model.V}) {
  fill_unit_rows(model.K, 1, &q);
  fill_unit_rows(model.K, 2, &k);
  fill_normal(1.0, 3, &v);
  fill_normal(0.1, 4, &initial);
  check::Random random(5);
  for (int64_t i = 0; i < gate.size(); ++i) {
    const auto head = static_cast<double>(i % model.HV);
    const double A = 0.02 + 0.98 * head / static_cast<double>(std::max<int64_t>(model.HV - 1, 1));
    gate.set(i, -A * std::log1p(std::exp(bell(&random))));
    beta.set(i, 1.0 / (1.0 + std::exp(-bell(&random))));
  }
  for (int64_t i = 0; key_gates && i < key_gate.size(); ++i) {
    key_gate.set(i, gate.get(i / model.K));
  }
}

double BenchProblem::flops() const noexcept {
  return 7.0 * static_cast<double>(model.K * model.V * model.HV * B * T);
}

double BenchProblem::state_bytes(int64_t number_bytes) const noexcept {
  return 2.0 * static_cast<double>(number_bytes * model.K * model.V * model.HV * B);
}

std::vector<int64_t> state_shape(const ModelShape& model, int64_t B, StateLayout layout) {
  if (layout == StateLayout::kKV) return {B, model.HV, model.K, model.V};
  return {B, model.HV, model.V, model.K};
}

TensorView BenchProblem::initial_as(StateLayout layout) const {
  const std::vector<int64_t> shape = state_shape(model, B, layout);
  return TensorView(initial.floats(), kFloat32, {shape[0], shape[1], shape[2], shape[3]});
}

check::Array sample_answer(const BenchProblem& problem, HeadMap head_map, StateLayout layout) {
  const int64_t tokens = std::min(problem.T, kSampleTokens);
  Buffer o(check::kF32, {1, tokens, problem.model.HV, problem.model.V});
  const auto sample = [&](const Buffer& buffer) {
    return buffer.view().sliced(0, 0, 1).sliced(1, 0, tokens);
  };
  ChunkForwardArgs args;
  args.q = sample(problem.q);
  args.k = sample(problem.k);
  args.v = sample(problem.v);
  args.gate = sample(problem.gate);
  args.beta = sample(problem.beta);
  args.o = o.view();
  args.state.initial = problem.initial_as(layout).sliced(0, 0, 1);
  args.state.layout = layout;
  args.head_map = head_map;
  args.implementation = Implementation::kReference;
  HostWorkspace memory;
  const Result<WorkspaceSize> size = workspace_size(args);
  if (!size.ok() || !chunk_forward(args, memory.reserve(size.value.bytes)).ok()) return {};
  return check::to_array(o.view());
}

}  // namespace sluice::tools
