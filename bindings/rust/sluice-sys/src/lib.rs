// Declares the C interface of Sluice, as include/sluice/sluice.h does: its comments are the contract. Made by
// bindings/rust/generate.py; nobody edits it.
// SPDX-License-Identifier: Apache-2.0
#![allow(non_camel_case_types, non_snake_case)]

use std::os::raw::{c_char, c_int, c_void};

pub const SLUICE_DEVICE_CPU: i32 = 1;
pub const SLUICE_DEVICE_CUDA: i32 = 2;
pub const SLUICE_MAX_RANK: usize = 5;
pub const SLUICE_ABI_VERSION: u32 = 0;
pub const SLUICE_OK: i32 = 0;
pub const SLUICE_INVALID_ARGUMENT: i32 = 1;
pub const SLUICE_UNSUPPORTED: i32 = 2;
pub const SLUICE_WORKSPACE_TOO_SMALL: i32 = 3;
pub const SLUICE_DEVICE_ERROR: i32 = 4;
pub const SLUICE_INTERNAL: i32 = 5;
pub const SLUICE_OP_CHUNK_FORWARD: i32 = 0;
pub const SLUICE_OP_RECURRENT_STEP: i32 = 1;
pub const SLUICE_OP_CAUSAL_CONV1D: i32 = 2;
pub const SLUICE_OP_GATED_RMS_NORM: i32 = 3;
pub const SLUICE_OP_LAYER_PREFILL: i32 = 4;
pub const SLUICE_OP_LAYER_DECODE: i32 = 5;
pub const SLUICE_OP_CHUNK_STAGE: i32 = 6;
pub const SLUICE_OP_CHUNK_BACKWARD: i32 = 7;
pub const SLUICE_OP_CHUNK_SUMMARY: i32 = 8;
pub const SLUICE_OP_STATE_FOLD: i32 = 9;
pub const SLUICE_OP_CAUSAL_CONV1D_BACKWARD: i32 = 10;
pub const SLUICE_OP_GATED_RMS_NORM_BACKWARD: i32 = 11;
pub const SLUICE_OP_LAYER_BACKWARD: i32 = 12;
pub const SLUICE_OP_COUNT: i32 = 13;
pub const SLUICE_IMPL_AUTO: i32 = 0;
pub const SLUICE_IMPL_REFERENCE: i32 = 1;
pub const SLUICE_IMPL_REFERENCE_CHUNKED: i32 = 2;
pub const SLUICE_IMPL_CPU: i32 = 3;
pub const SLUICE_IMPL_CUDA: i32 = 4;
pub const SLUICE_GATE_LOG: i32 = 0;
pub const SLUICE_GATE_LINEAR: i32 = 1;
pub const SLUICE_GATE_RAW: i32 = 2;
pub const SLUICE_GATE_RAW_BOUNDED: i32 = 3;
pub const SLUICE_BETA_VALUE: i32 = 0;
pub const SLUICE_BETA_LOGIT: i32 = 1;
pub const SLUICE_EIGENVALUES_POSITIVE: i32 = 0;
pub const SLUICE_EIGENVALUES_NEGATIVE: i32 = 1;
pub const SLUICE_QK_NORM_NONE: i32 = 0;
pub const SLUICE_QK_NORM_L2: i32 = 1;
pub const SLUICE_SCALE_DEFAULT: i32 = 0;
pub const SLUICE_SCALE_VALUE: i32 = 1;
pub const SLUICE_HEAD_MAP_BLOCK: i32 = 0;
pub const SLUICE_HEAD_MAP_CYCLIC: i32 = 1;
pub const SLUICE_STATE_KV: i32 = 0;
pub const SLUICE_STATE_VK: i32 = 1;
pub const SLUICE_RULE_GATED_DELTA: i32 = 0;
pub const SLUICE_RULE_LINEAR_ATTENTION: i32 = 1;
pub const SLUICE_STAGE_CHUNK_CUMSUM: i32 = 0;
pub const SLUICE_STAGE_SCALED_DOT_KKT: i32 = 1;
pub const SLUICE_STAGE_SOLVE_TRIL: i32 = 2;
pub const SLUICE_STAGE_WY_FAST: i32 = 3;
pub const SLUICE_STAGE_CHUNK_H: i32 = 4;
pub const SLUICE_STAGE_CHUNK_O: i32 = 5;
pub const SLUICE_STAGE_CUMSUM_KKT: i32 = 6;
pub const SLUICE_STAGE_SOLVE_WY: i32 = 7;
pub const SLUICE_DIRECTION_FORWARD: i32 = 0;
pub const SLUICE_DIRECTION_REVERSE: i32 = 1;
pub const SLUICE_TRIANGLE_LOWER: i32 = 0;
pub const SLUICE_TRIANGLE_UPPER: i32 = 1;
pub const SLUICE_MATRICES_CHUNKS: i32 = 0;
pub const SLUICE_MATRICES_BATCHED: i32 = 1;
pub const SLUICE_SPLIT_AUTO: i32 = 0;
pub const SLUICE_SPLIT_NEVER: i32 = 1;
pub const SLUICE_SPLIT_COLUMNS: i32 = 2;
pub const SLUICE_SPLIT_SEGMENTS: i32 = 3;
pub const SLUICE_SPLIT_LENGTH: i32 = 4;
pub const SLUICE_HISTORY_AUTO: i32 = 0;
pub const SLUICE_HISTORY_STRICT: i32 = 1;
pub const SLUICE_HISTORY_FORGET: i32 = 2;
pub const SLUICE_STATE_WRITE_LAST: i32 = 0;
pub const SLUICE_STATE_WRITE_PER_TOKEN: i32 = 1;
pub const SLUICE_STATE_WRITE_NONE: i32 = 2;
pub const SLUICE_ACTIVATION_NONE: i32 = 0;
pub const SLUICE_ACTIVATION_SILU: i32 = 1;
pub const SLUICE_ACTIVATION_SIGMOID: i32 = 2;
pub const SLUICE_CONV_STATE_SHIFT: i32 = 0;
pub const SLUICE_CONV_STATE_RING: i32 = 1;
pub const SLUICE_NORM_ROUND_ONCE: i32 = 0;
pub const SLUICE_NORM_ROUND_HF: i32 = 1;
pub const SLUICE_NORM_ROUND_INPUT: i32 = 2;
pub const SLUICE_PACKING_FLAT: i32 = 0;
pub const SLUICE_PACKING_INTERLEAVED: i32 = 1;
pub const SLUICE_PACKING_SEPARATE: i32 = 2;
pub const SLUICE_RING_FOLD_AUTO: i32 = 0;
pub const SLUICE_RING_FOLD_ALWAYS: i32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_dtype {
    pub code: u8,
    pub bits: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_device {
    pub type_: i32,
    pub index: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_tensor {
    pub data: *mut c_void,
    pub device: sluice_device,
    pub dtype: sluice_dtype,
    pub rank: u16,
    pub shape: [i64; SLUICE_MAX_RANK],
    pub stride: [i64; SLUICE_MAX_RANK],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_workspace {
    pub data: *mut c_void,
    pub size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_state_io {
    pub initial: sluice_tensor,
    pub final_: sluice_tensor,
    pub layout: i32,
    pub reserved: i32,
    pub pad_below: i64,
    pub read_slots: sluice_tensor,
    pub write_slots: sluice_tensor,
    pub has_initial_state: sluice_tensor,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_delta_options {
    pub scale: f64,
    pub l2norm_eps: f64,
    pub gate_lower_bound: f64,
    pub scale_mode: i32,
    pub gate_space: i32,
    pub beta_space: i32,
    pub eigenvalues: i32,
    pub qk_norm: i32,
    pub head_map: i32,
    pub rule: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_chunk_forward_args {
    pub struct_size: usize,
    pub q: sluice_tensor,
    pub k: sluice_tensor,
    pub v: sluice_tensor,
    pub gate: sluice_tensor,
    pub beta: sluice_tensor,
    pub o: sluice_tensor,
    pub A_log: sluice_tensor,
    pub dt_bias: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub state: sluice_state_io,
    pub checkpoints: sluice_tensor,
    pub checkpoint_slots: sluice_tensor,
    pub checkpoint_every: i64,
    pub options: sluice_delta_options,
    pub implementation: i32,
    pub split: i32,
    pub split_value: i32,
    pub history: i32,
    pub max_tokens: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_replay_ring {
    pub k: sluice_tensor,
    pub delta: sluice_tensor,
    pub decay: sluice_tensor,
    pub position: sluice_tensor,
    pub checkpoint: sluice_tensor,
    pub next_checkpoint: sluice_tensor,
    pub fold: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_recurrent_step_args {
    pub struct_size: usize,
    pub q: sluice_tensor,
    pub k: sluice_tensor,
    pub v: sluice_tensor,
    pub gate: sluice_tensor,
    pub beta: sluice_tensor,
    pub o: sluice_tensor,
    pub A_log: sluice_tensor,
    pub dt_bias: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub num_accepted: sluice_tensor,
    pub state: sluice_state_io,
    pub max_tokens: i64,
    pub options: sluice_delta_options,
    pub state_writes: i32,
    pub implementation: i32,
    pub ring: sluice_replay_ring,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_chunk_stage_args {
    pub struct_size: usize,
    pub q: sluice_tensor,
    pub k: sluice_tensor,
    pub v: sluice_tensor,
    pub gate: sluice_tensor,
    pub beta: sluice_tensor,
    pub g_cumsum: sluice_tensor,
    pub A: sluice_tensor,
    pub A_inverse: sluice_tensor,
    pub w: sluice_tensor,
    pub u: sluice_tensor,
    pub v_new: sluice_tensor,
    pub h: sluice_tensor,
    pub o: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub state: sluice_state_io,
    pub scale: f64,
    pub scale_mode: i32,
    pub stage: i32,
    pub chunk_size: i32,
    pub rule: i32,
    pub head_map: i32,
    pub direction: i32,
    pub triangle: i32,
    pub matrices: i32,
    pub implementation: i32,
    pub gate_space: i32,
    pub gate_lower_bound: f64,
    pub A_log: sluice_tensor,
    pub dt_bias: sluice_tensor,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_chunk_backward_args {
    pub struct_size: usize,
    pub q: sluice_tensor,
    pub k: sluice_tensor,
    pub v: sluice_tensor,
    pub gate: sluice_tensor,
    pub beta: sluice_tensor,
    pub A_log: sluice_tensor,
    pub dt_bias: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub initial: sluice_tensor,
    pub d_o: sluice_tensor,
    pub d_final: sluice_tensor,
    pub dq: sluice_tensor,
    pub dk: sluice_tensor,
    pub dv: sluice_tensor,
    pub dgate: sluice_tensor,
    pub dbeta: sluice_tensor,
    pub dA_log: sluice_tensor,
    pub ddt_bias: sluice_tensor,
    pub dinitial: sluice_tensor,
    pub options: sluice_delta_options,
    pub state_layout: i32,
    pub implementation: i32,
    pub split: i32,
    pub split_value: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_chunk_summary_args {
    pub struct_size: usize,
    pub q: sluice_tensor,
    pub k: sluice_tensor,
    pub v: sluice_tensor,
    pub gate: sluice_tensor,
    pub beta: sluice_tensor,
    pub d_o: sluice_tensor,
    pub A_log: sluice_tensor,
    pub dt_bias: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub wanted: sluice_tensor,
    pub transition: sluice_tensor,
    pub addend: sluice_tensor,
    pub forgotten: sluice_tensor,
    pub options: sluice_delta_options,
    pub direction: i32,
    pub history: i32,
    pub implementation: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_state_fold_args {
    pub struct_size: usize,
    pub transition: sluice_tensor,
    pub addend: sluice_tensor,
    pub forgotten: sluice_tensor,
    pub cu_chains: sluice_tensor,
    pub route_pieces: sluice_tensor,
    pub route_states: sluice_tensor,
    pub initial: sluice_tensor,
    pub entering: sluice_tensor,
    pub final_: sluice_tensor,
    pub direction: i32,
    pub state_layout: i32,
    pub implementation: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_conv_state_io {
    pub initial: sluice_tensor,
    pub final_: sluice_tensor,
    pub read_slots: sluice_tensor,
    pub write_slots: sluice_tensor,
    pub has_initial_state: sluice_tensor,
    pub num_accepted: sluice_tensor,
    pub ring_position: sluice_tensor,
    pub pad_below: i64,
    pub form: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_causal_conv1d_args {
    pub struct_size: usize,
    pub x: sluice_tensor,
    pub weight: sluice_tensor,
    pub bias: sluice_tensor,
    pub out: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub state: sluice_conv_state_io,
    pub activation: i32,
    pub implementation: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_gated_rms_norm_args {
    pub struct_size: usize,
    pub x: sluice_tensor,
    pub z: sluice_tensor,
    pub weight: sluice_tensor,
    pub out: sluice_tensor,
    pub eps: f64,
    pub activation: i32,
    pub rounding: i32,
    pub implementation: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_causal_conv1d_backward_args {
    pub struct_size: usize,
    pub x: sluice_tensor,
    pub weight: sluice_tensor,
    pub bias: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub initial: sluice_tensor,
    pub d_out: sluice_tensor,
    pub d_final: sluice_tensor,
    pub dx: sluice_tensor,
    pub dweight: sluice_tensor,
    pub dbias: sluice_tensor,
    pub dinitial: sluice_tensor,
    pub activation: i32,
    pub implementation: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_gated_rms_norm_backward_args {
    pub struct_size: usize,
    pub x: sluice_tensor,
    pub z: sluice_tensor,
    pub weight: sluice_tensor,
    pub d_out: sluice_tensor,
    pub dx: sluice_tensor,
    pub dz: sluice_tensor,
    pub dweight: sluice_tensor,
    pub eps: f64,
    pub activation: i32,
    pub rounding: i32,
    pub implementation: i32,
    pub reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_layer_args {
    pub struct_size: usize,
    pub qkv: sluice_tensor,
    pub z: sluice_tensor,
    pub b: sluice_tensor,
    pub a: sluice_tensor,
    pub conv_weight: sluice_tensor,
    pub conv_bias: sluice_tensor,
    pub A_log: sluice_tensor,
    pub dt_bias: sluice_tensor,
    pub norm_weight: sluice_tensor,
    pub out: sluice_tensor,
    pub core_out: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub conv_initial: sluice_tensor,
    pub conv_final: sluice_tensor,
    pub ring_position: sluice_tensor,
    pub num_accepted: sluice_tensor,
    pub state: sluice_state_io,
    pub num_k_heads: i64,
    pub num_v_heads: i64,
    pub head_k_dim: i64,
    pub head_v_dim: i64,
    pub max_tokens: i64,
    pub scale: f64,
    pub l2norm_eps: f64,
    pub norm_eps: f64,
    pub scale_mode: i32,
    pub packing: i32,
    pub conv_state_form: i32,
    pub eigenvalues: i32,
    pub head_map: i32,
    pub gate_activation: i32,
    pub rounding: i32,
    pub state_writes: i32,
    pub implementation: i32,
    pub reserved: i32,
    pub ring: sluice_replay_ring,
    pub k: sluice_tensor,
    pub v: sluice_tensor,
    pub k_conv_weight: sluice_tensor,
    pub v_conv_weight: sluice_tensor,
    pub k_conv_bias: sluice_tensor,
    pub v_conv_bias: sluice_tensor,
    pub k_conv_initial: sluice_tensor,
    pub v_conv_initial: sluice_tensor,
    pub k_conv_final: sluice_tensor,
    pub v_conv_final: sluice_tensor,
    pub gate_lower_bound: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_layer_backward_args {
    pub struct_size: usize,
    pub qkv: sluice_tensor,
    pub z: sluice_tensor,
    pub b: sluice_tensor,
    pub a: sluice_tensor,
    pub conv_weight: sluice_tensor,
    pub conv_bias: sluice_tensor,
    pub A_log: sluice_tensor,
    pub dt_bias: sluice_tensor,
    pub norm_weight: sluice_tensor,
    pub cu_seqlens: sluice_tensor,
    pub conv_initial: sluice_tensor,
    pub initial: sluice_tensor,
    pub core_out: sluice_tensor,
    pub d_out: sluice_tensor,
    pub d_final: sluice_tensor,
    pub d_conv_final: sluice_tensor,
    pub dqkv: sluice_tensor,
    pub dz: sluice_tensor,
    pub db: sluice_tensor,
    pub da: sluice_tensor,
    pub dconv_weight: sluice_tensor,
    pub dconv_bias: sluice_tensor,
    pub dA_log: sluice_tensor,
    pub ddt_bias: sluice_tensor,
    pub dnorm_weight: sluice_tensor,
    pub dinitial: sluice_tensor,
    pub dconv_initial: sluice_tensor,
    pub num_k_heads: i64,
    pub num_v_heads: i64,
    pub head_k_dim: i64,
    pub head_v_dim: i64,
    pub scale: f64,
    pub l2norm_eps: f64,
    pub norm_eps: f64,
    pub scale_mode: i32,
    pub packing: i32,
    pub eigenvalues: i32,
    pub head_map: i32,
    pub gate_activation: i32,
    pub rounding: i32,
    pub state_layout: i32,
    pub implementation: i32,
    pub k: sluice_tensor,
    pub v: sluice_tensor,
    pub k_conv_weight: sluice_tensor,
    pub v_conv_weight: sluice_tensor,
    pub k_conv_bias: sluice_tensor,
    pub v_conv_bias: sluice_tensor,
    pub k_conv_initial: sluice_tensor,
    pub v_conv_initial: sluice_tensor,
    pub d_k_conv_final: sluice_tensor,
    pub d_v_conv_final: sluice_tensor,
    pub dk: sluice_tensor,
    pub dv: sluice_tensor,
    pub dk_conv_weight: sluice_tensor,
    pub dv_conv_weight: sluice_tensor,
    pub dk_conv_bias: sluice_tensor,
    pub dv_conv_bias: sluice_tensor,
    pub dk_conv_initial: sluice_tensor,
    pub dv_conv_initial: sluice_tensor,
    pub gate_lower_bound: f64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct sluice_implementation_info {
    pub name: *const c_char,
    pub description: *const c_char,
    pub requirement: *const c_char,
    pub id: i32,
    pub available: i32,
}

pub type sluice_parallel_for = Option<
    unsafe extern "C" fn(*mut c_void, i64, unsafe extern "C" fn(*mut c_void, i64), *mut c_void),
>;

extern "C" {
    pub fn sluice_chunk_forward(args: *const sluice_chunk_forward_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_chunk_backward(args: *const sluice_chunk_backward_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_chunk_summary(args: *const sluice_chunk_summary_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_state_fold(args: *const sluice_state_fold_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_chunk_stage(args: *const sluice_chunk_stage_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_recurrent_step(args: *const sluice_recurrent_step_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_causal_conv1d(args: *const sluice_causal_conv1d_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_causal_conv1d_backward(args: *const sluice_causal_conv1d_backward_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_gated_rms_norm_backward(args: *const sluice_gated_rms_norm_backward_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_gated_rms_norm(args: *const sluice_gated_rms_norm_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_layer_prefill(args: *const sluice_layer_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_layer_decode(args: *const sluice_layer_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_layer_backward(args: *const sluice_layer_backward_args, workspace: sluice_workspace, stream: *mut c_void) -> c_int;
    pub fn sluice_workspace_size(op: c_int, args: *const c_void, bytes: *mut usize) -> c_int;
    pub fn sluice_supported(op: c_int, args: *const c_void, kernel: *mut c_char, size: usize) -> c_int;
    pub fn sluice_implementations(out: *mut sluice_implementation_info, capacity: c_int) -> c_int;
    pub fn sluice_capability(out: *mut c_char, size: usize) -> usize;
    pub fn sluice_last_kernel() -> *const c_char;
    pub fn sluice_last_error() -> *const c_char;
    pub fn sluice_status_name(code: c_int) -> *const c_char;
    pub fn sluice_warm_up(device: sluice_device) -> c_int;
    pub fn sluice_set_executor(function: sluice_parallel_for, user: *mut c_void, threads: c_int) -> c_int;
    pub fn sluice_abi_version() -> u32;
    pub fn sluice_version() -> *const c_char;
}
