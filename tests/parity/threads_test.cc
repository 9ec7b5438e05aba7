// Measures that results on the CPU have the same bits for every number of threads, every order of
// tasks and every content of the workspace. Each operator runs under several executors given to
// sluice_set_executor(), among them serial ones that permute the tasks.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "parity/conv_call.hpp"
#include "parity/layer_call.hpp"
#include "parity/layer_gradient_call.hpp"
#include "parity/naming.hpp"
#include "parity/sequences.hpp"

namespace sluice::check {
namespace {

/// Tasks on `threads` threads started for the call.
void run_on_threads(void* user, int64_t count, void (*task)(void*, int64_t), void* context) {
  const int threads = *static_cast<const int*>(user);
  std::atomic<int64_t> next{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&] {
      for (int64_t t = next++; t < count; t = next++) task(context, t);
    });
  }
  for (std::thread& worker : workers) worker.join();
}

/// All tasks on this thread, in a random order.
void run_permuted(void* user, int64_t count, void (*task)(void*, int64_t), void* context) {
  Random random(*static_cast<const uint64_t*>(user));
  std::vector<int64_t> order = range(0, count);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(pick(&random, static_cast<int64_t>(i)))]);
  }
  for (const int64_t t : order) task(context, t);
}

/// Everything that one call wrote.
using Results = std::vector<Array>;

bool same_results(const Results& a, const Results& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same_bits);
}

/// One call of an operator, to be repeated.
struct Work {
  std::string name;
  std::function<Results(int workspace_fill)> run;
};
void PrintTo(const Work& work, std::ostream* out) { *out << work.name; }
std::string work_name(const ::testing::TestParamInfo<Work>& info) { return info.param.name; }

Work delta_work(const DeltaConfig& c) {
  return {c.name, [c](int fill) -> Results {
            const DeltaResult r = run_delta(c, SLUICE_IMPL_CPU, fill);
            EXPECT_EQ(r.code, SLUICE_OK) << r.message;
            return {r.o, r.initial, r.final, r.checkpoints};
          }};
}

Work layer_work(const LayerConfig& c) {
  return {c.name, [c](int fill) -> Results {
            const LayerResult r = run_layer(c, SLUICE_IMPL_CPU, fill);
            EXPECT_EQ(r.code, SLUICE_OK) << r.message;
            return {r.out, r.core, r.state_initial, r.conv_initial};
          }};
}

Work conv_work(const ConvConfig& c) {
  return {c.name, [c](int) -> Results {
            const ConvResult r = run_conv(c, SLUICE_IMPL_CPU);
            EXPECT_EQ(r.code, SLUICE_OK) << r.message;
            return {r.out, r.initial, r.final};
          }};
}

template <class Config>
std::string name_of(const Config& c) {
  return c.name;
}
std::string name_of(const LayerGradientConfig& c) { return c.layer.name; }

template <class Config>
Work gradient_work(const Config& c) {
  return {name_of(c), [c](int fill) -> Results {
            const GradientResult r = run_gradients(c, SLUICE_IMPL_CPU, fill);
            EXPECT_EQ(r.call.code, SLUICE_OK) << r.call.message;
            Results results;
            for (const auto& [name, values] : r.gradients) results.push_back(values);
            return results;
          }};
}

class Threads : public ::testing::TestWithParam<Work> {
 protected:
  void TearDown() override { sluice_set_executor(nullptr, nullptr, 0); }
};

TEST_P(Threads, CountDoesNotMatter) {
  const Results expected = GetParam().run(0xff);
  for (int threads : {1, 2, 3, 8}) {
    ASSERT_EQ(sluice_set_executor(run_on_threads, &threads, threads), SLUICE_OK);
    EXPECT_TRUE(same_results(GetParam().run(0xff), expected)) << threads << " threads";
  }
}

TEST_P(Threads, OrderDoesNotMatter) {
  const Results expected = GetParam().run(0xff);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    ASSERT_EQ(sluice_set_executor(run_permuted, &seed, 1 << (2 * seed + 1)), SLUICE_OK);
    EXPECT_TRUE(same_results(GetParam().run(0xff), expected)) << seed;
  }
}

TEST_P(Threads, WorkspaceContentDoesNotMatter) {
  const Results expected = GetParam().run(0xff);
  EXPECT_TRUE(same_results(GetParam().run(0), expected));
  EXPECT_TRUE(same_results(GetParam().run(0x7f), expected));
}

TEST_P(Threads, RepeatsAreEqual) {
  const Results expected = GetParam().run(0xff);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(same_results(GetParam().run(0xff), expected)) << i;
}

std::vector<Work> works() {
  std::vector<Work> list;
  DeltaConfig chunk{.name = "chunk_one_head", .op = SLUICE_OP_CHUNK_FORWARD, .B = 1, .T = 300};
  chunk.H = chunk.HV = 1, chunk.K = chunk.V = 128;
  list.push_back(delta_work(chunk));
  chunk.name = "chunk_grouped", chunk.H = 2, chunk.HV = 6, chunk.K = 60, chunk.V = 100;
  chunk.T = 130, chunk.B = 2;
  list.push_back(delta_work(chunk));
  chunk.name = "chunk_packed_bfloat16", chunk.packed = true,
  chunk.lengths = {200, 0, 1, 64, 65, 17};
  chunk.io = chunk.o = kBF16, chunk.checkpoint_every = 64, chunk.layout = SLUICE_STATE_VK;
  chunk.K = 64, chunk.V = 48;
  list.push_back(delta_work(chunk));
  chunk.name = "chunk_linear_attention", chunk.rule = SLUICE_RULE_LINEAR_ATTENTION;
  list.push_back(delta_work(chunk));
  for (const sluice_dtype io : {kF32, kBF16}) {
    DeltaConfig keys{.name = named("chunk_key_gates_", dtype_name(io)), .B = 2, .T = 130};
    keys.op = SLUICE_OP_CHUNK_FORWARD, keys.key_gates = true, keys.gates = GateProfile::kSpread;
    keys.io = keys.o = io, keys.H = 2, keys.HV = 4, keys.K = keys.V = 64;
    list.push_back(delta_work(keys));
  }
  DeltaConfig step{.name = "step", .B = 5, .T = 3, .H = 2, .HV = 4, .K = 64, .V = 64};
  list.push_back(delta_work(step));
  step.name = "step_one_head", step.B = 1, step.H = step.HV = 1, step.V = 256;
  list.push_back(delta_work(step));
  step.name = "step_per_token", step.B = 3, step.columns = 3, step.slots = Slots::kShared;
  step.has_final = false, step.state_writes = SLUICE_STATE_WRITE_PER_TOKEN, step.V = 32;
  step.layout = SLUICE_STATE_VK, step.num_accepted = true;
  list.push_back(delta_work(step));
  ConvConfig conv{.name = "conv", .B = 3, .T = 200, .D = 150};
  list.push_back(conv_work(conv));
  conv.name = "conv_one_channel_first", conv.channel_first = true, conv.B = 1;
  conv.form = SLUICE_CONV_STATE_RING, conv.x = conv.initial = conv.final = kBF16;
  list.push_back(conv_work(conv));
  ConvGradientConfig conv_gradients{.name = "conv_gradients", .T = 1200, .D = 300};
  list.push_back(gradient_work(conv_gradients));
  LayerGradientConfig layer_gradients;
  layer_gradients.layer.name = "layer_gradients", layer_gradients.layer.T = 600;
  list.push_back(gradient_work(layer_gradients));
  NormGradientConfig norm_gradients{.name = "norm_gradients", .shape = {150, 8, 128}};
  list.push_back(gradient_work(norm_gradients));
  LayerConfig layer{.name = "layer_prefill", .T = 80};
  list.push_back(layer_work(layer));
  layer.name = "layer_prefill_packed", layer.packed = true, layer.lengths = {70, 0, 3, 9};
  layer.packing = SLUICE_PACKING_INTERLEAVED, layer.io = layer.out = layer.core = kBF16;
  list.push_back(layer_work(layer));
  LayerConfig decode{.name = "layer_decode", .op = SLUICE_OP_LAYER_DECODE, .B = 7, .T = 2};
  list.push_back(layer_work(decode));
  decode.name = "layer_decode_key_gates", decode.key_gates = true;
  decode.packing = SLUICE_PACKING_SEPARATE;
  list.push_back(layer_work(decode));
  return list;
}
INSTANTIATE_TEST_SUITE_P(Cpu, Threads, ::testing::ValuesIn(works()), work_name);

}  // namespace
}  // namespace sluice::check
