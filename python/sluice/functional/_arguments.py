# SPDX-License-Identifier: Apache-2.0
"""Handles what the FLA-style functions share: spellings, refusals, states that are not given."""

from typing import Any

from .. import _kinds
from .._errors import InvalidArgument, Unsupported
from .._types import T, Tensor

# Tokens per sequence that the step operator takes (kMaxStepTokens of the library).
MAX_STEP_TOKENS = 16


def activation_name(name: str | None) -> str:
    """fla's and causal_conv1d's spellings of an activation."""
    if name is None:
        return "none"
    return "silu" if name == "swish" else name


def refuse_foreign(op: str, cp_context: Any, head_first: bool, chunk_size: int | None) -> None:
    if cp_context is not None:
        raise Unsupported(f"{op}: cp_context = given, expected None (no context parallelism)")
    if head_first:
        raise Unsupported(
            f"{op}: head_first = True, expected False (pass x.transpose(1, 2): no copy is made)"
        )
    if chunk_size not in (None, 16, 32, 64):
        raise InvalidArgument(f"{op}: chunk_size = {chunk_size}, expected None, 16, 32 or 64")


def refuse_pool(op: str, read_slots: Tensor | None) -> None:
    if read_slots is not None:
        raise InvalidArgument(
            f"{op}: final_state = None, expected a pool (output_final_state with read_slots)"
        )


def longest(cu_seqlens_cpu: Any) -> int:
    """Tokens of the longest sequence by offsets in host memory; 0 where there are none."""
    device = getattr(cu_seqlens_cpu, "device", None)
    if cu_seqlens_cpu is None or getattr(device, "type", "cpu") != "cpu":
        return 0
    offsets = list(cu_seqlens_cpu) if device is None else cu_seqlens_cpu.tolist()
    return max((int(b - a) for a, b in zip(offsets, offsets[1:])), default=0)


def new_state(q: T, v: T, cu_seqlens: Tensor | None, state_v_first: bool, zeros: bool = False) -> T:
    """A new float32 state pool [N,HV,K,V] ([N,HV,V,K]), one slot a sequence."""
    batch, _, _, key_dim = q.shape
    _, _, heads, value_dim = v.shape
    n = batch if cu_seqlens is None else cu_seqlens.shape[0] - 1
    inner = (value_dim, key_dim) if state_v_first else (key_dim, value_dim)
    state: T = _kinds.empty(q, (n, heads, *inner), "float32", zeros)
    return state
