// Times the whole layer between its projections as a contender, so that what surrounds the delta
// rule shows as a ratio of two times from the same rounds.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_contender.hpp"

namespace sluice::tools {
namespace {

constexpr int64_t kWidth = 4;

int64_t channels(const ModelShape& m) { return 2 * m.H * m.K + m.HV * m.V; }

class LayerContender final : public Contender {
 public:
  LayerContender(const BenchProblem& problem, int64_t slots)
      : problem_(problem),
        slots_(problem.decode ? slots : 1),
        qkv_(problem.dtype, {problem.B, problem.T, channels(problem.model)}),
        z_(problem.dtype, {problem.B, problem.T, problem.model.HV * problem.model.V}),
        a_(problem.dtype, {problem.B, problem.T, problem.model.HV}),
        b_(problem.dtype, {problem.B, problem.T, problem.model.HV}),
        weight_(problem.dtype, {channels(problem.model), kWidth}),
        norm_weight_(problem.dtype, {problem.model.V}),
        A_log_(check::kF32, {problem.model.HV}),
        dt_bias_(check::kF32, {problem.model.HV}),
        out_(problem.dtype, {problem.B, problem.T, problem.model.HV, problem.model.V}),
        conv_(problem.dtype, {slots_ * problem.B, channels(problem.model), kWidth - 1}),
        pool_(check::kF32, state_shape(problem.model, slots_ * problem.B, StateLayout::kKV)) {
    uint64_t seed = 11;
    for (Buffer* buffer : {&qkv_, &z_, &a_, &b_, &norm_weight_, &conv_}) {
      fill_normal(1.0, ++seed, buffer);
    }
    fill_normal(0.5, ++seed, &weight_);
    for (int64_t h = 0; h < A_log_.size(); ++h) A_log_.set(h, h % 4 == 0 ? -20.0 : -1.0);
    pool_.fill_with(problem.initial);
  }

  std::string name() const override {
    return std::string("sluice ") + sluice_version() + ", layer";
  }
  TensorView output() const override { return out_.view(); }
  HeadMap head_map() const override { return HeadMap::kBlock; }
  StateLayout state_layout() const override { return StateLayout::kKV; }
  bool comparable() const override { return false; }
  size_t scratch_bytes() const override { return scratch_.bytes(); }

  std::string run() override {
    const LayerArgs args = arguments();
    const Result<WorkspaceSize> size =
        problem_.decode ? layer_decode_workspace(args) : layer_prefill_workspace(args);
    if (!size.ok()) return size.status.message;
    const Workspace workspace = scratch_.reserve(size.value.bytes);
    const Status status =
        problem_.decode ? layer_decode(args, workspace) : layer_prefill(args, workspace);
    return status.ok() ? std::string() : status.message;
  }

 private:
  LayerArgs arguments() {
    const ModelShape& m = problem_.model;
    const int64_t B = problem_.B;
    LayerArgs args;
    args.qkv = qkv_.view(), args.z = z_.view(), args.a = a_.view(), args.b = b_.view();
    args.conv_weight = weight_.view(), args.norm_weight = norm_weight_.view();
    args.A_log = A_log_.view(), args.dt_bias = dt_bias_.view();
    args.out = out_.view();
    args.conv_initial = args.conv_final = conv_.view().sliced(0, next_ * B, B);
    args.state.initial =
        problem_.decode ? pool_.view().sliced(0, next_ * B, B) : problem_.initial_as(kLayout);
    args.state.final = pool_.view().sliced(0, next_ * B, B);
    args.num_k_heads = m.H, args.num_v_heads = m.HV;
    args.head_k_dim = m.K, args.head_v_dim = m.V;
    args.implementation = Implementation::kCpu;
    next_ = (next_ + 1) % slots_;
    return args;
  }

  static constexpr StateLayout kLayout = StateLayout::kKV;
  const BenchProblem& problem_;
  int64_t slots_, next_ = 0;
  Buffer qkv_, z_, a_, b_, weight_, norm_weight_, A_log_, dt_bias_, out_, conv_, pool_;
  Scratch scratch_;
};

}  // namespace

std::unique_ptr<Contender> make_layer_contender(const BenchProblem& problem, int64_t slots) {
  return std::make_unique<LayerContender>(problem, slots);
}

}  // namespace sluice::tools
