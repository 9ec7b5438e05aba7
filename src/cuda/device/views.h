// Describes small inputs, token rows, states and tables of slots as kernels take them: PODs that the
// host fills in.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_VIEWS_H_
#define SLUICE_CUDA_DEVICE_VIEWS_H_

#include <cstdint>

namespace sluice::cuda::device {

/// Element types of floating tensors in memory.
enum class Number : int32_t { kFloat32, kBfloat16, kFloat16 };

/// What gates are; a negative number is a bounded raw gate, whose bits are its bound's as a float:
/// the sign bit of the bound is set, and kernels need no parameter for it.
enum class GateForm : int32_t { kNone, kLog, kLinear, kRaw };
enum class BetaForm : int32_t { kNone, kValue, kLogit };

/// How a kernel of gradients moves numbers: of any form one by one, or packs of one 16-bit type.
enum class GradientForm { kAny, kBfloat16, kFloat16 };

/// What a row of tokens is, for whoever comes after the convolution of a layer.
enum class RowKind : uint8_t { kNobodys, kLive, kPadding };

/// A scalar per token and value head; value head h is (h / r, h % r).
struct TokenScalar {
  const void* data;                                             ///< [B,T,HV/r,r], may be null
  int64_t batch_bytes, token_bytes, group_bytes, member_bytes;  ///< strides
  Number number;
};

/// A scalar per value head.
struct HeadScalar {
  const void* data;  ///< [HV], null unless gates are raw; of bounded ones it may be
  int64_t stride;
  Number number;
};

/// Integers in device memory, one per sequence.
struct IndexVector {
  const void* data;  ///< may be null
  int64_t stride;
  bool is_64bit;
};

/// States of all heads of a slot, head after head, each dense.
struct StatePool {
  void* data;           ///< [slots,HV,K,V] or [slots,HV,V,K], may be null
  int64_t slot_stride;  ///< elements
  Number number;
};

/// Rows of q, k, v, o and the like: [B,T,heads,D], innermost stride 1, the others in elements.
struct TokenRows {
  void* data;  ///< may be null where a kernel says so
  int64_t batch_stride, token_stride, head_stride;
  Number number;
};

/// A table of slots [N] or [N,columns].
struct SlotTable {
  IndexVector rows;  ///< null data: sequence n has slot n
  int64_t columns, column_stride;
};

/// A pool and how many slots it has.
struct BoundedPool {
  StatePool pool;  ///< data may be null
  int64_t slots;
};

/// How the rows of a step make up sequences.
struct StepRows {
  IndexVector cu_seqlens;  ///< [N+1]; null: sequence n is batch entry n
  int64_t T;               ///< rows of a batch entry
  int32_t max_tokens;      ///< of one sequence; longer ones are cut. T where cu_seqlens is null
};

/// Where the states of a step lie.
struct StateSlots {
  BoundedPool initial, final;
  SlotTable read_slots, write_slots;
  IndexVector num_accepted;          ///< [N], may be null
  const uint8_t* has_initial_state;  ///< [N], may be null
  int64_t has_initial_stride;
  int64_t pad_below;
};

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_VIEWS_H_
