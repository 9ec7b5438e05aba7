// Makes the fused delta rule of ik_llama.cpp a peer: its iqk_fused_delta_net, called as its graph
// does. Token by token in float32, states [K,V], updated in place where they are read. q and k come
// as [B,H,T,K], which its callers produce by a copy that is not timed; beta comes as a logit. It
// brings no threads of its own, so it runs on one.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "tools/bench/cpu_contender.hpp"

// As ggml/src/iqk/iqk_mul_mat.h declares it. repeat_type 0: value head h reads key head h / r.
extern "C" bool iqk_fused_delta_net(int head_dim, int n_heads, int gqa_ratio, int repeat_type,
                                    int n_tokens, int n_seqs, size_t v_token, size_t v_head,
                                    size_t v_sequence, const float* q, const float* k,
                                    const float* v, const float* g, const float* beta,
                                    const float* state_in, float* out, float* state_out,
                                    float* saved_steps, int state_step_stride, int thread,
                                    int threads);

namespace sluice::tools {
namespace {

float* floats(const TensorView& tensor) { return static_cast<float*>(tensor.data); }

// [B,T,H,K] -> [B,H,T,K].
void put_heads_first(const TensorView& from, const BenchProblem& problem, const TensorView& to) {
  const int64_t B = problem.B, T = problem.T, H = problem.model.H, K = problem.model.K;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t h = 0; h < H; ++h) {
        std::memcpy(floats(to) + ((b * H + h) * T + t) * K,
                    floats(from) + ((b * T + t) * H + h) * K,
                    static_cast<size_t>(K) * sizeof(float));
      }
    }
  }
}

class IkContender final : public Contender {
 public:
  IkContender(const BenchProblem& problem, int64_t slots)
      : problem_(problem),
        slots_(problem.decode ? slots : 1),
        q_(problem.memory.tensor(kFloat32, {problem.B, problem.model.H, problem.T, problem.model.K},
                                 0)),
        k_(problem.memory.tensor(kFloat32, {problem.B, problem.model.H, problem.T, problem.model.K},
                                 0)),
        logits_(problem.memory.tensor(kFloat32, {problem.B, problem.T, problem.model.HV}, 0)),
        o_(problem.make_output(kFloat32)),
        pool_(problem.make_pool(kFloat32, slots_ * problem.B, StateLayout::kKV)) {
    put_heads_first(problem.q, problem, q_);
    put_heads_first(problem.k, problem, k_);
    for (int64_t i = 0; i < problem.B * problem.T * problem.model.HV; ++i) {
      const double beta = check::load_element(problem.beta, i);
      check::store_element(logits_, i, std::log(beta / (1.0 - beta)));
    }
  }

  std::string name() const override { return "ik_llama fused"; }
  TensorView output() const override { return o_; }

  void run() override {
    const ModelShape& m = problem_.model;
    float* const state = floats(pool_.sliced(0, next_ * problem_.B, problem_.B));
    next_ = (next_ + 1) % slots_;
    const auto V = static_cast<size_t>(m.V), row = static_cast<size_t>(m.HV * m.V);
    const bool done = iqk_fused_delta_net(
        static_cast<int>(m.K), static_cast<int>(m.HV), static_cast<int>(m.HV / m.H), 0,
        static_cast<int>(problem_.T), static_cast<int>(problem_.B), row, V,
        row * static_cast<size_t>(problem_.T), floats(q_), floats(k_), floats(problem_.v),
        floats(problem_.gate), floats(logits_), problem_.decode ? state : floats(problem_.initial),
        floats(o_), state, nullptr, 0, 0, 1);
    if (!done) throw std::runtime_error("iqk_fused_delta_net");
  }

 private:
  const BenchProblem& problem_;
  int64_t slots_, next_ = 0;
  TensorView q_, k_, logits_, o_, pool_;
};

}  // namespace

std::unique_ptr<Contender> make_ik_contender(const BenchProblem& problem, int64_t slots,
                                             int threads) {
  const ModelShape& m = problem.model;
  const bool sizes = m.K == m.V && (m.K == 64 || m.K == 128);
  if (threads != 1 || !sizes || !check::same_dtype(problem.dtype, check::kF32)) return nullptr;
  return std::make_unique<IkContender>(problem, slots);
}

}  // namespace sluice::tools
