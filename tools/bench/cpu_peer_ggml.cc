// Makes ggml's gated delta rule a peer, through its public C interface. ggml splits work over heads
// only, runs token by token in float32, reads key head h mod H and stores states as [V,K].
// SPDX-License-Identifier: Apache-2.0
#include <ggml-cpu.h>
#include <ggml.h>

#include <stdexcept>
#include <vector>

#include "tools/bench/cpu_contender.hpp"

namespace sluice::tools {
namespace {

class GgmlContender final : public Contender {
 public:
  GgmlContender(const BenchProblem& problem, int64_t slots, int threads, bool key_gates)
      : problem_(problem),
        key_gates_(key_gates),
        slots_(problem.decode ? slots : 1),
        states_(problem.make_pool(kFloat32, slots_ * problem.B, state_layout())),
        results_(problem.memory.tensor(kFloat32, {slots_, result_size(problem)}, 0)) {
    // Tensors lie in our memory: the context holds their descriptions only.
    const ggml_init_params init = {ggml_tensor_overhead() * 16 + ggml_graph_overhead(), nullptr,
                                   true};
    context_ = ggml_init(init);
    build_graph();
    ggml_threadpool_params pool = ggml_threadpool_params_default(threads);
    pool_ = ggml_threadpool_new(&pool);
    plan_ = ggml_graph_plan(graph_, threads, pool_);
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }
  GgmlContender(const GgmlContender&) = delete;
  GgmlContender& operator=(const GgmlContender&) = delete;
  ~GgmlContender() override {
    ggml_threadpool_free(pool_);
    ggml_free(context_);
  }

  std::string name() const override {
    return std::string("ggml ") + ggml_version() + (key_gates_ ? ", key-wise gates" : "");
  }
  HeadMap head_map() const override { return HeadMap::kCyclic; }
  StateLayout state_layout() const override { return StateLayout::kVK; }

  // The result packs o [B,T,HV,V] and the final states.
  TensorView output() const override {
    return TensorView(static_cast<const float*>(result_->data),
                      {problem_.B, problem_.T, problem_.model.HV, problem_.model.V});
  }

  void run() override {
    // ggml reads a state in one place and writes it in another: in and out
    // rotate together. Callers that copy it back pay more than is timed here.
    state_->data = states_.sliced(0, next_ * problem_.B, problem_.B).data;
    result_->data = results_.sliced(0, next_, 1).data;
    next_ = (next_ + 1) % slots_;
    if (ggml_graph_compute(graph_, &plan_) != GGML_STATUS_SUCCESS) {
      throw std::runtime_error("ggml_graph_compute");
    }
  }

  // Its threads poll for a while after a call; the next call wakes them.
  void rest() override { ggml_threadpool_pause(pool_); }

 private:
  static int64_t result_size(const BenchProblem& problem) {
    const ModelShape& m = problem.model;
    return problem.B * m.HV * m.V * (problem.T + m.K);
  }

  ggml_tensor* tensor(int64_t a, int64_t b, int64_t c, int64_t d, const TensorView& memory) {
    ggml_tensor* result = ggml_new_tensor_4d(context_, GGML_TYPE_F32, a, b, c, d);
    result->data = memory.data;
    return result;
  }

  void build_graph() {
    const ModelShape& m = problem_.model;
    const int64_t B = problem_.B, T = problem_.T;
    ggml_tensor* q = tensor(m.K, m.H, T, B, problem_.q);
    ggml_tensor* k = tensor(m.K, m.H, T, B, problem_.k);
    ggml_tensor* v = tensor(m.V, m.HV, T, B, problem_.v);
    ggml_tensor* g = key_gates_ ? tensor(m.K, m.HV, T, B, problem_.key_gate)
                                : tensor(1, m.HV, T, B, problem_.gate);
    ggml_tensor* beta = tensor(1, m.HV, T, B, problem_.beta);
    state_ = tensor(m.K, m.V, m.HV, B, states_);
    result_ = ggml_gated_delta_net(context_, q, k, v, g, beta, state_, 1);
    result_->data = results_.data;
    graph_ = ggml_new_graph(context_);
    ggml_build_forward_expand(graph_, result_);
  }

  const BenchProblem& problem_;
  bool key_gates_;
  int64_t slots_, next_ = 0;
  TensorView states_, results_;
  ggml_context* context_ = nullptr;
  ggml_tensor *state_ = nullptr, *result_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_threadpool* pool_ = nullptr;
  ggml_cplan plan_ = {};
  std::vector<uint8_t> work_;
};

}  // namespace

std::unique_ptr<Contender> make_ggml_contender(const BenchProblem& problem, int64_t slots,
                                               int threads, bool key_gates) {
  // Its states are square.
  if (!check::same_dtype(problem.dtype, check::kF32) || problem.model.K != problem.model.V) {
    return nullptr;
  }
  return std::make_unique<GgmlContender>(problem, slots, threads, key_gates);
}

}  // namespace sluice::tools
