// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_contender.hpp"

namespace sluice::tools {
namespace {

class SluiceContender final : public Contender {
 public:
  SluiceContender(const BenchProblem& problem, StateForm form, int64_t slots)
      : problem_(problem),
        form_(form),
        slots_(slots),
        o_(problem.dtype, {problem.B, problem.T, problem.model.HV, problem.model.V}),
        pool_(form.dtype, state_shape(problem.model, slots * problem.B, form.layout)) {
    const int64_t size = problem.initial.size();
    for (int64_t i = 0; i < pool_.size(); ++i) pool_.set(i, problem.initial.get(i % size));
  }

  std::string name() const override {
    const bool plain = form_.layout == StateLayout::kKV && form_.dtype.bits == 32;
    const std::string type = testing::dtype_name(form_.dtype);
    const std::string form =
        plain ? "" : " " + type + (form_.layout == StateLayout::kKV ? " kv" : " vk");
    return std::string("sluice ") + sluice_version() + form;
  }
  TensorView output() const override { return o_.view(); }
  HeadMap head_map() const override { return HeadMap::kBlock; }
  StateLayout state_layout() const override { return form_.layout; }
  int64_t state_number_bytes() const override { return form_.dtype.bits / 8; }

  std::string run() override {
    const Status status = problem_.decode ? step() : prefill();
    return status.ok() ? std::string() : status.message;
  }

 private:
  template <class Args>
  void fill(Args* args) const {
    args->q = problem_.q.view();
    args->k = problem_.k.view();
    args->v = problem_.v.view();
    args->gate = problem_.gate.view();
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
    return size.ok() ? chunk_forward(args, memory_.reserve(size.value.bytes)) : size.status;
  }

  Status step() {
    RecurrentStepArgs args;
    fill(&args);
    args.state.initial = pool_.view().sliced(0, next_ * problem_.B, problem_.B);
    next_ = (next_ + 1) % slots_;
    const Result<WorkspaceSize> size = workspace_size(args);
    return size.ok() ? recurrent_step(args, memory_.reserve(size.value.bytes)) : size.status;
  }

  const BenchProblem& problem_;
  StateForm form_;
  int64_t slots_, next_ = 0;
  Buffer o_, pool_;
  HostWorkspace memory_;
};

}  // namespace

std::unique_ptr<Contender> make_sluice_contender(const BenchProblem& problem, StateForm form,
                                                 int64_t slots) {
  return std::make_unique<SluiceContender>(problem, form, slots);
}

}  // namespace sluice::tools
