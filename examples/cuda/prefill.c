/* Runs a prefill on a GPU: two packed sequences in bfloat16 on a stream of its own. */
#include <cuda_runtime_api.h>
#include <sluice/sluice.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 200, H = 2, HV = 4, D = 128, N = 2 }; /* K = V = D */

static void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  printf("%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

/* Device memory with these bytes. */
static void *upload(const void *from, size_t bytes) {
  void *to = NULL;
  check(cudaMalloc(&to, bytes), "cudaMalloc");
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
  return to;
}

/* Memory for `count` numbers of two bytes that are all `bits`: 0x3dcc is 0.1 in bfloat16. */
static void *halves(size_t count, uint16_t bits) {
  uint16_t *host = malloc(2 * count);
  for (size_t i = 0; i < count; ++i) host[i] = bits;
  void *device = upload(host, 2 * count);
  free(host);
  return device;
}

/* A dense view on GPU 0; the types are DLPack's: {4, 16} is bfloat16, {2, 32} float32. */
static sluice_tensor view(void *data, sluice_dtype type, int rank, const int64_t *shape) {
  sluice_tensor t = {.data = data, .device = {SLUICE_DEVICE_CUDA, 0}, .dtype = type,
                     .rank = (uint16_t)rank};
  int64_t step = 1;
  for (int axis = rank; axis-- > 0; step *= shape[axis]) {
    t.shape[axis] = shape[axis];
    t.stride[axis] = step;
  }
  return t;
}

int main(void) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    puts("no GPU here");
    return 77;
  }
  const sluice_dtype bf16 = {4, 16}, f32 = {2, 32}, i32 = {0, 32};
  const int64_t keys[] = {1, T, H, D}, values[] = {1, T, HV, D}, gates[] = {1, T, HV};
  const int64_t states[] = {N, HV, D, D}, offsets_shape[] = {N + 1};
  const int32_t offsets[] = {0, 60, T};
  void *state = NULL, *o = halves((size_t)T * HV * D, 0);
  check(cudaMalloc(&state, sizeof(float) * N * HV * D * D), "cudaMalloc");
  sluice_chunk_forward_args a = {
      .struct_size = sizeof a,
      .q = view(halves((size_t)T * H * D, 0x3dcc), bf16, 4, keys),
      .k = view(halves((size_t)T * H * D, 0x3dcc), bf16, 4, keys),
      .v = view(halves((size_t)T * HV * D, 0x3f80), bf16, 4, values),
      .gate = view(halves((size_t)T * HV, 0xbd4c), bf16, 3, gates), /* -0.05 */
      .beta = view(halves((size_t)T * HV, 0x3f00), bf16, 3, gates), /* 0.5 */
      .o = view(o, bf16, 4, values),
      .cu_seqlens = view(upload(offsets, sizeof offsets), i32, 1, offsets_shape),
      .state.final = view(state, f32, 4, states),
      .options.qk_norm = SLUICE_QK_NORM_L2};

  size_t need = 0;
  void *scratch = NULL;
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  if (sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &a, &need) != SLUICE_OK) {
    return puts(sluice_last_error()), 1;
  }
  check(cudaMalloc(&scratch, need), "cudaMalloc");
  if (sluice_chunk_forward(&a, (sluice_workspace){scratch, need}, stream) != SLUICE_OK) {
    return puts(sluice_last_error()), 1;
  }
  uint16_t last = 0; /* the call has returned; the stream says when it is done */
  check(cudaMemcpyAsync(&last, (uint16_t *)o + (size_t)T * HV * D - 1, 2, cudaMemcpyDeviceToHost,
                        stream), "copy from the GPU");
  check(cudaStreamSynchronize(stream), "kernels");
  printf("%s: o = 0x%04x\n", sluice_last_kernel(), last);
  return 0;
}
