// Reads the arguments of each operator by name into its struct.
// SPDX-License-Identifier: Apache-2.0
#include "fields.hpp"

#include <cstring>
#include <iterator>
#include <unordered_map>

namespace sluice::python {
namespace {

// In the order of the enumerations of sluice.h.
constexpr const char* kGateSpaces[] = {"log", "linear", "raw", nullptr};
constexpr const char* kBetaSpaces[] = {"value", "logit", nullptr};
constexpr const char* kEigenvalues[] = {"positive", "negative", nullptr};
constexpr const char* kQkNorms[] = {"none", "l2", nullptr};
constexpr const char* kHeadMaps[] = {"block", "cyclic", nullptr};
constexpr const char* kLayouts[] = {"kv", "vk", nullptr};
constexpr const char* kRules[] = {"gated_delta", "linear_attention", nullptr};
constexpr const char* kSplits[] = {"auto", "never", "columns", "segments", "length", nullptr};
constexpr const char* kHistories[] = {"auto", "strict", "forget", nullptr};
constexpr const char* kWrites[] = {"last", "per_token", "none", nullptr};
constexpr const char* kActivations[] = {"none", "silu", "sigmoid", nullptr};
constexpr const char* kRingFolds[] = {"auto", "always", nullptr};
constexpr const char* kConvForms[] = {"shift", "ring", nullptr};
constexpr const char* kRoundings[] = {"once", "hf", "input", nullptr};
constexpr const char* kPackings[] = {"flat", "interleaved", nullptr};
constexpr const char* kStages[] = {"chunk_cumsum", "scaled_dot_kkt", "solve_tril",
                                   "wy_fast",      "chunk_h",        "chunk_o",
                                   "cumsum_kkt",   "solve_wy",       nullptr};
constexpr const char* kDirections[] = {"forward", "reverse", nullptr};
constexpr const char* kTriangles[] = {"lower", "upper", nullptr};
constexpr const char* kMatrices[] = {"chunks", "batched", nullptr};
constexpr const char* kImplementations[] = {"auto", "reference", "reference-chunked",
                                            "cpu",  "cuda",      nullptr};

using Chunk = sluice_chunk_forward_args;
using Step = sluice_recurrent_step_args;
using Conv = sluice_causal_conv1d_args;
using Norm = sluice_gated_rms_norm_args;
using Layer = sluice_layer_args;
using Stage = sluice_chunk_stage_args;
using Backward = sluice_chunk_backward_args;

// NOLINTBEGIN: offsetof into C structs needs the macro forms.
#define IN(S, m) {#m, Kind::kInput, offsetof(S, m)}
#define OUT(S, m) {#m, Kind::kOutput, offsetof(S, m)}
#define MADE(m, stage) {#m, Kind::kOutput, offsetof(Stage, m), nullptr, size_t{1} << (stage)}
#define MADE_BY(m, one, other) \
  {#m, Kind::kOutput, offsetof(Stage, m), nullptr, size_t{1} << (one) | size_t{1} << (other)}
#define INT32(S, m) {#m, Kind::kInt32, offsetof(S, m)}
#define INT(S, m) {#m, Kind::kInt, offsetof(S, m)}
#define REAL(S, m) {#m, Kind::kDouble, offsetof(S, m)}
#define SCALE(S) {"scale", Kind::kScale, offsetof(S, scale), nullptr, offsetof(S, scale_mode)}
#define CHOICE(S, m, list) {#m, Kind::kChoice, offsetof(S, m), list}
#define SLOTS(S)                                                                   \
  {"read_slots", Kind::kInput, offsetof(S, state.read_slots)},                     \
      {"write_slots", Kind::kInput, offsetof(S, state.write_slots)},               \
      {"has_initial_state", Kind::kInput, offsetof(S, state.has_initial_state)}, { \
    "pad_below", Kind::kInt, offsetof(S, state.pad_below)                          \
  }
#define STATE(S, initial_kind, unless)                                             \
  {"initial_state", initial_kind, offsetof(S, state.initial), nullptr, 0, unless}, \
      {"final_state", Kind::kOutput, offsetof(S, state.final)},                    \
      {"state_layout", Kind::kChoice, offsetof(S, state.layout), kLayouts}, SLOTS(S)
// Of the replay ring; "ring" alone names the convolution's. Entries are read, too.
#define REPLAY(S)                                                                     \
  {"replay_k", Kind::kOutput, offsetof(S, ring.k)},                                   \
      {"replay_delta", Kind::kOutput, offsetof(S, ring.delta)},                       \
      {"replay_decay", Kind::kOutput, offsetof(S, ring.decay)},                       \
      {"replay_position", Kind::kInput, offsetof(S, ring.position)},                  \
      {"replay_checkpoint", Kind::kInput, offsetof(S, ring.checkpoint)},              \
      {"replay_next_checkpoint", Kind::kOutput, offsetof(S, ring.next_checkpoint)}, { \
    "replay_fold", Kind::kChoice, offsetof(S, ring.fold), kRingFolds                  \
  }
#define DELTA(S)                                                                                   \
  IN(S, q), IN(S, k), IN(S, v), IN(S, gate), IN(S, beta), OUT(S, o), IN(S, A_log), IN(S, dt_bias), \
      IN(S, cu_seqlens), SCALE(S), REAL(S, l2norm_eps), CHOICE(S, gate_space, kGateSpaces),        \
      CHOICE(S, beta_space, kBetaSpaces), CHOICE(S, eigenvalues, kEigenvalues),                    \
      CHOICE(S, qk_norm, kQkNorms), CHOICE(S, head_map, kHeadMaps), CHOICE(S, rule, kRules),       \
      CHOICE(S, implementation, kImplementations)
#define LAYER(conv_kind, conv_unless)                                                        \
  IN(Layer, qkv), IN(Layer, z), IN(Layer, b), IN(Layer, a), IN(Layer, conv_weight),          \
      IN(Layer, conv_bias), IN(Layer, A_log), IN(Layer, dt_bias), IN(Layer, norm_weight),    \
      OUT(Layer, out), OUT(Layer, core_out), IN(Layer, cu_seqlens),                          \
      {"conv_initial", conv_kind, offsetof(Layer, conv_initial), nullptr, 0, conv_unless},   \
      OUT(Layer, conv_final), IN(Layer, ring_position), INT(Layer, num_k_heads),             \
      INT(Layer, num_v_heads), INT(Layer, head_k_dim), INT(Layer, head_v_dim), SCALE(Layer), \
      REAL(Layer, l2norm_eps), REAL(Layer, norm_eps), CHOICE(Layer, packing, kPackings),     \
      CHOICE(Layer, conv_state_form, kConvForms), CHOICE(Layer, eigenvalues, kEigenvalues),  \
      CHOICE(Layer, head_map, kHeadMaps), CHOICE(Layer, gate_activation, kActivations),      \
      CHOICE(Layer, rounding, kRoundings), CHOICE(Layer, implementation, kImplementations)

constexpr Field kChunkForward[] = {DELTA(Chunk),
                                   STATE(Chunk, Kind::kInput, nullptr),
                                   OUT(Chunk, checkpoints),
                                   IN(Chunk, checkpoint_slots),
                                   INT(Chunk, checkpoint_every),
                                   CHOICE(Chunk, split, kSplits),
                                   INT32(Chunk, split_value),
                                   CHOICE(Chunk, history, kHistories),
                                   INT(Chunk, max_tokens)};
constexpr Field kRecurrentStep[] = {
    DELTA(Step),           STATE(Step, Kind::kUpdate, "final_state"), IN(Step, num_accepted),
    INT(Step, max_tokens), CHOICE(Step, state_writes, kWrites),       REPLAY(Step)};
constexpr Field kCausalConv1d[] = {
    IN(Conv, x),
    IN(Conv, weight),
    IN(Conv, bias),
    OUT(Conv, out),
    IN(Conv, cu_seqlens),
    {"initial_state", Kind::kInput, offsetof(Conv, state.initial)},
    {"final_state", Kind::kOutput, offsetof(Conv, state.final)},
    SLOTS(Conv),
    {"num_accepted", Kind::kInput, offsetof(Conv, state.num_accepted)},
    {"ring_position", Kind::kInput, offsetof(Conv, state.ring_position)},
    {"conv_state_form", Kind::kChoice, offsetof(Conv, state.form), kConvForms},
    CHOICE(Conv, activation, kActivations),
    CHOICE(Conv, implementation, kImplementations)};
constexpr Field kGatedRmsNorm[] = {IN(Norm, x),
                                   IN(Norm, z),
                                   IN(Norm, weight),
                                   OUT(Norm, out),
                                   REAL(Norm, eps),
                                   CHOICE(Norm, activation, kActivations),
                                   CHOICE(Norm, rounding, kRoundings),
                                   CHOICE(Norm, implementation, kImplementations)};
constexpr Field kLayerPrefill[] = {LAYER(Kind::kInput, nullptr),
                                   STATE(Layer, Kind::kInput, nullptr), INT(Layer, max_tokens)};
constexpr Field kLayerDecode[] = {LAYER(Kind::kUpdate, "conv_final"),
                                  STATE(Layer, Kind::kUpdate, "final_state"),
                                  IN(Layer, num_accepted),
                                  INT(Layer, max_tokens),
                                  CHOICE(Layer, state_writes, kWrites),
                                  REPLAY(Layer)};
constexpr Field kChunkStage[] = {
    CHOICE(Stage, stage, kStages),
    IN(Stage, q),
    IN(Stage, k),
    IN(Stage, v),
    IN(Stage, gate),
    IN(Stage, beta),
    MADE_BY(g_cumsum, SLUICE_STAGE_CHUNK_CUMSUM, SLUICE_STAGE_CUMSUM_KKT),
    MADE_BY(A, SLUICE_STAGE_SCALED_DOT_KKT, SLUICE_STAGE_CUMSUM_KKT),
    MADE_BY(A_inverse, SLUICE_STAGE_SOLVE_TRIL, SLUICE_STAGE_SOLVE_WY),
    MADE_BY(w, SLUICE_STAGE_WY_FAST, SLUICE_STAGE_SOLVE_WY),
    MADE_BY(u, SLUICE_STAGE_WY_FAST, SLUICE_STAGE_SOLVE_WY),
    MADE(v_new, SLUICE_STAGE_CHUNK_H),
    MADE(h, SLUICE_STAGE_CHUNK_H),
    OUT(Stage, o),
    IN(Stage, cu_seqlens),
    STATE(Stage, Kind::kInput, nullptr),
    SCALE(Stage),
    INT32(Stage, chunk_size),
    CHOICE(Stage, rule, kRules),
    CHOICE(Stage, head_map, kHeadMaps),
    CHOICE(Stage, direction, kDirections),
    CHOICE(Stage, triangle, kTriangles),
    CHOICE(Stage, matrices, kMatrices),
    CHOICE(Stage, implementation, kImplementations)};
constexpr Field kChunkBackward[] = {
    IN(Backward, q),
    IN(Backward, k),
    IN(Backward, v),
    IN(Backward, gate),
    IN(Backward, beta),
    IN(Backward, A_log),
    IN(Backward, dt_bias),
    IN(Backward, cu_seqlens),
    {"initial_state", Kind::kInput, offsetof(Backward, initial)},
    IN(Backward, d_o),
    {"d_final_state", Kind::kInput, offsetof(Backward, d_final)},
    OUT(Backward, dq),
    OUT(Backward, dk),
    OUT(Backward, dv),
    OUT(Backward, dgate),
    OUT(Backward, dbeta),
    OUT(Backward, dA_log),
    OUT(Backward, ddt_bias),
    {"d_initial_state", Kind::kOutput, offsetof(Backward, dinitial)},
    SCALE(Backward),
    REAL(Backward, l2norm_eps),
    CHOICE(Backward, gate_space, kGateSpaces),
    CHOICE(Backward, beta_space, kBetaSpaces),
    CHOICE(Backward, eigenvalues, kEigenvalues),
    CHOICE(Backward, qk_norm, kQkNorms),
    CHOICE(Backward, head_map, kHeadMaps),
    CHOICE(Backward, rule, kRules),
    CHOICE(Backward, state_layout, kLayouts),
    CHOICE(Backward, implementation, kImplementations)};
// NOLINTEND

const Operator kOperators[] = {
    {"chunk_forward", sizeof(Chunk), kChunkForward,
     [](const Arguments& a, sluice_workspace w, void* s) {
       return sluice_chunk_forward(&a.chunk_forward, w, s);
     }},
    {"recurrent_step", sizeof(Step), kRecurrentStep,
     [](const Arguments& a, sluice_workspace w, void* s) {
       return sluice_recurrent_step(&a.recurrent_step, w, s);
     }},
    {"causal_conv1d", sizeof(Conv), kCausalConv1d,
     [](const Arguments& a, sluice_workspace w, void* s) {
       return sluice_causal_conv1d(&a.causal_conv1d, w, s);
     }},
    {"gated_rms_norm", sizeof(Norm), kGatedRmsNorm,
     [](const Arguments& a, sluice_workspace w, void* s) {
       return sluice_gated_rms_norm(&a.gated_rms_norm, w, s);
     }},
    {"layer_prefill", sizeof(Layer), kLayerPrefill,
     [](const Arguments& a, sluice_workspace w, void* s) {
       return sluice_layer_prefill(&a.layer, w, s);
     }},
    {"layer_decode", sizeof(Layer), kLayerDecode,
     [](const Arguments& a, sluice_workspace w, void* s) {
       return sluice_layer_decode(&a.layer, w, s);
     }},
    {"chunk_stage", sizeof(Stage), kChunkStage,
     [](const Arguments& a, sluice_workspace w, void* s) {
       return sluice_chunk_stage(&a.chunk_stage, w, s);
     }},
    {"chunk_backward", sizeof(Backward), kChunkBackward,
     [](const Arguments& a, sluice_workspace w, void* s) {
       return sluice_chunk_backward(&a.chunk_backward, w, s);
     }},
};

static_assert(std::size(kOperators) == SLUICE_OP_COUNT);

/// Field positions by the address of the interned name: keywords in compiled code are interned.
using Index = std::unordered_map<PyObject*, int>;

const Index& index_of(int op) {
  static Index all[SLUICE_OP_COUNT];  // under the GIL; the names are held for ever
  Index& index = all[op];
  if (index.empty()) {
    int position = 0;
    for (const Field& field : kOperators[op].fields) {
      index.emplace(PyUnicode_InternFromString(field.name), position++);
    }
    index.emplace(PyUnicode_InternFromString("stream"), position++);
    index.emplace(PyUnicode_InternFromString("workspace"), position++);
  }
  return index;
}

int field_index(int op, PyObject* name) {
  const Index& index = index_of(op);
  const auto found = index.find(name);
  if (found != index.end()) return found->second;
  for (const auto& [key, position] : index) {  // a name built at run time
    if (PyUnicode_Compare(key, name) == 0) return position;
  }
  return -1;
}

// PERF: the names of one place in the code are one constant tuple, and a choice written there one
// str. They are held and known again by address, the last one of each slot. Under the GIL.
struct KnownNames {
  int op;
  PyObject* names;
  Keywords keywords;
};
KnownNames known_names[64];

struct KnownChoice {
  const char* const* choices;
  PyObject* value;
  int position;
};
KnownChoice known_choices[128];

/// Where objects of that address are kept in a table of `size`; `salt` tells its users apart.
size_t slot_of(const void* object, size_t salt, size_t size) noexcept {
  // Objects are aligned to 16 bytes; the product's upper bits depend on all lower ones.
  const auto bits = (reinterpret_cast<uintptr_t>(object) >> 4) + salt;
  return static_cast<size_t>((uint64_t{bits} * 0x9E3779B97F4A7C15u) >> 32) % size;
}

}  // namespace

const Operator& operator_of(int op) noexcept { return kOperators[op]; }

int operator_named(const char* name) noexcept {
  for (int op = 0; op < SLUICE_OP_COUNT; ++op) {
    if (std::strcmp(kOperators[op].name, name) == 0) return op;
  }
  return -1;
}

const Keywords* read_names(int op, PyObject* names) noexcept {
  KnownNames& known = known_names[slot_of(names, static_cast<size_t>(op), std::size(known_names))];
  if (known.op == op && known.names == names && names != nullptr) return &known.keywords;
  Keywords keywords;
  const Py_ssize_t count = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* name = PyTuple_GetItem(names, i);
    const int position = i < kMostKeywords ? field_index(op, name) : -1;
    if (position < 0) {
      PyErr_Format(PyExc_TypeError, "%s: unexpected keyword argument '%U'", kOperators[op].name,
                   name);
      return nullptr;
    }
    keywords.position[keywords.count++] = static_cast<signed char>(position);
  }
  PyObject* const old = known.names;
  known = {op, Py_XNewRef(names), keywords};
  Py_XDECREF(old);
  return &known.keywords;
}

int choice_index(const char* const* choices, PyObject* value) noexcept {
  const auto salt = reinterpret_cast<uintptr_t>(choices) >> 3;
  KnownChoice& known = known_choices[slot_of(value, salt, std::size(known_choices))];
  if (known.value == value && known.choices == choices) return known.position;
  const char* text = PyUnicode_Check(value) ? PyUnicode_AsUTF8AndSize(value, nullptr) : nullptr;
  for (int i = 0; text != nullptr && choices[i] != nullptr; ++i) {
    if (std::strcmp(text, choices[i]) != 0) continue;
    PyObject* const old = known.value;
    known = {choices, Py_NewRef(value), i};
    Py_XDECREF(old);
    return i;
  }
  PyErr_Clear();
  return -1;
}

}  // namespace sluice::python
