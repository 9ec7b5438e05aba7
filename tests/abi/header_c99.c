/* Measures that sluice.h alone is a C99 header: this file compiles with -std=c99 -pedantic-errors.
 * It also pins the layouts that the binary interface froze. */
#include <sluice/sluice.h>

#define PIN(name, condition) typedef char name[(condition) ? 1 : -1]

PIN(tensor_size, sizeof(sluice_tensor) == 104);
PIN(tensor_shape, offsetof(sluice_tensor, shape) == 24);
PIN(tensor_stride, offsetof(sluice_tensor, stride) == 64);
PIN(size_first_chunk, offsetof(sluice_chunk_forward_args, struct_size) == 0);
PIN(size_first_backward, offsetof(sluice_chunk_backward_args, struct_size) == 0);
PIN(size_first_summary, offsetof(sluice_chunk_summary_args, struct_size) == 0);
PIN(size_first_fold, offsetof(sluice_state_fold_args, struct_size) == 0);
PIN(size_first_conv_backward, offsetof(sluice_causal_conv1d_backward_args, struct_size) == 0);
PIN(size_first_norm_backward, offsetof(sluice_gated_rms_norm_backward_args, struct_size) == 0);
PIN(size_first_layer_backward, offsetof(sluice_layer_backward_args, struct_size) == 0);
PIN(size_first_stage, offsetof(sluice_chunk_stage_args, struct_size) == 0);
PIN(size_first_step, offsetof(sluice_recurrent_step_args, struct_size) == 0);
PIN(size_first_conv, offsetof(sluice_causal_conv1d_args, struct_size) == 0);
PIN(size_first_norm, offsetof(sluice_gated_rms_norm_args, struct_size) == 0);
PIN(size_first_layer, offsetof(sluice_layer_args, struct_size) == 0);

int sluice_header_is_c99(void) { return SLUICE_OK; }
