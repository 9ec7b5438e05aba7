# SPDX-License-Identifier: Apache-2.0
"""Handles what the FLA-style functions share: spellings, refusals, states that are not given."""

from typing import Any

from .. import _kinds, ops
from .._arrays import converted, has_16_bits
from .._errors import InvalidArgument, Unsupported
from .._types import T, Tensor

# Tokens per sequence that the step operator takes (kMaxStepTokens of the library).
MAX_STEP_TOKENS = 16


def activation_name(name: str | None, op: str, *others: str) -> str:
    """fla's and causal_conv1d's spellings of an activation; `others`: what else the operator takes."""
    if name is None and not others:
        return "none"
    if name in ("silu", "swish"):
        return "silu"
    if name not in others:
        words = ", ".join(repr(word) for word in ("silu", "swish", *others))
        none = "" if others else "None, "
        raise InvalidArgument(f"{op}: activation = {name!r}, expected one of {none}{words}")
    return name


def check_key_gate(op: str, name: str, gate: Any, scalar: str) -> None:
    """Refuses gates by head where those of key channels are meant: `scalar` is the function of those."""
    if gate is not None and len(gate.shape) != 4:
        raise InvalidArgument(
            f"{op}: {name} rank = {len(gate.shape)}, expected 4 ([B,T,HV,K]; gates [B,T,HV] are "
            f"{scalar}'s)"
        )


def refuse_foreign(op: str, head_first: bool, chunk_size: int | None) -> None:
    if head_first:
        raise Unsupported(
            f"{op}: head_first = True, expected False (pass x.transpose(1, 2): no copy is made)"
        )
    if chunk_size not in (None, 16, 32, 64):
        raise InvalidArgument(f"{op}: chunk_size = {chunk_size}, expected None, 16, 32 or 64")


def over_ranks(op: str, given: dict[str, Any], foreign: tuple[str, ...], **options: Any) -> Any:
    """o and the final states of a call whose arguments by name are `given`, where sequences are cut over
    ranks as its cp_context says: a sluice.distributed.ContextParallel, or fla's context. foreign: names of
    arguments that mean nothing then. Offsets of sequences are the context's."""
    cp_context = given["cp_context"]
    for name in foreign:
        value = given[name]
        if value is not None and value is not False and (not isinstance(value, int) or value != 0):
            raise Unsupported(f"{op}: {name} = given, expected None with cp_context")
    if not hasattr(cp_context, "chunk_forward") and not hasattr(cp_context, "cu_seqlens"):
        raise Unsupported(
            f"{op}: cp_context = given, expected None, a sluice.distributed.ContextParallel or what fla's "
            "build_cp_context makes"
        )
    from ..distributed import ContextParallel

    return ContextParallel.from_fla(cp_context).chunk_forward(
        given["q"],
        given["k"],
        given["v"],
        given["g"],
        given.get("beta"),
        initial_state=given["initial_state"],
        output_final_state=given["output_final_state"],
        state_layout="vk" if given["state_v_first"] else "kv",
        scale=given["scale"],
        implementation=given["implementation"],
        **options,
    )


def refuse_pool(op: str, read_slots: Tensor | None, write_slots: Tensor | None) -> None:
    """Refuses to make final states whose slots are the caller's: padding would leave some unwritten."""
    if read_slots is not None or write_slots is not None:
        name = "write_slots" if read_slots is None else "read_slots"
        raise InvalidArgument(
            f"{op}: final_state = None, expected a pool (output_final_state with {name})"
        )


def refuse_states(op: str, found: int, expected: int) -> None:
    raise InvalidArgument(
        f"{op}: initial_state.shape[0] = {found}, expected N = {expected} (one state a sequence; a "
        "pool of more needs slots)"
    )


def check_states(op: str, initial_state: Any, rows: Any, cu_seqlens: Any) -> None:
    """Refuses another number of states than sequences, where no slots say which are meant."""
    n = rows.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if initial_state.shape[0] != n:
        refuse_states(op, initial_state.shape[0], n)


def chunk_output(
    op: str, v: Any, out: Any, allow_chunks: bool, cu_seqlens: Any, stream: Any
) -> Any:
    """What chunk_forward is to write o to, for a caller who gave `out` or None. Unless allow_chunks
    an o of 16 bits is computed in float32, to be converted by `as_asked`: kernels round the operands
    of their products only for calls whose o has 16 bits."""
    packed = cu_seqlens is not None
    if allow_chunks or not has_16_bits(v if out is None else out):
        if out is not None:
            return out
        return _kinds.zeros_like(v) if packed else _kinds.empty_like(v)
    if stream is not None:
        raise Unsupported(
            f"{op}: stream = given, expected None (o of more than a step is converted to 16 bits on "
            "the current stream; allow_chunks=True converts nothing)"
        )
    # Rows of `out` past the last packed sequence keep what they hold.
    if packed and out is not None:
        return converted(out)
    return _kinds.empty(v, v.shape, "float32", packed)


def as_asked(o: Any, v: Any, out: Any) -> Any:
    """The o of `chunk_output`, written by now, in the dtype of v or in `out`."""
    if o is out:
        return out
    if out is None:
        return converted(o, v) if o.dtype != v.dtype else o
    if hasattr(out, "copy_"):
        out.copy_(o)
    else:
        out[...] = o
    return out


def add_states(op: str, call: dict[str, Any], asked: bool, state_v_first: bool, zeros: bool = False) -> Any:
    """Checks the states of an operator's arguments `call`, makes a final one where it is asked for and not given
    (zeros: one to start from), and returns that."""
    initial_state, final_state, cu_seqlens = call["initial_state"], call["final_state"], call["cu_seqlens"]
    call["state_layout"] = "vk" if state_v_first else "kv"
    read_slots = call.get("read_slots")
    if initial_state is not None and read_slots is None:
        check_states(op, initial_state, call["q"], cu_seqlens)
    if asked and final_state is None:
        refuse_pool(op, read_slots, call.get("write_slots"))
        final_state = call["final_state"] = new_state(call["q"], call["v"], cu_seqlens, state_v_first, zeros)
    return final_state


def run_recurrent(
    op: str, call: dict[str, Any], asked: bool, state_v_first: bool, max_tokens: int | None, allow_chunks: bool
) -> tuple[Any, Any]:
    """o and final state, where one is asked for, of fla's recurrent functions: a step, or chunks in float32 where
    sequences are longer. call: arguments of `sluice.ops.recurrent_step`."""
    initial_state = call["initial_state"]
    steps = max_tokens is not None or (call["cu_seqlens"] is None and call["q"].shape[1] <= MAX_STEP_TOKENS)
    final_state = add_states(op, call, asked, state_v_first, steps and initial_state is None)
    if steps:
        if initial_state is None:
            call["initial_state"] = final_state
        call["state_writes"] = "none" if final_state is None else "last"
        return ops.recurrent_step(**call, max_tokens=max_tokens or 0), final_state
    if call.pop("num_accepted", None) is not None:
        raise InvalidArgument(f"{op}: num_accepted = given, expected None without max_tokens")
    q, k, v, out = map(call.pop, ("q", "k", "v", "o"))
    return run_by_chunks(op, (q, k, v), out, allow_chunks, call), final_state


def run_by_chunks(
    op: str, rows: tuple[Any, Any, Any], out: Any, allow_chunks: bool, arguments: dict[str, Any]
) -> Any:
    """`sluice.ops.chunk_forward` of `rows` q, k, v with `arguments`, as `chunk_output` says; returns
    o, `out` where given."""
    cu_seqlens, stream = arguments["cu_seqlens"], arguments["stream"]
    o = chunk_output(op, rows[2], out, allow_chunks, cu_seqlens, stream)
    ops.chunk_forward(*rows, o=o, **arguments)
    return as_asked(o, rows[2], out)


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
