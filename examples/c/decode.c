/* Runs one decode step of one sequence: 2 key heads, 4 value heads, head dimension 64. */
#include <sluice/sluice.h>
#include <stdio.h>
#include <stdlib.h>
#define F32(p, ...) {p, {SLUICE_DEVICE_CPU, 0}, {2, 32}, __VA_ARGS__}
static float q[128], k[128], v[256], g[4], beta[4], o[256], state[4 * 64 * 64];
int main(void) {
  sluice_recurrent_step_args a = {.struct_size = sizeof a,
      .q = F32(q, 4, {1, 1, 2, 64}, {128, 128, 64, 1}), .k = F32(k, 4, {1, 1, 2, 64}, {128, 128, 64, 1}),
      .v = F32(v, 4, {1, 1, 4, 64}, {256, 256, 64, 1}), .o = F32(o, 4, {1, 1, 4, 64}, {256, 256, 64, 1}),
      .gate = F32(g, 3, {1, 1, 4}, {4, 4, 1}), .beta = F32(beta, 3, {1, 1, 4}, {4, 4, 1}),
      .state.initial = F32(state, 4, {1, 4, 64, 64}, {16384, 4096, 64, 1})};
  for (int i = 0; i < 256; ++i) q[i % 128] = k[i % 128] = 0.125f, v[i] = 1, beta[i % 4] = 0.5f;
  size_t bytes = 0;
  int code = sluice_workspace_size(SLUICE_OP_RECURRENT_STEP, &a, &bytes);
  bytes = (bytes + 255) / 256 * 256; /* of an aligned allocation */
  sluice_workspace scratch = {aligned_alloc(256, bytes + 256), bytes};
  if (code == SLUICE_OK) code = sluice_recurrent_step(&a, scratch, NULL);
  if (code != SLUICE_OK) return puts(sluice_last_error()), code;
  return printf("o = %.6f\n", o[255]), free(scratch.data), 0;
} /* o = 0.062500; the state has been updated in place */
