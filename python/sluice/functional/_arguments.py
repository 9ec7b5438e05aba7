# SPDX-License-Identifier: Apache-2.0
"""Handles what the FLA-style functions share: spellings, refusals, states that are not given."""

from collections.abc import Callable
from typing import Any

from .. import _kinds
from .._arrays import converted, has_16_bits
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


def check_states(
    op: str, initial_state: Any, rows: Any, cu_seqlens: Any, read_slots: Tensor | None = None
) -> None:
    """Refuses another number of states than sequences, unless slots say where they are."""
    if initial_state is None or read_slots is not None:
        return
    n = rows.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if initial_state.shape[0] != n:
        raise InvalidArgument(
            f"{op}: initial_state.shape[0] = {initial_state.shape[0]}, expected N = {n} (one state a "
            "sequence; a pool of more needs slots)"
        )


def new_output(like: T, cu_seqlens: Tensor | None) -> T:
    """A new output: zeros where rows are packed, for those past the last sequence are not written."""
    made: T = _kinds.empty_like(like) if cu_seqlens is None else _kinds.zeros_like(like)
    return made


def run_by_chunks(
    op: str, call: Callable[..., None], rows: tuple[Any, Any, Any], out: Any, **how: Any
) -> Any:
    """call(q, k, v, o) of `rows` q, k, v; returns o, `out` where given. Unless how["allow_chunks"],
    16-bit rows are converted to float32 first, since kernels of 16-bit rows round their operands."""
    v, cu_seqlens = rows[2], how["cu_seqlens"]
    if how["allow_chunks"] or not all(has_16_bits(x) for x in rows):
        o = new_output(v, cu_seqlens) if out is None else out
        call(*rows, o)
        return o
    if how["stream"] is not None:
        raise Unsupported(
            f"{op}: stream = given, expected None (16-bit rows of more than a step are converted on "
            "the current stream; allow_chunks=True converts nothing)"
        )
    wide = [converted(x) for x in rows]
    if out is None or cu_seqlens is None:
        o = new_output(wide[2], cu_seqlens)
    else:
        o = converted(out)  # rows past the last sequence keep what they hold
    call(*wide, o)
    if out is None:
        return converted(o, v)
    if hasattr(out, "copy_"):
        out.copy_(o)
    else:
        out[...] = o
    return out


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
