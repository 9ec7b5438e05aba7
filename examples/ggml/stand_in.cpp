// Stands in for CUDA and for ggml's CUDA backend where there is no GPU: a device "CUDA0" that is ggml's CPU
// backend, and the calls of CUDA's runtime that the adaptor makes, which do nothing and capture nothing. So
// check_cuda can run which nodes Sluice takes, where their states go, and what is rounded; not streams,
// events and graphs. The adaptor is built with SLUICE_GGML_STAND_IN then.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <ggml-backend-impl.h>
#include <ggml-cpu.h>

#include <cstdlib>
#include <cstring>

extern "C" {

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaErrorNotSupported;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "no CUDA"; }

}  // extern "C"

namespace {

ggml_backend_device device;
ggml_backend_reg registry;

ggml_backend_dev_t cpu() { return ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0); }

ggml_backend_t init_backend(ggml_backend_dev_t, const char* parameters) {
  ggml_backend_t made = cpu()->iface.init_backend(cpu(), parameters);
  made->device = &device;
  made->iface.event_record = [](ggml_backend_t, ggml_backend_event_t) {};
  made->iface.event_wait = [](ggml_backend_t, ggml_backend_event_t) {};
  return made;
}

/// Before main, as ggml registers backends that it is built with.
const bool registered = [] {
  device = *cpu();
  device.reg = &registry;
  device.iface.get_name = [](ggml_backend_dev_t) { return "CUDA0"; };
  device.iface.get_props = [](ggml_backend_dev_t, ggml_backend_dev_props* out) {
    std::memset(out, 0, sizeof *out);
    out->name = "CUDA0";
    out->caps.events = true;
  };
  device.iface.init_backend = init_backend;
  device.iface.event_new = [](ggml_backend_dev_t self) {
    return new ggml_backend_event{self, nullptr};
  };
  device.iface.event_free = [](ggml_backend_dev_t, ggml_backend_event_t event) { delete event; };
  registry.api_version = GGML_BACKEND_API_VERSION;
  registry.iface.get_name = [](ggml_backend_reg_t) { return "CUDA"; };
  registry.iface.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };
  registry.iface.get_device = [](ggml_backend_reg_t, size_t) { return &device; };
  ggml_backend_register(&registry);
  return true;
}();

}  // namespace
