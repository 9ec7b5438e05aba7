/* Sluice: gated linear attention on CPUs and GPUs. The C interface (C99), the one stable binary
 * boundary of the library: the C++ facade (sluice.hpp), the Python package and the tool sit on it.
 *
 * SPDX-License-Identifier: Apache-2.0
 * LINT length: one C header is what C, Rust and FFI users expect.
 *
 * Symbols: B batch, N sequences, T tokens, H query/key heads, HV value heads (r = HV/H an integer),
 * K and V head dimensions of key and value, W convolution width. docs/glossary.md defines each
 * term, docs/math.md each equation with its source.
 *
 * The rules every operator keeps
 *  - Tensors are strided views; strides count elements. Shapes are always token-first as written
 *    here; a head-first ([B,H,T,D]) tensor is the same view with its strides exchanged. The last
 *    dimension must have stride 1 where a comment says "inner stride 1". Nothing is copied behind
 *    the caller's back: what a kernel cannot read is refused by name.
 *  - A view whose data is null is absent. Only those marked optional may be.
 *  - Floating dtypes: float32, bfloat16, float16, unless a comment says otherwise. Arithmetic and
 *    states in registers are float32 in every backend but the reference one, which is float64.
 *  - The backend follows the device of the views, which must be one for all of them.
 *  - No operator allocates, keeps state between calls, or waits for the device. Scratch memory is
 *    the caller's: sluice_workspace_size() says how much, from sizes alone. (The CPU backend's
 *    threads are started once, at the first call or by sluice_warm_up().)
 *  - `stream` is the cudaStream_t of a CUDA call and must be null for a CPU call.
 *  - Return value 0 is success. Otherwise nothing was written, and sluice_last_error() has a
 * message of the form "op: argument property = found, expected ... (rule)".
 *  - Every args struct starts with struct_size = sizeof(the struct). Structs only grow at their
 *    end, and members that an older caller does not know count as zero. Zero is always the default.
 */
#ifndef SLUICE_SLUICE_H_
#define SLUICE_SLUICE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define SLUICE_API
#else
#define SLUICE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------- enumerations ---- */

/** Result of a call. */
typedef enum sluice_code {
  SLUICE_OK = 0,
  SLUICE_INVALID_ARGUMENT = 1,    /**< the caller's mistake; the message names the argument */
  SLUICE_UNSUPPORTED = 2,         /**< legal, but no kernel does it; the message says what is */
  SLUICE_WORKSPACE_TOO_SMALL = 3, /**< the message has the bytes needed */
  SLUICE_DEVICE_ERROR = 4,        /**< a CUDA call failed; the message has its name */
  SLUICE_INTERNAL = 5             /**< a bug in Sluice */
} sluice_code;

/** The operators, for sluice_workspace_size(), sluice_supported() and sluice_implementations(). */
typedef enum sluice_op {
  SLUICE_OP_CHUNK_FORWARD = 0,
  SLUICE_OP_RECURRENT_STEP = 1,
  SLUICE_OP_CAUSAL_CONV1D = 2,
  SLUICE_OP_GATED_RMS_NORM = 3,
  SLUICE_OP_LAYER_PREFILL = 4,
  SLUICE_OP_LAYER_DECODE = 5,
  SLUICE_OP_CHUNK_STAGE = 6,
  SLUICE_OP_CHUNK_BACKWARD = 7,
  SLUICE_OP_CHUNK_SUMMARY = 8,
  SLUICE_OP_STATE_FOLD = 9,
  SLUICE_OP_CAUSAL_CONV1D_BACKWARD = 10,
  SLUICE_OP_GATED_RMS_NORM_BACKWARD = 11,
  SLUICE_OP_LAYER_BACKWARD = 12,
  SLUICE_OP_COUNT = 13
} sluice_op;

/** Which implementation runs; the environment variable SLUICE_IMPL overrides AUTO by name. */
typedef enum sluice_implementation {
  SLUICE_IMPL_AUTO = 0,              /**< "auto": cpu for CPU views, cuda for CUDA views */
  SLUICE_IMPL_REFERENCE = 1,         /**< "reference": float64, token by token; CPU views */
  SLUICE_IMPL_REFERENCE_CHUNKED = 2, /**< "reference-chunked": float64, chunk form; CPU views */
  SLUICE_IMPL_CPU = 3,               /**< "cpu" */
  SLUICE_IMPL_CUDA = 4               /**< "cuda" */
} sluice_implementation;

/** What `gate` holds. Log and linear gates look alike and are the field's commonest silent error.
 */
typedef enum sluice_gate_space {
  SLUICE_GATE_LOG = 0,    /**< g = ln(alpha), g <= 0 */
  SLUICE_GATE_LINEAR = 1, /**< alpha = exp(g), 0 <= alpha <= 1 */
  SLUICE_GATE_RAW =
      2, /**< a: g = -exp(A_log) * softplus(a + dt_bias), softplus(x) = x for x > 20 */
  SLUICE_GATE_RAW_BOUNDED = 3 /**< a: g = gate_lower_bound * sigmoid(exp(A_log) * (a + dt_bias)) */
} sluice_gate_space;

/** What `beta` holds. */
typedef enum sluice_beta_space {
  SLUICE_BETA_VALUE = 0, /**< the write strength itself */
  SLUICE_BETA_LOGIT = 1  /**< b: beta = sigmoid(b) */
} sluice_beta_space;

/** Range of the transition's eigenvalues along k: NEGATIVE doubles beta (allow_neg_eigval). */
typedef enum sluice_eigenvalues {
  SLUICE_EIGENVALUES_POSITIVE = 0, /**< beta as given */
  SLUICE_EIGENVALUES_NEGATIVE = 1  /**< 2 * beta */
} sluice_eigenvalues;

/** Normalisation of q and k inside the operator. */
typedef enum sluice_qk_norm {
  SLUICE_QK_NORM_NONE = 0,
  SLUICE_QK_NORM_L2 = 1 /**< x * rsqrt(sum(x^2) + l2norm_eps) */
} sluice_qk_norm;

/** How `scale` is read. */
typedef enum sluice_scale_mode {
  SLUICE_SCALE_DEFAULT = 0, /**< K^-0.5; `scale` is ignored */
  SLUICE_SCALE_VALUE = 1    /**< `scale`, zero included */
} sluice_scale_mode;

/** Which key head a value head reads. */
typedef enum sluice_head_map {
  SLUICE_HEAD_MAP_BLOCK = 0, /**< value head h reads key head floor(h / r): all but ggml */
  SLUICE_HEAD_MAP_CYCLIC = 1 /**< value head h reads key head h mod H: ggml */
} sluice_head_map;

/** Order of the two inner dimensions of a state. */
typedef enum sluice_state_layout {
  SLUICE_STATE_KV = 0, /**< [.., K, V] */
  SLUICE_STATE_VK = 1  /**< [.., V, K] */
} sluice_state_layout;

/** The recurrence. */
typedef enum sluice_rule {
  SLUICE_RULE_GATED_DELTA =
      0, /**< S <- alpha S + k (beta (v - (alpha S)^T k))^T; no gate: delta rule */
  SLUICE_RULE_LINEAR_ATTENTION = 1 /**< S <- alpha S + k v^T: simple GLA; beta must be absent */
} sluice_rule;

/** A stage of the chunk form (sluice_chunk_stage_args). The first six in this order are a prefill,
 * and so are CUMSUM_KKT, SOLVE_WY, CHUNK_H, CHUNK_O. */
typedef enum sluice_stage {
  SLUICE_STAGE_CHUNK_CUMSUM = 0,
  SLUICE_STAGE_SCALED_DOT_KKT = 1,
  SLUICE_STAGE_SOLVE_TRIL = 2,
  SLUICE_STAGE_WY_FAST = 3,
  SLUICE_STAGE_CHUNK_H = 4,
  SLUICE_STAGE_CHUNK_O = 5,
  SLUICE_STAGE_CUMSUM_KKT = 6, /**< CHUNK_CUMSUM and SCALED_DOT_KKT in one */
  SLUICE_STAGE_SOLVE_WY = 7    /**< SOLVE_TRIL and WY_FAST in one */
} sluice_stage;

/** Which way chunk_cumsum sums inside a chunk, and which way sluice_chunk_summary() and
 *  sluice_state_fold() carry: states forwards, or their gradients backwards. */
typedef enum sluice_direction {
  SLUICE_DIRECTION_FORWARD = 0, /**< tokens up to and with i */
  SLUICE_DIRECTION_REVERSE = 1  /**< tokens from i on */
} sluice_direction;

/** Which strict triangle of A solve_tril reads; the inverse is of the same kind. */
typedef enum sluice_triangle {
  SLUICE_TRIANGLE_LOWER = 0, /**< A_ij, i > j */
  SLUICE_TRIANGLE_UPPER = 1  /**< A_ij, i < j */
} sluice_triangle;

/** How the matrices of solve_tril lie. */
typedef enum sluice_matrices {
  SLUICE_MATRICES_CHUNKS = 0, /**< [B,T,HV,C], the rows of chunks, as the other stages have them */
  SLUICE_MATRICES_BATCHED = 1 /**< [.., n, n], rank 2 to 4; no cu_seqlens */
} sluice_matrices;

/** How chunk_forward and chunk_backward spread a sequence over a GPU. All ways compute the same
 *  function; NEVER and COLUMNS agree bit for bit, the others to the rounding of the state. CPU
 *  backends ignore it, and so does chunk_backward where no bit depends on it: with rule
 *  LINEAR_ATTENTION, and where it runs in float32. Its COLUMNS is NEVER. */
typedef enum sluice_split {
  SLUICE_SPLIT_AUTO = 0,     /**< the library's choice, from all lengths of the call */
  SLUICE_SPLIT_NEVER = 1,    /**< one CTA per value head and 128 columns of V */
  SLUICE_SPLIT_COLUMNS = 2,  /**< one CTA per value head and 64 columns of V */
  SLUICE_SPLIT_SEGMENTS = 3, /**< split_value (2 to 4096) segments a sequence, joined exactly */
  SLUICE_SPLIT_LENGTH = 4    /**< segments of split_value tokens (a multiple of 64; 0: the library's
                                  choice from HV alone): no bit depends on the rest of the batch */
} sluice_split;

/** Whether segments may begin from zero, some chunks early, where a head has forgotten the rest:
 *  where its gates since then sum up to less than ln 2^-28. What is dropped is less than 2^-28 of
 * the longest column of the state then, if |k| <= 1, 0 <= beta <= 2 and g <= 0. */
typedef enum sluice_history {
  SLUICE_HISTORY_AUTO =
      0, /**< may, if qk_norm is L2 and beta logits or absent, so that this holds */
  SLUICE_HISTORY_STRICT = 1, /**< may not */
  SLUICE_HISTORY_FORGET = 2  /**< may: the caller says that it holds */
} sluice_history;

/** Which states recurrent steps write. */
typedef enum sluice_state_writes {
  SLUICE_STATE_WRITE_LAST = 0, /**< the state after the last token, to write_slots [N] */
  SLUICE_STATE_WRITE_PER_TOKEN =
      1,                      /**< the state after token t, to write_slots [N, >= T] column t */
  SLUICE_STATE_WRITE_NONE = 2 /**< none: outputs only */
} sluice_state_writes;

typedef enum sluice_activation {
  SLUICE_ACTIVATION_NONE = 0,
  SLUICE_ACTIVATION_SILU = 1,
  SLUICE_ACTIVATION_SIGMOID = 2
} sluice_activation;

/** Form of a convolution state of L columns. */
typedef enum sluice_conv_state_form {
  SLUICE_CONV_STATE_SHIFT = 0, /**< oldest column first; the newest W-1 are the history */
  SLUICE_CONV_STATE_RING = 1   /**< the input at absolute position p is in column p mod L */
} sluice_conv_state_form;

/** Where gated RMSNorm rounds: three orders are in use, and they differ by an ulp of the output. */
typedef enum sluice_norm_rounding {
  SLUICE_NORM_ROUND_ONCE = 0, /**< float32 to the end, one rounding (FLA) */
  SLUICE_NORM_ROUND_HF = 1,   /**< normalised x rounded to x's dtype, then times weight and gate;
                                   layer ops: core output rounded to out's dtype first */
  SLUICE_NORM_ROUND_INPUT = 2 /**< layer ops: core output rounded to out's dtype first (vLLM) */
} sluice_norm_rounding;

/** Packing of the projections that a layer operator reads. */
typedef enum sluice_packing {
  SLUICE_PACKING_FLAT = 0, /**< Qwen3.5: qkv = [q | k | v], z, b, a */
  SLUICE_PACKING_INTERLEAVED =
      1,                      /**< Qwen3-Next: per key head [q | k | r v | r z] and [r b | r a] */
  SLUICE_PACKING_SEPARATE = 2 /**< Kimi Linear: q, k and v of three projections, each with a
                                   convolution of its own; z, b, a as FLAT */
} sluice_packing;

/* ------------------------------------------------------------------------------------ views ----
 */

/** Element type, DLPack's pair. float32 {2,32}, float16 {2,16}, bfloat16 {4,16}, int32 {0,32},
 *  int64 {0,64}, bool {6,8} (one byte), uint8 {1,8}. */
typedef struct sluice_dtype {
  uint8_t code;
  uint8_t bits;
} sluice_dtype;

/** DLPack device: type 1 = CPU (also pinned memory), 2 = CUDA. */
typedef struct sluice_device {
  int32_t type;
  int32_t index;
} sluice_device;

#define SLUICE_DEVICE_CPU 1
#define SLUICE_DEVICE_CUDA 2
#define SLUICE_MAX_RANK 5

/** A strided view; frozen layout. data null = absent. stride in elements, zero and negative
 *  strides are refused for outputs. Alignment: that of the element type on CPU. */
typedef struct sluice_tensor {
  void* data;
  sluice_device device;
  sluice_dtype dtype;
  uint16_t rank;
  int64_t shape[SLUICE_MAX_RANK];
  int64_t stride[SLUICE_MAX_RANK];
} sluice_tensor;

/** Scratch memory on the device of the call, 256-byte aligned, undefined content. */
typedef struct sluice_workspace {
  void* data;
  size_t size; /**< bytes */
} sluice_workspace;

/* ----------------------------------------------------------------------------- state pools ---- */

/** Where the recurrent states of N sequences lie, embedded in the operators' arguments.
 *
 *  Pools are [slots, HV, K, V] (or [slots, HV, V, K]); head, row and column are contiguous inside a
 *  slot, the slot stride is free (>= HV*K*V). Sequence n reads slot read_slots[n] and writes slot
 *  write_slots[n]. Without read_slots, n reads slot n; write_slots defaults to read_slots. A slot
 *  that one sequence writes may not be read or written by another one in the same call.
 *
 *  A slot index below pad_below is padding. A padded read slot makes the whole sequence padding:
 *  its output rows are written as zeros, no state is read or written. A padded write slot skips
 *  that write only. Indices at or past `slots` are refused on the CPU, and padding on CUDA. */
typedef struct sluice_state_io {
  sluice_tensor initial; /**< optional: absent = zeros */
  sluice_tensor final;   /**< optional: absent = not written (chunk) or = initial (steps, in place).
                              May be the same memory as `initial`. Same layout, own dtype. */
  int32_t layout;        /**< sluice_state_layout of initial, final and checkpoints */
  int32_t reserved;      /**< zero */
  int64_t pad_below;     /**< 0: negative indices are padding; 1: slot 0 is the null slot too */
  sluice_tensor read_slots;        /**< optional int32/int64 [N] ([N, W] in steps) */
  sluice_tensor write_slots;       /**< optional int32/int64 [N] ([N, W] in steps) */
  sluice_tensor has_initial_state; /**< optional bool/uint8 [N]: false = start from zeros whatever
                                        the slot holds, NaN included */
} sluice_state_io;

/* ------------------------------------------------------------------------ the delta rule ops ----
 */

/** How the delta rule reads its inputs: options of chunk_forward, chunk_backward, recurrent_step. */
typedef struct sluice_delta_options {
  double scale;            /**< of o, read with SLUICE_SCALE_VALUE */
  double l2norm_eps;       /**< 0 = 1e-6 */
  double gate_lower_bound; /**< < 0, with SLUICE_GATE_RAW_BOUNDED only, else 0 */
  int32_t scale_mode;      /**< sluice_scale_mode */
  int32_t gate_space;      /**< sluice_gate_space */
  int32_t beta_space;      /**< sluice_beta_space */
  int32_t eigenvalues;     /**< sluice_eigenvalues */
  int32_t qk_norm;         /**< sluice_qk_norm */
  int32_t head_map;        /**< sluice_head_map */
  int32_t rule;            /**< sluice_rule */
  int32_t reserved;        /**< zero */
} sluice_delta_options;

/** gdn_prefill: o and final states of whole sequences, by chunks.
 *
 *  Per sequence and value head h with key head h' (head_map), for t = 1..T:
 *    S_t = alpha_t S_{t-1} + k_t (beta_t (v_t - alpha_t S_{t-1}^T k_t))^T,   o_t = scale S_t^T q_t
 *  Source: Yang, Kautz, Hatamizadeh, Gated Delta Networks, arXiv:2412.06464.
 *  With rule LINEAR_ATTENTION: S_t = alpha_t S_{t-1} + k_t v_t^T (simple GLA).
 *
 *  Packed batches: B = 1 and cu_seqlens [N+1] with 0 = c_0 <= c_1 <= .. <= c_N <= T; sequence n is
 *  rows c_n .. c_{n+1}-1. An empty sequence passes its state through. Rows at or past c_N are
 *  neither read nor written. Without cu_seqlens, N = B. T = 0 and N = 0 are legal.
 *
 *  Only exponentials of gate sums that are <= 0 are taken; each g is clamped at -128 below, so
 *  -inf is legal. g > 0 is outside the contract (SLUICE_DEBUG=1 refuses it on the CPU).
 *
 *  A gate of rank 4 is key-wise (GLA, KDA): one decay for each row of the state,
 *    S_t = diag(alpha_t) S_{t-1} + k_t (beta_t (v_t - (diag(alpha_t) S_{t-1})^T k_t))^T,
 *  in any gate_space, raw ones with a dt_bias for each channel; the rest as above. Sources: Yang et
 *  al., Gated Linear Attention Transformers, arXiv:2312.06635; Kimi Team, Kimi Linear,
 *  arXiv:2510.26692. */
typedef struct sluice_chunk_forward_args {
  size_t struct_size;
  sluice_tensor q;          /**< [B,T,H,K] inner stride 1 */
  sluice_tensor k;          /**< [B,T,H,K] inner stride 1; dtype of q */
  sluice_tensor v;          /**< [B,T,HV,V] inner stride 1; dtype of q */
  sluice_tensor gate;       /**< optional [B,T,HV]: absent = no decay; or key-wise [B,T,HV,K],
                                 inner stride 1 */
  sluice_tensor beta;       /**< optional [B,T,HV]: absent = 1 */
  sluice_tensor o;          /**< [B,T,HV,V] out, inner stride 1 */
  sluice_tensor A_log;      /**< [HV], of raw gates; RAW_BOUNDED: absent = zeros */
  sluice_tensor dt_bias;    /**< [HV], of raw gates; key-wise [HV,K], inner stride 1; RAW_BOUNDED
                                 and key-wise: absent = zeros */
  sluice_tensor cu_seqlens; /**< optional int32/int64 [N+1] */
  sluice_state_io state;
  sluice_tensor
      checkpoints; /**< optional pool [slots,HV,K,V]: states every checkpoint_every tokens */
  sluice_tensor checkpoint_slots; /**< int32/int64 [N,M]: slot of the state after (j+1) *
                                       checkpoint_every tokens of sequence n; pads skip; states
                                       j >= M are not stored */
  int64_t checkpoint_every;       /**< tokens, a multiple of 64, > 0 where checkpoints are given */
  sluice_delta_options options;
  int32_t implementation; /**< sluice_implementation */
  int32_t split;          /**< sluice_split */
  int32_t split_value;    /**< of SEGMENTS and LENGTH, else 0 */
  int32_t history;        /**< sluice_history */
  int64_t max_tokens; /**< with cu_seqlens, optional: the host's bound on one sequence's tokens. It
                           steers how a GPU spreads the work (N times it = T: lengths are known to
                           be equal) and nothing else: a longer sequence is computed all the same.
                           0 = unknown */
} sluice_chunk_forward_args;

/** When a step with a replay ring folds entries into the state. */
typedef enum sluice_ring_fold {
  SLUICE_RING_FOLD_AUTO = 0,  /**< where the next call's tokens would not fit otherwise */
  SLUICE_RING_FOLD_ALWAYS = 1 /**< in this call: T = 0 tokens leave the whole state in the pool */
} sluice_ring_fold;

/** Replay ring of recurrent_step and layer_decode, used where `k` is given: what recent tokens
 * wrote is kept beside the state, which is read in every call and written rarely.
 *
 *  Sequence n, whose slot is s = read_slots[n], has seen p = position[n] accepted tokens; the pool
 *  holds S0, its state after c = checkpoint[n] of them. Token i is entry i mod L of the ring:
 *    k[s,i mod L,h']    its normalised key
 *    delta[s,i mod L,h] beta_i (v_i - alpha_i S_{i-1}^T k_i), with rule LINEAR_ATTENTION v_i
 *    decay[s,i mod L,h] alpha_i = exp(g_i)
 *  A call reads entries c .. p-1 and S0 (read only), S_p = alpha_p .. alpha_{c+1} S0
 *  + sum_{i=c+1..p} alpha_p .. alpha_{i+1} k_i delta_i^T, and writes entries p .. p+T-1, no other.
 *  It folds if p - c > L - 2 M, M = T or max_tokens: S_p goes to the pool, rounded once, and the
 *  sequence's checkpoint becomes p, else it stays c. Which one it is depends on nothing but these
 *  numbers, and is written to next_checkpoint[n] where given.
 *
 *  After the call p grows by the tokens that were accepted, 0 to T of them: rollback is that number
 *  alone, plain decoding is T = 1. On the next call 0 <= p - c <= L - M must hold (refused on the
 *  CPU, clamped on CUDA), which it does if M is the same. A token's own output sees its delta in
 *  float32, later tokens see entries as they are stored, in this call too.
 *
 *  A fresh ring has p = c (any number, e.g. 0) and its contents do not matter. has_initial_state
 *  false: S_p = 0 whatever slot and ring hold, and the call folds. Padded rows touch neither
 *  entries nor next_checkpoint; a row without tokens may fold. state.final may only be the memory
 *  of `initial`; write_slots and num_accepted are absent (of a layer: sluice_layer_args),
 * read_slots has rank 1, state_writes is LAST. */
typedef struct sluice_replay_ring {
  sluice_tensor k;          /**< [slots,L,H,K], L in max(2, 2 M) .. 16; its slots are the pool's */
  sluice_tensor delta;      /**< [slots,L,HV,V] own dtype; each slot contiguous, slot stride free */
  sluice_tensor decay;      /**< [slots,L,HV] float32, likewise */
  sluice_tensor position;   /**< int32/int64 [N], below 2^31 */
  sluice_tensor checkpoint; /**< int32/int64 [N] */
  sluice_tensor next_checkpoint; /**< optional out, int32/int64 [N], not the memory of checkpoint */
  int32_t fold;                  /**< sluice_ring_fold */
  int32_t reserved;              /**< zero */
} sluice_replay_ring;

/** gdn_decode: 1 to 16 tokens per sequence, one pass over each state; also speculative
 * verification.
 *
 *  The recurrence of sluice_chunk_forward_args. Rows are [B,T,..] with T <= 16, or packed with
 *  cu_seqlens and max_tokens (the host's bound on one sequence's tokens, <= 16; a longer row is
 *  refused on the CPU, clamped on CUDA). The pool is updated in place unless state.final is given.
 *
 *  num_accepted [N]: the start state is column max(num_accepted[n], 1) - 1 of read_slots [N,W]
 *  (clamped to W-1): with one state slot per drafted token, rollback is that number.
 *  `ring` does without those slots; it takes no key-wise gates. */
typedef struct sluice_recurrent_step_args {
  size_t struct_size;
  sluice_tensor q;            /**< [B,T,H,K] inner stride 1 */
  sluice_tensor k;            /**< [B,T,H,K] inner stride 1; dtype of q */
  sluice_tensor v;            /**< [B,T,HV,V] inner stride 1; dtype of q */
  sluice_tensor gate;         /**< optional [B,T,HV]; or key-wise [B,T,HV,K], inner stride 1 */
  sluice_tensor beta;         /**< optional [B,T,HV] */
  sluice_tensor o;            /**< [B,T,HV,V] out, inner stride 1 */
  sluice_tensor A_log;        /**< [HV], of raw gates; RAW_BOUNDED: absent = zeros */
  sluice_tensor dt_bias;      /**< [HV], of raw gates; key-wise [HV,K], inner stride 1; RAW_BOUNDED
                                   and key-wise: absent = zeros */
  sluice_tensor cu_seqlens;   /**< optional int32/int64 [N+1] */
  sluice_tensor num_accepted; /**< optional int32/int64 [N], with read_slots [N,W] */
  sluice_state_io state;      /**< initial is required unless state_writes is NONE */
  int64_t max_tokens;         /**< with cu_seqlens: 1..16, required */
  sluice_delta_options options;
  int32_t state_writes;    /**< sluice_state_writes */
  int32_t implementation;  /**< sluice_implementation */
  sluice_replay_ring ring; /**< optional: states are written rarely */
} sluice_recurrent_step_args;

/* ------------------------------------------------------------------ the stages of a prefill ----
 */

/** One stage of the chunk form of sluice_chunk_forward_args: the tensors between the stages are the
 *  caller's, so any stage may be replaced by a kernel of his own. One struct serves all stages:
 *  filled once, called with stage = 0 .. 5 (or 6, 7, 4, 5), it is a prefill. A stage looks at the
 * views that its line below names and at no others. Equations: docs/math.md section 2; page:
 * docs/stages.md.
 *
 *  Per sequence, chunk of C tokens and value head h with key head h' (head_map), tokens i, j of the
 *  chunk, G_i the sum of g over the chunk's tokens up to i, S the state that enters the chunk:
 *
 *    CHUNK_CUMSUM    gate -> g_cumsum          G_i = sum over j <= i of g_j (REVERSE: j >= i)
 *    SCALED_DOT_KKT  k, beta, G -> A           A_ij = beta_i exp(G_i - G_j) (k_i . k_j), i > j
 *    SOLVE_TRIL      A -> A_inverse            (I + A)^-1; `triangle` says which part of A is read
 *    WY_FAST         k, v, beta, G, A_inverse -> u, w
 *                                              u = A_inverse diag(beta) v
 *                                              w = A_inverse diag(beta exp(G)) k
 *    CHUNK_H         k, u, w, G -> h, v_new, state.final; from state.initial
 *                                              h = S, v_new = u - w S,
 *                                              S <- exp(G_C) S + k^T diag(exp(G_C - G)) v_new
 *    CHUNK_O         q, k, v_new, G, h -> o    o = scale (diag(exp G) q h
 *                                                   + (exp(G_i - G_j) q k^T, i >= j) v_new)
 *
 *  Two pairs in one stage each, with the results of the two on float32 in between:
 *
 *    CUMSUM_KKT      gate, k, beta -> g_cumsum, A   CHUNK_CUMSUM, forward, and SCALED_DOT_KKT from
 *                                              the gates
 *    SOLVE_WY        k, v, beta, G, A -> u, w   SOLVE_TRIL of the lower triangle and WY_FAST; the
 *                                              inverse never goes to memory, but to A_inverse where
 *                                              that view is given
 *
 *  Rule LINEAR_ATTENTION (simple GLA) has no delta term: CHUNK_H and CHUNK_O read v in place of u
 *  and v_new, w is not read and v_new not written; the other stages know no rule.
 *
 *  CHUNK_O without h computes the states itself, from state.initial, and writes state.final: with
 *  LINEAR_ATTENTION that is simple GLA as one call. With h, `state` is not looked at.
 *
 *  G is g_cumsum where that view is given, else the sums of `gate`; without both there is no decay,
 *  and that is the same, bit for bit, as zeros in `gate` or g_cumsum of heads. CHUNK_CUMSUM takes gates of
 *  any gate_space, as sluice_chunk_forward_args does; other stages that read `gate`, and so
 *  gate_space, take logarithms. Each g of `gate` is clamped at -128 below, so that -inf is legal there. g_cumsum must be finite. Exponents are
 *  differences of G and not clamped: g > 0, growth, is legal.
 *
 *  Key-wise gates (GLA, KDA), of rank 4, have sums G_il of each of the K channels l: exp(G_i) q_i is
 *  a product by channel, as is exp(G_C) S by row, and the decay between two tokens stands inside
 *  their product: exp(G_i - G_j) (k_i . k_j) is the sum over l of k_il exp(G_il - G_jl) k_jl.
 *
 *  Packed batches are those of sluice_chunk_forward_args: chunks start anew with each sequence, and
 *  the last one of a sequence may be shorter. Chunk c of sequence n is entry c of row n of h, or
 *  with cu_seqlens entry c + sum over m < n of ceil(tokens of m / C) of row 0. h must have room for
 *  all chunks: fewer are refused on the CPU and without cu_seqlens; on CUDA nothing is past them.
 *  Rows at or past c_N, and chunks of h past the last, are neither read nor written.
 *
 *  All C entries of a row of A and A_inverse are written: zeros outside the triangle (A has zeros
 *  on the diagonal, A_inverse ones), also in columns past the end of a short chunk. Read is only
 *  the triangle, within the chunk's tokens. Every output is rounded once, when it is stored; CPU
 *  backends go on with what they computed, not with what they stored. */
typedef struct sluice_chunk_stage_args {
  size_t struct_size;
  sluice_tensor q;         /**< [B,T,H,K] inner stride 1; dtype of k */
  sluice_tensor k;         /**< [B,T,H,K] inner stride 1 */
  sluice_tensor v;         /**< [B,T,HV,V] inner stride 1; dtype of k */
  sluice_tensor gate;      /**< optional [B,T,HV], natural logarithms (CHUNK_CUMSUM: what gate_space
                                 says); CHUNK_CUMSUM and CUMSUM_KKT need it; or key-wise
                                 [B,T,HV,K], inner stride 1 */
  sluice_tensor beta;      /**< optional [B,T,HV]: absent = 1 */
  sluice_tensor g_cumsum;  /**< optional float32 [B,T,HV]; CHUNK_CUMSUM and CUMSUM_KKT write it;
                                 or key-wise [B,T,HV,K], inner stride 1 */
  sluice_tensor A;         /**< [B,T,HV,C] inner stride 1: row t holds token t's A_ij */
  sluice_tensor A_inverse; /**< [B,T,HV,C] inner stride 1, own dtype; SOLVE_WY: optional */
  sluice_tensor w;         /**< [B,T,HV,K] inner stride 1 */
  sluice_tensor u;         /**< [B,T,HV,V] inner stride 1 */
  sluice_tensor v_new;     /**< [B,T,HV,V] inner stride 1; CHUNK_H: optional */
  sluice_tensor h;         /**< [B,chunks,HV,K,V] (or V,K: state.layout), matrices contiguous:
                                 the states that enter the chunks; CHUNK_H, CHUNK_O: optional */
  sluice_tensor o;         /**< [B,T,HV,V] out, inner stride 1 */
  sluice_tensor cu_seqlens; /**< optional int32/int64 [N+1], B = 1 */
  sluice_state_io state;    /**< CHUNK_H, and CHUNK_O without h */
  double scale;             /**< of CHUNK_O, read with SLUICE_SCALE_VALUE */
  int32_t scale_mode;       /**< sluice_scale_mode */
  int32_t stage;            /**< sluice_stage */
  int32_t chunk_size;       /**< C: 16, 32, 64 or 128; 0 = 64 (batched matrices: their n) */
  int32_t rule;             /**< sluice_rule, of CHUNK_H and CHUNK_O */
  int32_t head_map;         /**< sluice_head_map */
  int32_t direction;        /**< sluice_direction, of CHUNK_CUMSUM */
  int32_t triangle;         /**< sluice_triangle, of SOLVE_TRIL */
  int32_t matrices;         /**< sluice_matrices, of SOLVE_TRIL */
  int32_t implementation;   /**< sluice_implementation */
  int32_t gate_space;       /**< sluice_gate_space, of CHUNK_CUMSUM */
  double gate_lower_bound;  /**< < 0, with SLUICE_GATE_RAW_BOUNDED only, else 0 */
  sluice_tensor A_log;   /**< CHUNK_CUMSUM: [HV], of raw gates, as in sluice_chunk_forward_args */
  sluice_tensor dt_bias; /**< CHUNK_CUMSUM: [HV] or key-wise [HV,K], likewise */
} sluice_chunk_stage_args;

/* ---------------------------------------------------------------- gradients of chunk_forward ----
 */

/** Gradients of chunk_forward, for training: from d_o and d_final, those of a scalar loss by the
 *  outputs, the gradients by every input. Forward values are computed again from the inputs;
 * nothing of the forward call is kept but these.
 *
 *  Per sequence and value head h with key head h' (head_map), for t = T..1, D_T = d_final, S_t the
 *  states of sluice_chunk_forward_args, e_t = v_t - alpha_t S_{t-1}^T k_t, delta_t = beta_t e_t:
 *    D_t  <- D_t + scale q_t d_o_t^T                dq_t    = scale S_t d_o_t
 *    x_t   = D_t^T k_t                              dv_t    = beta_t x_t
 *    P_t   = D_t - k_t (beta_t x_t)^T               dbeta_t = x_t . e_t
 *    D_{t-1} = alpha_t P_t                          dg_t    = alpha_t <P_t, S_{t-1}>
 *    dk_t  = D_t delta_t - beta_t alpha_t S_{t-1} x_t         dinitial = D_0
 *  With key-wise gates alpha_t is diag(alpha_t), and dg_t of channel i the product of row i of P_t
 *  with row i of diag(alpha_t) S_{t-1}.
 *  With rule LINEAR_ATTENTION: P_t = D_t, dk_t = D_t v_t, dv_t = D_t^T k_t. Chunk form:
 *  docs/math.md section 8. Source of both: Yang et al., arXiv:2406.06484 and arXiv:2412.06464.
 *
 *  The options are those of the forward call and mean the same. Gradients are by what was given:
 *  by raw q and k with qk_norm L2, by alpha with gate_space LINEAR, by a, A_log and dt_bias with
 * RAW, by b with beta_space LOGIT. Where the clamp of g at -128 acts (g < -128), the gradient by
 * the gate is zero. dq and dk sum the r value heads of a key head in the order of these heads.
 *
 *  Every output is optional and rounded once, when it is stored, whatever its dtype; sums over
 * heads and tokens are float32 (the reference: float64) and the same in every call. An empty
 * sequence passes d_final through. Rows at or past c_N are neither read nor written. No output may
 * be the memory of an input. Pools with slots and checkpoints have no gradient: states are
 * [N,HV,K,V]. */
typedef struct sluice_chunk_backward_args {
  size_t struct_size;
  sluice_tensor q;     /**< [B,T,H,K] inner stride 1 */
  sluice_tensor k;     /**< [B,T,H,K] inner stride 1; dtype of q */
  sluice_tensor v;     /**< [B,T,HV,V] inner stride 1; dtype of q */
  sluice_tensor gate;  /**< optional [B,T,HV]: absent = no decay; or key-wise [B,T,HV,K] */
  sluice_tensor beta;  /**< optional [B,T,HV]: absent = 1 */
  sluice_tensor A_log; /**< as in sluice_chunk_forward_args, and so is dt_bias */
  sluice_tensor dt_bias;
  sluice_tensor cu_seqlens; /**< optional int32/int64 [N+1], B = 1 */
  sluice_tensor initial;    /**< optional [N,HV,K,V] (or V,K: state_layout), matrices contiguous */
  sluice_tensor d_o;        /**< [B,T,HV,V] inner stride 1, own dtype */
  sluice_tensor d_final;    /**< optional, shaped as initial, own dtype: absent = zeros */
  sluice_tensor dq;         /**< optional out, shaped as q, inner stride 1, own dtype; so are all */
  sluice_tensor dk;         /**< optional out, shaped as k, inner stride 1 */
  sluice_tensor dv;         /**< optional out, shaped as v, inner stride 1 */
  sluice_tensor dgate;      /**< optional out, shaped as gate, with gate only */
  sluice_tensor dbeta;      /**< optional out [B,T,HV], with beta only */
  sluice_tensor dA_log;     /**< optional out [HV], with A_log only */
  sluice_tensor ddt_bias;   /**< optional out, shaped as dt_bias, with dt_bias only */
  sluice_tensor dinitial;   /**< optional out, shaped as initial, also where that is absent */
  sluice_delta_options options;
  int32_t state_layout;   /**< sluice_state_layout of initial, d_final and dinitial */
  int32_t implementation; /**< sluice_implementation */
  int32_t split;          /**< sluice_split */
  int32_t split_value;    /**< of SEGMENTS and LENGTH, else 0 */
} sluice_chunk_backward_args;

/* ------------------------------------------------------------- sequences over many devices ----
 */

/** What the pieces of sequences do to the states that enter them, where a sequence is cut over
 *  devices or calls: S_out = M S_in + N per value head, for any state. N is what a piece makes of
 * zeros, M what it makes of the identity with all values zero. Exchanged (two matrices a piece and
 * head, whatever its length) and put together by sluice_state_fold(), they give every piece the
 * state that enters it, and the result is that of the uncut sequence to rounding. The library
 * communicates nothing. Source: docs/math.md section 9.
 *
 *  FORWARD: transition = M, addend = N. REVERSE, for gradients: the gradient of the state that
 * enters a piece is D_in = M^T D_out + N_D; addend = N_D, which q and d_o make with D_out = 0, and
 * transition = M again, as it is.
 *
 *  A piece is a sequence of cu_seqlens (or a batch entry). forgotten[n,h] = 1 where the piece is
 * known to forget what came before it: what a state of columns c adds to the one that leaves is
 * below 2^-28 of the longest c, and transition is written as zeros. CPU backends look at M itself.
 * GPUs look at the gates of the last 1024 tokens by the rule of `history` in
 * sluice_chunk_forward_args, and then read no older tokens. STRICT: never. */
typedef struct sluice_chunk_summary_args {
  size_t struct_size;
  sluice_tensor q;          /**< [B,T,H,K] inner stride 1, dtype of k; REVERSE only */
  sluice_tensor k;          /**< [B,T,H,K] inner stride 1 */
  sluice_tensor v;          /**< [B,T,HV,V] inner stride 1; dtype of k */
  sluice_tensor gate;       /**< as in sluice_chunk_forward_args, and so are the next four */
  sluice_tensor beta;       /**< optional [B,T,HV] */
  sluice_tensor d_o;        /**< [B,T,HV,V] inner stride 1, own dtype; REVERSE only */
  sluice_tensor A_log;      /**< of raw gates */
  sluice_tensor dt_bias;    /**< of raw gates */
  sluice_tensor cu_seqlens; /**< optional int32/int64 [N+1], B = 1 */
  /** optional int32/int64 [N]: bit 0: the addend is wanted, bit 1: the transition is; absent = both.
   *  What is not wanted may not be computed, and its place then holds anything. */
  sluice_tensor wanted;
  sluice_tensor transition; /**< optional out float32 [N,HV,K,K], contiguous inside a piece */
  sluice_tensor addend;     /**< optional out float32 [N,HV,K,V], contiguous inside a piece */
  sluice_tensor forgotten;  /**< optional out bool/uint8 [N,HV]; with transition only */
  sluice_delta_options options;
  int32_t direction;      /**< sluice_direction: FORWARD, or REVERSE for gradients */
  int32_t history;        /**< sluice_history */
  int32_t implementation; /**< sluice_implementation */
  int32_t reserved;       /**< zero */
} sluice_chunk_summary_args;

/** Puts pieces together: the states that enter them, from their maps and the states that sequences
 *  start from. float32 in every backend but the reference; chains, heads and columns are
 * independent of each other, and the order of sums is fixed, so that equal maps give equal bits on
 * every device of one kind.
 *
 *  A chain is a sequence: pieces route_pieces[cu_chains[c]] .. route_pieces[cu_chains[c+1] - 1] in
 * the order of their tokens. FORWARD: S = initial[c]; at every step first entering[to] = S, where
 * to = route_states[step] >= 0, then S = addend + transition S of the piece; at the end
 *  final[c] = S. REVERSE: from the last step to the first with transition^T; initial is the gradient
 * of the final state, entering that of the state that leaves a piece, final that of the initial
 * state. A negative piece leaves S as it is, a negative place is not written; GPUs take pieces past P
 * and places past E for such, CPUs refuse them. Where forgotten[p,h] is 1, S = addend. */
typedef struct sluice_state_fold_args {
  size_t struct_size;
  sluice_tensor transition;   /**< float32 [P,HV,K,K], contiguous inside a piece */
  sluice_tensor addend;       /**< float32 [P,HV,K,V], likewise */
  sluice_tensor forgotten;    /**< optional bool/uint8 [P,HV] */
  sluice_tensor cu_chains;    /**< int32/int64 [N+1]: offsets of chains in the route */
  sluice_tensor route_pieces; /**< int32/int64 [S]: the piece of each step; < 0: none */
  sluice_tensor route_states; /**< int32/int64 [S]: where its entering state goes; < 0: nowhere */
  sluice_tensor initial;      /**< optional [N,HV,K,V] (or V,K: state_layout): absent = zeros */
  sluice_tensor entering;     /**< optional out [E,HV,K,V], own dtype */
  sluice_tensor final;        /**< optional out [N,HV,K,V], own dtype */
  int32_t direction;          /**< sluice_direction */
  int32_t state_layout;       /**< sluice_state_layout of initial, entering and final */
  int32_t implementation;     /**< sluice_implementation */
  int32_t reserved;           /**< zero */
} sluice_state_fold_args;

/* --------------------------------------------------------------------- the layer's other ops ----
 */

/** Where the convolution states of N sequences lie. Pool [slots, D, L] with free strides (both
 *  [slot][channel][column] and [slot][column][channel] memory orders), L >= W-1 columns of raw
 *  (pre-convolution) inputs. Slots, pads and has_initial_state as in sluice_state_io.
 *
 *  SHIFT form: the history is the last W-1 columns; afterwards the state is the last L columns of
 *  (old state, new inputs). With num_accepted (speculation, L >= W-2+T): the history is columns
 *  a-1 .. a+W-3 with a = min(max(num_accepted[n], 1), L-W+2), and the new state's first W-2+T
 * columns are (old columns a .. a+W-3, the T inputs); later columns are not written. RING form: the
 * history of a row at absolute position p = ring_position[n] is columns (p-W+1 .. p-1) mod L; the
 * inputs go to columns (p .. p+T-1) mod L, where the last L inputs win; the other columns are
 * carried over to another write slot. An empty sequence passes its whole state through to its write
 * slot, in every form. */
typedef struct sluice_conv_state_io {
  sluice_tensor initial;           /**< optional [slots,D,L]: absent = zeros */
  sluice_tensor final;             /**< optional [slots,D,L]; may be the memory of `initial` */
  sluice_tensor read_slots;        /**< optional int32/int64 [N] */
  sluice_tensor write_slots;       /**< optional int32/int64 [N] */
  sluice_tensor has_initial_state; /**< optional bool/uint8 [N] */
  sluice_tensor num_accepted;      /**< optional int32/int64 [N], SHIFT form only */
  sluice_tensor ring_position;     /**< int32/int64 [N], >= 0; RING form only */
  int64_t pad_below;
  int32_t form;     /**< sluice_conv_state_form */
  int32_t reserved; /**< zero */
} sluice_conv_state_io;

/** Short causal depthwise convolution, prefill and update alike:
 *    out[t,d] = act(bias[d] + sum_{w=0}^{W-1} weight[d,w] x[t-W+1+w, d]),
 *  inputs before a sequence's first token taken from its state. Padded rows: zeros. */
typedef struct sluice_causal_conv1d_args {
  size_t struct_size;
  sluice_tensor x;          /**< [B,T,D], any strides (channel-first views too) */
  sluice_tensor weight;     /**< [D,W], W in {2,3,4}, inner stride 1 */
  sluice_tensor bias;       /**< optional [D] */
  sluice_tensor out;        /**< [B,T,D] out, any strides; must not overlap x */
  sluice_tensor cu_seqlens; /**< optional int32/int64 [N+1], B = 1 */
  sluice_conv_state_io state;
  int32_t activation;     /**< NONE or SILU */
  int32_t implementation; /**< sluice_implementation */
} sluice_causal_conv1d_args;

/** Gated RMSNorm, norm before gate: out = x rsqrt(mean(x^2) + eps) * weight * act(z). */
typedef struct sluice_gated_rms_norm_args {
  size_t struct_size;
  sluice_tensor x;        /**< [.., V], rank 2 to 4, inner stride 1 */
  sluice_tensor z;        /**< shape of x, inner stride 1 */
  sluice_tensor weight;   /**< [V] */
  sluice_tensor out;      /**< shape of x, inner stride 1; may be the memory of x */
  double eps;             /**< 0 = 1e-6 */
  int32_t activation;     /**< SILU or SIGMOID */
  int32_t rounding;       /**< sluice_norm_rounding: ROUND_ONCE or ROUND_HF */
  int32_t implementation; /**< sluice_implementation */
  int32_t reserved;       /**< zero */
} sluice_gated_rms_norm_args;

/** Gradients of sluice_causal_conv1d() over whole sequences (SHIFT form, states by sequence). With
 *  dpre = d_out act'(pre), pre recomputed:
 *    dx[t,d] = sum_w weight[d,w] dpre[t+W-1-w, d],   dbias[d] = sum_t dpre[t,d],
 *    dweight[d,w] = sum_t dpre[t,d] x[t-W+1+w, d],
 *  and dinitial is the same of the columns before the first token. The final state being the last L
 *  columns of (initial, x), d_final is added to the gradients of these. Everything is float32 until
 *  it is stored; sums over tokens have an order that sizes and offsets alone decide, so that equal
 *  calls give equal bits. Rows of dx past the last packed sequence become zeros. */
typedef struct sluice_causal_conv1d_backward_args {
  size_t struct_size;
  sluice_tensor x;          /**< [B,T,D], any strides */
  sluice_tensor weight;     /**< [D,W], W in {2,3,4}, inner stride 1 */
  sluice_tensor bias;       /**< optional [D] */
  sluice_tensor cu_seqlens; /**< optional int32/int64 [N+1], B = 1 */
  sluice_tensor initial;    /**< optional [N,D,L], L >= W-1, any strides: absent = zeros */
  sluice_tensor d_out;      /**< [B,T,D], any strides, own dtype */
  sluice_tensor d_final;    /**< optional [N,D,L], own dtype: absent = zeros */
  sluice_tensor dx;         /**< optional out [B,T,D], any strides, own dtype; so are all */
  sluice_tensor dweight;    /**< optional out [D,W] */
  sluice_tensor dbias;      /**< optional out [D], with bias only */
  sluice_tensor dinitial;   /**< optional out [N,D,L], also where initial is absent */
  int32_t activation;       /**< NONE or SILU */
  int32_t implementation;   /**< sluice_implementation */
} sluice_causal_conv1d_backward_args;

/** Gradients of sluice_gated_rms_norm(). With n = x rstd, rstd = rsqrt(mean(x^2) + eps) recomputed,
 *  and s = d_out act(z) weight:
 *    dx = rstd (s - n mean(s n)),   dz = d_out n weight act'(z),   dweight = sum of d_out n act(z).
 *  With ROUND_HF n is rounded to x's dtype in dz and dweight, as it was in the forward call; its
 *  rounding has slope 1 in dx. Everything is float32 until it is stored; the sum over rows has an
 *  order that sizes alone decide. */
typedef struct sluice_gated_rms_norm_backward_args {
  size_t struct_size;
  sluice_tensor x;        /**< [.., V], rank 2 to 4, inner stride 1 */
  sluice_tensor z;        /**< shape of x, inner stride 1 */
  sluice_tensor weight;   /**< [V] */
  sluice_tensor d_out;    /**< shape of x, inner stride 1, own dtype */
  sluice_tensor dx;       /**< optional out, shape of x, inner stride 1, own dtype; so are all */
  sluice_tensor dz;       /**< optional out, shape of x, inner stride 1 */
  sluice_tensor dweight;  /**< optional out [V] */
  double eps;             /**< 0 = 1e-6 */
  int32_t activation;     /**< SILU or SIGMOID */
  int32_t rounding;       /**< sluice_norm_rounding: ROUND_ONCE or ROUND_HF */
  int32_t implementation; /**< sluice_implementation */
  int32_t reserved;       /**< zero */
} sluice_gated_rms_norm_backward_args;

/** The whole layer between its input projections and out_proj:
 *  convolution + SiLU on [q|k|v], gates from a and b, l2 norm of q and k, delta rule, gated
 * RMSNorm. One struct for sluice_layer_prefill() (any T, chunks) and sluice_layer_decode() (T <=
 * 16).
 *
 *  Packing FLAT:        qkv [B,T,2HK+HVV] = [q heads | k heads | v heads], z [B,T,HVV],
 *                       b [B,T,HV], a [B,T,HV].
 *  Packing INTERLEAVED: qkv [B,T,2HK+2HVV], per key head [K q | K k | rV v | rV z];
 *                       b [B,T,2HV], per key head [r b | r a]; z and a absent; head_map BLOCK.
 *  Packing SEPARATE:    qkv [B,T,HK] is q, k [B,T,HK], v [B,T,HVV]; z, b, a as FLAT. conv_weight,
 *                       conv_bias and the pools are q's as well, with HK channels; k's and v's are
 *                       the members k_conv_* and v_conv_*, given just where q's are.
 *  Row strides are free in all: slices of a wider projection need no copy.
 *  Convolution channels are always in the order [q | k | v].
 *
 *  Key-wise gates (KDA): a [B,T,HV,K] and dt_bias [HV,K], not in packing INTERLEAVED. With
 *  gate_lower_bound < 0 gates are gate_lower_bound sigmoid(exp(A_log) (a + dt_bias)), else
 *  -exp(A_log) softplus(a + dt_bias).
 *
 *  With `ring` (decode only) recurrent states are those of sluice_replay_ring, whose rules hold.
 *  Convolution states are written in every call, and rolled back in one of two ways: form RING with
 *  ring_position the memory of ring.position and L >= W-1+T columns, where position alone does it;
 *  or form SHIFT with num_accepted, which then holds for convolution states alone (read_slots stays
 *  [N]). Where all tokens are accepted, T = 1, SHIFT without num_accepted will do. */
typedef struct sluice_layer_args {
  size_t struct_size;
  sluice_tensor qkv;         /**< inner stride 1 */
  sluice_tensor z;           /**< FLAT only, inner stride 1 */
  sluice_tensor b;           /**< beta logits */
  sluice_tensor a;           /**< raw gates [B,T,HV], or key-wise [B,T,HV,K], inner stride 1 */
  sluice_tensor conv_weight; /**< [2HK+HVV, W] inner stride 1 */
  sluice_tensor conv_bias;   /**< optional [2HK+HVV] */
  sluice_tensor A_log;       /**< [HV]; with gate_lower_bound < 0 absent = zeros */
  sluice_tensor dt_bias;     /**< [HV]; key-wise [HV,K], inner stride 1; key-wise or with
                                  gate_lower_bound < 0 absent = zeros */
  sluice_tensor norm_weight; /**< [V] */
  sluice_tensor out;         /**< [B,T,HV,V] out, inner stride 1 */
  sluice_tensor core_out; /**< optional [B,T,HV,V] out: the delta rule's output, before the norm */
  sluice_tensor cu_seqlens;   /**< optional int32/int64 [N+1], B = 1 */
  sluice_tensor conv_initial; /**< optional conv state pool [slots,D,L], slots as in `state` */
  sluice_tensor
      conv_final; /**< optional: absent = not written (prefill), = conv_initial (decode) */
  sluice_tensor ring_position; /**< int32/int64 [N], with SLUICE_CONV_STATE_RING only */
  sluice_tensor num_accepted;  /**< decode: optional int32/int64 [N], for both kinds of state */
  sluice_state_io state;       /**< read_slots, write_slots and has_initial_state hold for the conv
                                    states too (their column 0 where 2-D; with
                                    num_accepted a row is padding in both columns or in neither) */
  int64_t num_k_heads;         /**< H */
  int64_t num_v_heads;         /**< HV */
  int64_t head_k_dim;          /**< K */
  int64_t head_v_dim;          /**< V */
  int64_t max_tokens;          /**< with cu_seqlens; decode: 1..16; prefill: as in chunk_forward */
  double scale;                /**< read with SLUICE_SCALE_VALUE */
  double l2norm_eps;           /**< 0 = 1e-6 */
  double norm_eps;             /**< 0 = 1e-6 */
  int32_t scale_mode;          /**< sluice_scale_mode */
  int32_t packing;             /**< sluice_packing */
  int32_t conv_state_form;     /**< sluice_conv_state_form */
  int32_t eigenvalues;         /**< sluice_eigenvalues */
  int32_t head_map;            /**< sluice_head_map */
  int32_t gate_activation;     /**< of z: SILU or SIGMOID */
  int32_t rounding;            /**< sluice_norm_rounding */
  int32_t state_writes;        /**< decode: sluice_state_writes */
  int32_t implementation;      /**< sluice_implementation */
  int32_t reserved;            /**< zero */
  sluice_replay_ring ring;     /**< decode, optional: recurrent states are written rarely */
  sluice_tensor k;             /**< SEPARATE only, and all that follow: dtype of qkv */
  sluice_tensor v;
  sluice_tensor k_conv_weight;  /**< [HK, W], dtype of conv_weight */
  sluice_tensor v_conv_weight;  /**< [HVV, W] */
  sluice_tensor k_conv_bias;    /**< [HK] */
  sluice_tensor v_conv_bias;    /**< [HVV] */
  sluice_tensor k_conv_initial; /**< [slots,HK,L], dtype of conv_initial */
  sluice_tensor v_conv_initial; /**< [slots,HVV,L] */
  sluice_tensor k_conv_final;
  sluice_tensor v_conv_final;
  double gate_lower_bound; /**< any packing: of bounded gates, < 0; else 0 */
} sluice_layer_args;

/** Gradients of sluice_layer_prefill() over whole sequences with states by sequence, in any packing,
 *  with scalar or key-wise gates. Nothing of the forward call is needed but its inputs: the
 *  convolution's output, gates, normalised q and k and the rule's states are computed again, and so
 *  is the rule's output unless core_out is given. It is sluice_gated_rms_norm_backward(), then
 *  sluice_chunk_backward(), then sluice_causal_conv1d_backward(), with what goes between them in
 *  qkv's dtype (reference: float64). Gradients of projections have the places that the packing gives
 *  these, so dqkv has z's in packing INTERLEAVED. What is not given is not computed. Rows of dqkv's
 *  convolved channels past the last packed sequence become zeros; those of dz, db and da, and z's in
 *  dqkv, stay as they were. */
typedef struct sluice_layer_backward_args {
  size_t struct_size;
  sluice_tensor qkv;          /**< as in sluice_layer_args, and so are all up to norm_weight */
  sluice_tensor z;            /**< not with INTERLEAVED, inner stride 1 */
  sluice_tensor b;            /**< beta logits */
  sluice_tensor a;            /**< raw gates [B,T,HV], or key-wise [B,T,HV,K], inner stride 1 */
  sluice_tensor conv_weight;  /**< [2HK+HVV, W] inner stride 1 */
  sluice_tensor conv_bias;    /**< optional [2HK+HVV] */
  sluice_tensor A_log;        /**< [HV]; with gate_lower_bound < 0 absent = zeros */
  sluice_tensor dt_bias;      /**< [HV], or key-wise [HV,K]; as in sluice_layer_args */
  sluice_tensor norm_weight;  /**< [V] */
  sluice_tensor cu_seqlens;   /**< optional int32/int64 [N+1], B = 1 */
  sluice_tensor conv_initial; /**< optional [N,D,L], L >= W-1, SHIFT form: absent = zeros */
  sluice_tensor initial;      /**< optional [N,HV,K,V] or [N,HV,V,K]: absent = zeros */
  sluice_tensor core_out;     /**< optional [B,T,HV,V], inner stride 1: layer_prefill's core_out */
  sluice_tensor d_out;        /**< [B,T,HV,V], inner stride 1, own dtype */
  sluice_tensor d_final;      /**< optional, shape of initial, own dtype: absent = zeros */
  sluice_tensor d_conv_final; /**< optional [N,D,L], own dtype: absent = zeros */
  sluice_tensor dqkv; /**< optional out, shape of qkv, inner stride 1, own dtype; so are all */
  sluice_tensor dz;   /**< optional out, shape of z, inner stride 1 */
  sluice_tensor db;   /**< optional out, shape of b */
  sluice_tensor da;   /**< optional out, shape of a; key-wise inner stride 1 */
  sluice_tensor dconv_weight;  /**< optional out, shape of conv_weight */
  sluice_tensor dconv_bias;    /**< optional out [2HK+HVV], with conv_bias only */
  sluice_tensor dA_log;        /**< optional out [HV], with A_log only */
  sluice_tensor ddt_bias;      /**< optional out, shape of dt_bias, with dt_bias only */
  sluice_tensor dnorm_weight;  /**< optional out [V] */
  sluice_tensor dinitial;      /**< optional out, shape of initial, also where that is absent */
  sluice_tensor dconv_initial; /**< optional out [N,D,L], also where conv_initial is absent */
  int64_t num_k_heads;         /**< H */
  int64_t num_v_heads;         /**< HV */
  int64_t head_k_dim;          /**< K */
  int64_t head_v_dim;          /**< V */
  double scale;                /**< read with SLUICE_SCALE_VALUE */
  double l2norm_eps;           /**< 0 = 1e-6 */
  double norm_eps;             /**< 0 = 1e-6 */
  int32_t scale_mode;          /**< sluice_scale_mode */
  int32_t packing;             /**< sluice_packing */
  int32_t eigenvalues;         /**< sluice_eigenvalues */
  int32_t head_map;            /**< sluice_head_map */
  int32_t gate_activation;     /**< of z: SILU or SIGMOID */
  int32_t rounding;            /**< sluice_norm_rounding: ROUND_ONCE or ROUND_HF */
  int32_t state_layout;        /**< sluice_state_layout */
  int32_t implementation;      /**< sluice_implementation */
  sluice_tensor k;             /**< SEPARATE only, and all that follow, as in sluice_layer_args */
  sluice_tensor v;
  sluice_tensor k_conv_weight;
  sluice_tensor v_conv_weight;
  sluice_tensor k_conv_bias;
  sluice_tensor v_conv_bias;
  sluice_tensor k_conv_initial; /**< [N,HK,L] */
  sluice_tensor v_conv_initial; /**< [N,HVV,L] */
  sluice_tensor d_k_conv_final; /**< what d_conv_final is to q */
  sluice_tensor d_v_conv_final;
  sluice_tensor dk; /**< what dqkv, dconv_weight, .. are to q */
  sluice_tensor dv;
  sluice_tensor dk_conv_weight;
  sluice_tensor dv_conv_weight;
  sluice_tensor dk_conv_bias;
  sluice_tensor dv_conv_bias;
  sluice_tensor dk_conv_initial;
  sluice_tensor dv_conv_initial;
  double gate_lower_bound; /**< any packing: of bounded gates, < 0; else 0 */
} sluice_layer_backward_args;

/** See sluice_chunk_forward_args. */
SLUICE_API int sluice_chunk_forward(const sluice_chunk_forward_args* args,
                                    sluice_workspace workspace, void* stream);
/** See sluice_chunk_backward_args. */
SLUICE_API int sluice_chunk_backward(const sluice_chunk_backward_args* args,
                                     sluice_workspace workspace, void* stream);
/** See sluice_chunk_summary_args. */
SLUICE_API int sluice_chunk_summary(const sluice_chunk_summary_args* args,
                                    sluice_workspace workspace, void* stream);
/** See sluice_state_fold_args. */
SLUICE_API int sluice_state_fold(const sluice_state_fold_args* args, sluice_workspace workspace,
                                 void* stream);
/** See sluice_chunk_stage_args. */
SLUICE_API int sluice_chunk_stage(const sluice_chunk_stage_args* args, sluice_workspace workspace,
                                  void* stream);
/** See sluice_recurrent_step_args. */
SLUICE_API int sluice_recurrent_step(const sluice_recurrent_step_args* args,
                                     sluice_workspace workspace, void* stream);
/** See sluice_causal_conv1d_args. */
SLUICE_API int sluice_causal_conv1d(const sluice_causal_conv1d_args* args,
                                    sluice_workspace workspace, void* stream);
/** See sluice_causal_conv1d_backward_args. */
SLUICE_API int sluice_causal_conv1d_backward(const sluice_causal_conv1d_backward_args* args,
                                             sluice_workspace workspace, void* stream);
/** See sluice_gated_rms_norm_backward_args. */
SLUICE_API int sluice_gated_rms_norm_backward(const sluice_gated_rms_norm_backward_args* args,
                                              sluice_workspace workspace, void* stream);
/** See sluice_gated_rms_norm_args. */
SLUICE_API int sluice_gated_rms_norm(const sluice_gated_rms_norm_args* args,
                                     sluice_workspace workspace, void* stream);
/** See sluice_layer_args. */
SLUICE_API int sluice_layer_prefill(const sluice_layer_args* args, sluice_workspace workspace,
                                    void* stream);
/** See sluice_layer_args; at most 16 tokens per sequence, pools updated in place by default. */
SLUICE_API int sluice_layer_decode(const sluice_layer_args* args, sluice_workspace workspace,
                                   void* stream);
/** See sluice_layer_backward_args. */
SLUICE_API int sluice_layer_backward(const sluice_layer_backward_args* args,
                                     sluice_workspace workspace, void* stream);

/** Bytes of scratch that `op` needs for these arguments (a struct of that op's args type). Views
 *  need shapes, strides, dtypes and device; data may be any non-null pointer: nothing is read.
 *  An upper bound for every cu_seqlens content and every smaller T. */
SLUICE_API int sluice_workspace_size(int op, const void* args, size_t* bytes);

/** Would `op` run on these arguments? SLUICE_OK if so, else the code and message the call itself
 *  would give. If kernel is not null, the name of the kernel that would run is written to it,
 *  e.g. "cpu.chunk_forward.avx512" (at most size bytes, null-terminated). Reads no tensor data. */
SLUICE_API int sluice_supported(int op, const void* args, char* kernel, size_t size);

/* --------------------------------------------------------------------------------- library ---- */

/** One implementation of one or more operators. */
typedef struct sluice_implementation_info {
  const char* name;        /**< as SLUICE_IMPL takes it */
  const char* description; /**< one line */
  const char* requirement; /**< what it needs of the machine */
  int32_t id;              /**< sluice_implementation */
  int32_t available;       /**< 1 if it can run on this machine, now */
} sluice_implementation_info;

/** Writes up to `capacity` entries, returns how many there are. */
SLUICE_API int sluice_implementations(sluice_implementation_info* out, int capacity);

/** Free text about the machine and the choices made: ISA, threads, devices, one "key: value" a
 * line. Returns the length without the terminator; writes at most size bytes. */
SLUICE_API size_t sluice_capability(char* out, size_t size);

/** Name of the kernel that this thread's last successful operator call ran; "" before the first. */
SLUICE_API const char* sluice_last_kernel(void);

/** Message of this thread's last failed call; "" after a success. Valid until the next call. */
SLUICE_API const char* sluice_last_error(void);

/** "ok", "invalid argument", .. for a sluice_code. */
SLUICE_API const char* sluice_status_name(int code);

/** Starts threads and loads kernels now, so that no later call does. device as in views. */
SLUICE_API int sluice_warm_up(sluice_device device);

/** Runs task(context, i) for every i in [0, count), in any order and on any threads, and returns
 *  when all are done. */
typedef void (*sluice_parallel_for)(void* user, int64_t count,
                                    void (*task)(void* context, int64_t i), void* context);

/** Replaces the CPU backend's thread pool by the caller's threads; a null function restores it.
 *  Results do not depend on it. Not to be called while operators run. threads: how many tasks may
 *  run at once at most. */
SLUICE_API int sluice_set_executor(sluice_parallel_for function, void* user, int threads);

/** The interface version: a caller built against a larger major than this returns must not go on.
 */
SLUICE_API uint32_t sluice_abi_version(void);

/** The library version, e.g. "0.1.0". */
SLUICE_API const char* sluice_version(void);

#define SLUICE_ABI_VERSION 0u

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLUICE_SLUICE_H_ */
