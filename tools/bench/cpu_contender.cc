// Makes Sluice a contender of `sluice bench cpu`.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_contender.hpp"

namespace sluice::tools {
namespace {

class SluiceContender : public Contender {
 public:
  SluiceContender(const BenchProblem& problem, StateForm form, int64_t slots)
      : problem_(problem),
        form_(form),
        slots_(slots),
        gate_(problem.gate.view()),
        o_(problem.dtype, {problem.B, problem.T, problem.model.HV, problem.model.V}),
        pool_(form.dtype, state_shape(problem.model, slots * problem.B, form.layout)) {
    pool_.fill_with(problem.initial);
  }

  std::string name() const override {
    const bool plain = form_.layout == StateLayout::kKV && form_.dtype.bits == 32;
    const std::string type = check::dtype_name(form_.dtype);
    const std::string form =
        plain ? "" : " " + type + (form_.layout == StateLayout::kKV ? " kv" : " vk");
    return std::string("sluice ") + sluice_version() + form;
  }
  TensorView output() const override { return o_.view(); }
  HeadMap head_map() const override { return HeadMap::kBlock; }
  StateLayout state_layout() const override { return form_.layout; }
  int64_t state_number_bytes() const override { return form_.dtype.bits / 8; }
  size_t scratch_bytes() const override { return scratch_.bytes(); }

  std::string run() override {
    const Status status = problem_.decode ? step() : prefill();
    return status.ok() ? std::string() : status.message;
  }

 protected:
  void set_gate(TensorView gate) { gate_ = gate; }

 private:
  template <class Args>
  void fill(Args* args) const {
    args->q = problem_.q.view();
    args->k = problem_.k.view();
    args->v = problem_.v.view();
    args->gate = gate_;
    args->beta = problem_.beta.view();
    args->o = o_.view();
    args->state.layout = form_.layout;
    args->implementation = Implementation::kCpu;
  }

  Status prefill() {
    ChunkForwardArgs args;
    fill(&args);
    args.state.initial = problem_.initial_as(form_.layout);
    args.state.final = pool_.view();
    const Result<WorkspaceSize> size = workspace_size(args);
    return size.ok() ? chunk_forward(args, scratch_.reserve(size.value.bytes)) : size.status;
  }

  Status step() {
    RecurrentStepArgs args;
    fill(&args);
    args.state.initial = pool_.view().sliced(0, next_ * problem_.B, problem_.B);
    next_ = (next_ + 1) % slots_;
    const Result<WorkspaceSize> size = workspace_size(args);
    return size.ok() ? recurrent_step(args, scratch_.reserve(size.value.bytes)) : size.status;
  }

  const BenchProblem& problem_;
  StateForm form_;
  int64_t slots_, next_ = 0;
  TensorView gate_;
  Buffer o_, pool_;
  Scratch scratch_;
};

class KeyGatesContender final : public SluiceContender {
 public:
  KeyGatesContender(const BenchProblem& problem, int64_t slots)
      : SluiceContender(problem, StateForm{}, slots) {
    const ModelShape& m = problem.model;
    set_gate(TensorView(problem.key_gate.floats(), kFloat32, {problem.B, problem.T, m.HV, m.K}));
  }
  std::string name() const override { return SluiceContender::name() + ", key-wise gates"; }
};

/// Between its run()s the library's own pool is back.
class OneThreadContender final : public Contender {
 public:
  OneThreadContender(const BenchProblem& problem, int64_t slots)
      : inner_(problem, StateForm{}, slots) {}

  std::string name() const override { return inner_.name() + ", 1 thread"; }
  TensorView output() const override { return inner_.output(); }
  HeadMap head_map() const override { return inner_.head_map(); }
  StateLayout state_layout() const override { return inner_.state_layout(); }
  size_t scratch_bytes() const override { return inner_.scratch_bytes(); }

  std::string run() override {
    if (sluice_set_executor(run_in_turn, nullptr, 1) != SLUICE_OK) return sluice_last_error();
    std::string failure = inner_.run();
    sluice_set_executor(nullptr, nullptr, 0);
    return failure;
  }

 private:
  static void run_in_turn(void*, int64_t count, void (*task)(void*, int64_t), void* context) {
    for (int64_t i = 0; i < count; ++i) task(context, i);
  }

  SluiceContender inner_;
};

}  // namespace

Workspace Scratch::reserve(size_t bytes) {
  if (memory_ == nullptr || bytes > bytes_) {
    memory_ = std::make_unique<Buffer>(check::kF32,
                                       std::vector<int64_t>{static_cast<int64_t>(bytes / 4 + 1)});
    bytes_ = bytes;
  }
  return {memory_->view().data, bytes_};
}

std::unique_ptr<Contender> make_one_thread_contender(const BenchProblem& problem, int64_t slots) {
  return std::make_unique<OneThreadContender>(problem, slots);
}

std::unique_ptr<Contender> make_key_gates_contender(const BenchProblem& problem, int64_t slots) {
  return std::make_unique<KeyGatesContender>(problem, slots);
}

std::unique_ptr<Contender> make_sluice_contender(const BenchProblem& problem, StateForm form,
                                                 int64_t slots) {
  return std::make_unique<SluiceContender>(problem, form, slots);
}

}  // namespace sluice::tools
