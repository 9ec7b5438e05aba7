// Captures a decode step of a batch in a CUDA graph and replays it, with states in a pool of slots.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <sluice/sluice.hpp>
#include <vector>

namespace {

constexpr int64_t B = 8, H = 16, HV = 32, D = 128, kSlots = 20;  // K = V = D
constexpr int kTokens = 100;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void* zeros(size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  check(cudaMemset(memory, 0, bytes), "cudaMemset");
  return memory;
}

sluice::TensorView view(sluice::DType type, std::initializer_list<int64_t> shape) {
  size_t bytes = type.bits / 8;
  for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
  return {zeros(bytes), type, shape, sluice::cuda_device()};
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no GPU here");
    return 77;
  }
  using namespace sluice;
  // The model writes these before every step; here they stay zeros.
  RecurrentStepArgs args;
  args.q = view(kBFloat16, {B, 1, H, D});
  args.k = view(kBFloat16, {B, 1, H, D});
  args.v = view(kBFloat16, {B, 1, HV, D});
  args.gate = view(kBFloat16, {B, 1, HV});
  args.beta = view(kBFloat16, {B, 1, HV});
  args.o = view(kBFloat16, {B, 1, HV, D});
  args.A_log = view(kFloat32, {HV});
  args.dt_bias = view(kFloat32, {HV});
  args.gate_space = GateSpace::kRaw;
  args.beta_space = BetaSpace::kLogit;
  args.qk_norm = QkNorm::kL2;
  args.state.initial = view(kFloat32, {kSlots, HV, D, D});  // written in place
  args.state.read_slots = view(kInt32, {B});

  const auto size = workspace_size(args);
  if (!size.ok()) return std::puts(size.status.message), 1;
  const Workspace scratch{zeros(size.value.bytes), size.value.bytes};
  // Kernels are loaded now, so that the capture does not do it.
  if (sluice_warm_up(cuda_device()) != SLUICE_OK) return std::puts(sluice_last_error()), 1;

  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  const Status status = recurrent_step(args, scratch, stream);
  check(cudaStreamEndCapture(stream, &graph), "end of the capture");
  if (!status.ok()) return std::puts(status.message), 1;
  check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");

  std::vector<int32_t> slots{7, 3, 0, 19, 4, 11, 2, 8};
  for (int token = 0; token < kTokens; ++token) {
    if (token == 50) slots[2] = -1;  // that sequence has ended: its row is padding from now on
    check(cudaMemcpyAsync(args.state.read_slots.data, slots.data(), B * sizeof(int32_t),
                          cudaMemcpyHostToDevice, stream),
          "slots");
    check(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
  }
  check(cudaStreamSynchronize(stream), "kernels");
  std::printf("%d tokens of %d sequences, %s\n", kTokens, static_cast<int>(B),
              sluice_last_kernel());
  return 0;
}
