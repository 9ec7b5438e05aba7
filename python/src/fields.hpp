// Declares the arguments of each operator by name: where they go in its struct, and how they are
// read. One table serves the calls, `supported`, and the torch schemas that sluice/_torch.py makes
// of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_FIELDS_HPP_
#define SLUICE_PYTHON_FIELDS_HPP_

#include <cstddef>
#include <span>

#include "python.hpp"
#include "sluice/sluice.h"

namespace sluice::python {

enum class Kind {
  kInput,     ///< a tensor that is read
  kOutput,    ///< a tensor that is written; of stages, by those of the bits of `other`
  kUpdate,    ///< read, and written where `unless` is not given: pools updated in place
  kDouble,    ///< float; None = 0, the default
  kScale,     ///< float or None = the operator's default; `other` is its scale_mode
  kInt,       ///< int64_t
  kInt32,     ///< int32_t
  kChoice,    ///< one of `choices`, a null-terminated list in the order of the C enumeration
  kStream,    ///< the stream of the call, no member of the struct
  kWorkspace  ///< the scratch tensor of the call, likewise
};

struct Field {
  const char* name;
  Kind kind;
  size_t offset;
  const char* const* choices = nullptr;
  size_t other = 0;
  const char* unless = nullptr;
};

/// Any operator's arguments. Each struct begins with struct_size.
union Arguments {
  size_t struct_size;
  sluice_chunk_forward_args chunk_forward;
  sluice_recurrent_step_args recurrent_step;
  sluice_causal_conv1d_args causal_conv1d;
  sluice_gated_rms_norm_args gated_rms_norm;
  sluice_layer_args layer;
  sluice_chunk_stage_args chunk_stage;
  sluice_chunk_backward_args chunk_backward;
  sluice_chunk_summary_args chunk_summary;
  sluice_state_fold_args state_fold;
  sluice_causal_conv1d_backward_args causal_conv1d_backward;
  sluice_gated_rms_norm_backward_args gated_rms_norm_backward;
  sluice_layer_backward_args layer_backward;
};

struct Operator {
  const char* name;
  size_t struct_size;
  std::span<const Field> fields;  ///< in the order of a call's values
  int stream;                     ///< position of the stream, behind which the workspace is
  int (*run)(const Arguments&, sluice_workspace, void* stream);
};

/// By sluice_op.
const Operator& operator_of(int op) noexcept;

/// Index of the operator that a str names; -1 with an exception.
int operator_index(PyObject* name) noexcept;

constexpr int kMostKeywords = 64;

/// Where keywords go: by keyword, its position among the operator's fields.
struct Keywords {
  int count = 0;
  signed char position[kMostKeywords];
};

/// Reads a vectorcall's tuple of names (or null); false with a TypeError if one is unknown.
bool read_names(int op, PyObject* names, Keywords* keywords) noexcept;

/// Position of `value` in `choices`, -1 if it is not there.
int choice_index(const char* const* choices, PyObject* value) noexcept;

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_FIELDS_HPP_
