/* One decode step of one sequence: 2 key heads, 4 value heads, head dimension 64. */
/* [readme-c] */
#include <sluice/sluice.h>
#include <stdio.h>
#define F32(p, ...) {p, {SLUICE_DEVICE_CPU, 0}, {2, 32}, __VA_ARGS__}
static float q[128], k[128], v[256], g[4], beta[4], o[256], state[4 * 64 * 64];
static float scratch[65536] __attribute__((aligned(256)));
int main(void) {
  sluice_recurrent_step_args a = {.struct_size = sizeof a,
      .q = F32(q, 4, {1, 1, 2, 64}, {128, 128, 64, 1}), .k = F32(k, 4, {1, 1, 2, 64}, {128, 128, 64, 1}),
      .v = F32(v, 4, {1, 1, 4, 64}, {256, 256, 64, 1}), .o = F32(o, 4, {1, 1, 4, 64}, {256, 256, 64, 1}),
      .gate = F32(g, 3, {1, 1, 4}, {4, 4, 1}), .beta = F32(beta, 3, {1, 1, 4}, {4, 4, 1}),
      .state.initial = F32(state, 4, {1, 4, 64, 64}, {16384, 4096, 64, 1})};
  for (int i = 0; i < 256; ++i) q[i % 128] = k[i % 128] = 0.125f, v[i] = 1, beta[i % 4] = 0.5f;
  int code = sluice_recurrent_step(&a, (sluice_workspace){scratch, sizeof scratch}, NULL);
  return printf("%s %s o = %.6f\n", sluice_status_name(code), sluice_last_error(), o[255]), code;
} /* the state has been updated in place */
/* [readme-c] */
