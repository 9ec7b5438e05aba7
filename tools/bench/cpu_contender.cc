// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cpu_contender.hpp"

#include <cstring>

namespace sluice::tools {
namespace {

class SluiceContender final : public Contender {
 public:
  SluiceContender(const BenchProblem& problem, int64_t slots)
      : problem_(problem),
        slots_(slots),
        o_(problem.dtype, {problem.B, problem.T, problem.model.HV, problem.model.V}),
        pool_(testing::kF32,
              {slots * problem.B, problem.model.HV, problem.model.K, problem.model.V}) {
    const auto bytes = static_cast<size_t>(problem.initial.size()) * sizeof(float);
    for (int64_t slot = 0; slot < slots; ++slot) {
      std::memcpy(pool_.floats() + slot * problem.initial.size(), problem.initial.floats(), bytes);
    }
  }

  std::string name() const override { return std::string("sluice ") + sluice_version(); }
  TensorView output() const override { return o_.view(); }
  HeadMap head_map() const override { return HeadMap::kBlock; }
  StateLayout state_layout() const override { return StateLayout::kKV; }

  std::string run() override {
    const Status status = problem_.decode() ? step() : prefill();
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
    args->implementation = Implementation::kCpu;
  }

  Status prefill() {
    ChunkForwardArgs args;
    fill(&args);
    args.state.initial = problem_.initial.view();
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
  int64_t slots_, next_ = 0;
  Buffer o_, pool_;
  HostWorkspace memory_;
};

}  // namespace

std::unique_ptr<Contender> make_sluice_contender(const BenchProblem& problem, int64_t slots) {
  return std::make_unique<SluiceContender>(problem, slots);
}

}  // namespace sluice::tools
