// Fills the inputs of a CPU problem, computes the reference's answer to a sample, and makes Sluice a
// contender.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_contender.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "check/generate.hpp"

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

constexpr int64_t kUnitRows = 8192;  // of random numbers, repeated over q and k
constexpr double kStateScale = 0.1;

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

class SluiceContender : public Contender {
 public:
  SluiceContender(const BenchProblem& problem, StateForm form, int64_t slots, bool key_gates)
      : problem_(problem),
        form_(form),
        slots_(slots),
        key_gates_(key_gates),
        o_(problem.make_output(problem.dtype)),
        pool_(problem.make_pool(form.dtype, slots * problem.B, form.layout)) {}

  std::string name() const override {
    const bool plain = form_.layout == StateLayout::kKV && form_.dtype.bits == 32;
    const std::string type = check::dtype_name(form_.dtype);
    const std::string form =
        plain ? "" : " " + type + (form_.layout == StateLayout::kKV ? " kv" : " vk");
    return std::string("sluice ") + sluice_version() + form +
           (key_gates_ ? ", key-wise gates" : "");
  }
  TensorView output() const override { return o_; }
  StateLayout state_layout() const override { return form_.layout; }
  int64_t state_number_bytes() const override { return form_.dtype.bits / 8; }
  size_t scratch_bytes() const override { return scratch_.get().size; }

  void run() override {
    if (problem_.decode) {
      RecurrentStepArgs args;
      args.state.initial = pool_.sliced(0, next_ * problem_.B, problem_.B);
      next_ = (next_ + 1) % slots_;
      call(&args, recurrent_step);
    } else {
      ChunkForwardArgs args;
      args.state.initial = problem_.initial_as(form_.layout);
      args.state.final = pool_;
      call(&args, chunk_forward);
    }
  }

 private:
  template <class Args>
  void call(Args* args, Status (*compute)(const Args&, Workspace, Stream) noexcept) {
    args->q = problem_.q, args->k = problem_.k, args->v = problem_.v;
    args->gate = key_gates_ ? problem_.key_gate : problem_.gate;
    args->beta = problem_.beta;
    args->o = o_;
    args->state.layout = form_.layout;
    args->implementation = Implementation::kCpu;
    scratch_.reserve(problem_.memory.machine(), workspace_size(*args));
    require(compute(*args, scratch_.get(), nullptr));
  }

  const BenchProblem& problem_;
  StateForm form_;
  int64_t slots_, next_ = 0;
  bool key_gates_;
  TensorView o_, pool_;
  WorkScratch scratch_;
};

/// Between its run()s the library's own pool is back.
class OneThreadContender final : public SluiceContender {
 public:
  OneThreadContender(const BenchProblem& problem, int64_t slots)
      : SluiceContender(problem, StateForm{}, slots, false) {}

  std::string name() const override { return SluiceContender::name() + ", 1 thread"; }

  void run() override {
    if (sluice_set_executor(run_in_turn, nullptr, 1) != SLUICE_OK) {
      throw std::runtime_error(sluice_last_error());
    }
    const struct Restore {
      ~Restore() { sluice_set_executor(nullptr, nullptr, 0); }
    } restore;
    SluiceContender::run();
  }

 private:
  static void run_in_turn(void*, int64_t count, void (*task)(void*, int64_t), void* context) {
    for (int64_t i = 0; i < count; ++i) task(context, i);
  }
};

constexpr int64_t kWidth = 4;

int64_t channels(const ModelShape& m) { return 2 * m.H * m.K + m.HV * m.V; }

/// The whole layer between its projections, so that what surrounds the delta
/// rule shows as a ratio of two times from the same rounds.
class LayerContender final : public Contender {
 public:
  LayerContender(const BenchProblem& problem, int64_t slots)
      : problem_(problem), slots_(problem.decode ? slots : 1) {
    const ModelShape& m = problem.model;
    const int64_t B = problem.B, T = problem.T, D = channels(m);
    const DType io = problem.dtype;
    WorkMemory& memory = problem.memory;
    args_.qkv = memory.tensor(io, {B, T, D});
    args_.z = memory.tensor(io, {B, T, m.HV * m.V});
    args_.a = memory.tensor(io, {B, T, m.HV}), args_.b = memory.tensor(io, {B, T, m.HV});
    args_.conv_weight = memory.tensor(io, {D, kWidth}, 0.5);
    args_.norm_weight = memory.tensor(io, {m.V});
    std::vector<float> rates(static_cast<size_t>(m.HV));
    for (size_t h = 0; h < rates.size(); ++h) rates[h] = h % 4 == 0 ? -20.0f : -1.0f;
    args_.A_log = memory.list(rates);
    args_.dt_bias = memory.tensor(kFloat32, {m.HV}, 0);
    args_.out = problem.make_output(io);
    args_.num_k_heads = m.H, args_.num_v_heads = m.HV;
    args_.head_k_dim = m.K, args_.head_v_dim = m.V;
    args_.implementation = Implementation::kCpu;
    conv_ = memory.tensor(io, {slots_ * B, D, kWidth - 1});
    pool_ = problem.make_pool(kFloat32, slots_ * B, StateLayout::kKV);
  }

  std::string name() const override {
    return std::string("sluice ") + sluice_version() + ", layer";
  }
  TensorView output() const override { return args_.out; }
  bool comparable() const override { return false; }
  size_t scratch_bytes() const override { return scratch_.get().size; }

  void run() override {
    const int64_t B = problem_.B;
    args_.conv_initial = args_.conv_final = conv_.sliced(0, next_ * B, B);
    args_.state.final = pool_.sliced(0, next_ * B, B);
    args_.state.initial = problem_.decode ? args_.state.final : problem_.initial;
    next_ = (next_ + 1) % slots_;
    scratch_.reserve(problem_.memory.machine(), problem_.decode ? layer_decode_workspace(args_)
                                                                : layer_prefill_workspace(args_));
    require(problem_.decode ? layer_decode(args_, scratch_.get())
                            : layer_prefill(args_, scratch_.get()));
  }

 private:
  const BenchProblem& problem_;
  int64_t slots_, next_ = 0;
  LayerArgs args_;
  TensorView conv_, pool_;
  WorkScratch scratch_;
};

}  // namespace

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

BenchProblem::BenchProblem(Machine& machine, ModelShape shape, int64_t batch, int64_t tokens,
                           bool steps, DType type, bool key_gates)
    : memory(machine),
      model(std::move(shape)),
      B(batch),
      T(tokens),
      decode(steps),
      dtype(type),
      q(memory.tensor(type, {B, T, model.H, model.K}, 0)),
      k(memory.tensor(type, {B, T, model.H, model.K}, 0)),
      v(memory.tensor(type, {B, T, model.HV, model.V})),
      gate(memory.tensor(kFloat32, {B, T, model.HV}, 0)),
      beta(memory.tensor(kFloat32, {B, T, model.HV}, 0)),
      initial(memory.tensor(kFloat32, {B, model.HV, model.K, model.V}, kStateScale)) {
  const auto bytes = static_cast<size_t>(B * T * model.H * model.K) * (type.bits / 8u);
  upload_repeated(machine, q.data, bytes, random_rows(kUnitRows, model.K, true, 1.0, type, 1));
  upload_repeated(machine, k.data, bytes, random_rows(kUnitRows, model.K, true, 1.0, type, 2));
  check::Random random(5);
  const int64_t heads = B * T * model.HV;
  for (int64_t i = 0; i < heads; ++i) {
    const auto head = static_cast<double>(i % model.HV);
    const double A = 0.02 + 0.98 * head / static_cast<double>(std::max<int64_t>(model.HV - 1, 1));
    check::store_element(gate, i, -A * std::log1p(std::exp(random.normal())));
    check::store_element(beta, i, 1.0 / (1.0 + std::exp(-random.normal())));
  }
  if (!key_gates) return;
  key_gate = memory.tensor(kFloat32, {B, T, model.HV, model.K}, 0);
  for (int64_t i = 0; i < heads * model.K; ++i) {
    check::store_element(key_gate, i, check::load_element(gate, i / model.K));
  }
}

TensorView BenchProblem::make_pool(DType type, int64_t sequences, StateLayout layout) const {
  const bool vk = layout == StateLayout::kVK;
  return memory.tensor(type, {sequences, model.HV, vk ? model.V : model.K, vk ? model.K : model.V},
                       kStateScale);
}

TensorView BenchProblem::make_output(DType type) const {
  return memory.tensor(type, {B, T, model.HV, model.V}, 0);
}

double BenchProblem::flops() const noexcept {
  return 7.0 * static_cast<double>(model.K * model.V * model.HV * B * T);
}

double BenchProblem::state_bytes(int64_t number_bytes) const noexcept {
  return 2.0 * static_cast<double>(number_bytes * model.K * model.V * model.HV * B);
}

TensorView BenchProblem::initial_as(StateLayout layout) const {
  if (layout == StateLayout::kKV) return initial;
  return TensorView(initial.data, kFloat32, {B, model.HV, model.V, model.K});
}

check::Array sample_answer(const BenchProblem& problem, HeadMap head_map, StateLayout layout) {
  const int64_t tokens = std::min(problem.T, kSampleTokens);
  std::vector<float> numbers(static_cast<size_t>(tokens * problem.model.HV * problem.model.V));
  const TensorView o(numbers.data(), {1, tokens, problem.model.HV, problem.model.V});
  const auto sample = [&](const TensorView& tensor) {
    return tensor.sliced(0, 0, 1).sliced(1, 0, tokens);
  };
  ChunkForwardArgs args;
  args.q = sample(problem.q);
  args.k = sample(problem.k);
  args.v = sample(problem.v);
  args.gate = sample(problem.gate);
  args.beta = sample(problem.beta);
  args.o = o;
  args.state.initial = problem.initial_as(layout).sliced(0, 0, 1);
  args.state.layout = layout;
  args.head_map = head_map;
  args.implementation = Implementation::kReference;
  HostWorkspace memory;
  const Result<WorkspaceSize> size = workspace_size(args);
  if (!size.ok() || !chunk_forward(args, memory.reserve(size.value.bytes)).ok()) return {};
  return check::to_array(o);
}

std::unique_ptr<Contender> make_one_thread_contender(const BenchProblem& problem, int64_t slots) {
  return std::make_unique<OneThreadContender>(problem, slots);
}

std::unique_ptr<Contender> make_layer_contender(const BenchProblem& problem, int64_t slots) {
  return std::make_unique<LayerContender>(problem, slots);
}

std::unique_ptr<Contender> make_sluice_contender(const BenchProblem& problem, StateForm form,
                                                 int64_t slots, bool key_gates) {
  return std::make_unique<SluiceContender>(problem, form, slots, key_gates);
}

}  // namespace sluice::tools
