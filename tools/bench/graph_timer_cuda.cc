// Captures and replays CUDA graphs, and times them by events.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "tools/bench/cuda_error.hpp"
#include "tools/bench/graph_timer.hpp"

namespace sluice::tools {
namespace {

class CudaGraphTimer final : public GraphTimer {
 public:
  explicit CudaGraphTimer(const std::function<void(void*)>& enqueue) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check_cuda(cudaEventCreate(&begin_), "event");
    check_cuda(cudaEventCreate(&end_), "event");
    // WHY global mode: an allocation or a wait of the library is an error then.
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "begin of capture");
    enqueue(stream_);
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "end of capture");
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(made, "graph");
    check_cuda(cudaGraphUpload(graph_, stream_), "upload of the graph");
  }
  CudaGraphTimer(const CudaGraphTimer&) = delete;
  CudaGraphTimer& operator=(const CudaGraphTimer&) = delete;
  ~CudaGraphTimer() override {
    cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(graph_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }

  double replay() override {
    check_cuda(cudaEventRecord(begin_, stream_), "event");
    check_cuda(cudaGraphLaunch(graph_, stream_), "replay");
    check_cuda(cudaEventRecord(end_, stream_), "event");
    check_cuda(cudaEventSynchronize(end_), "replay");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "event");
    return 1e-3 * static_cast<double>(ms);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<GraphTimer> capture_graph(const std::function<void(void*)>& enqueue) {
  return std::make_unique<CudaGraphTimer>(enqueue);
}

}  // namespace sluice::tools
