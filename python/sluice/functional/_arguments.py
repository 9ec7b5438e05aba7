# SPDX-License-Identifier: Apache-2.0
"""What the FLA-style functions share: spellings, refusals, states that are not given."""

from .. import _kinds
from .._errors import InvalidArgument, Unsupported

# Tokens per sequence that the step operator takes (kMaxStepTokens of the library).
MAX_STEP_TOKENS = 16


def activation_name(name):
    """fla's and causal_conv1d's spellings of an activation."""
    if name is None:
        return "none"
    return "silu" if name == "swish" else name


def refuse_foreign(op, cp_context, head_first, chunk_size):
    if cp_context is not None:
        raise Unsupported(f"{op}: cp_context = given, expected None (no context parallelism)")
    if head_first:
        raise Unsupported(
            f"{op}: head_first = True, expected False (pass x.transpose(1, 2): no copy is made)"
        )
    if chunk_size not in (None, 16, 32, 64):
        raise InvalidArgument(f"{op}: chunk_size = {chunk_size}, expected None, 16, 32 or 64")


def refuse_pool(op, read_slots):
    if read_slots is not None:
        raise InvalidArgument(
            f"{op}: final_state = None, expected a pool (output_final_state with read_slots)"
        )


def new_state(q, v, cu_seqlens, state_v_first, zeros=False):
    """A new float32 state pool [N,HV,K,V] ([N,HV,V,K]), one slot a sequence."""
    batch, _, _, key_dim = q.shape
    _, _, heads, value_dim = v.shape
    n = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    inner = (value_dim, key_dim) if state_v_first else (key_dim, value_dim)
    return _kinds.empty(q, (n, heads, *inner), "float32", zeros)
