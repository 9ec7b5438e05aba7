# SPDX-License-Identifier: Apache-2.0
"""Stands in for FlashInfer's gated delta rule, signatures as of flashinfer-python 0.7.2.post1.

Traps that this page of functions keeps for its callers: prefill's g is alpha = exp(g), not the log
gate; decode's l2 flag is called use_qk_l2norm and defaults to True; states are [V,K], except in
gated_delta_rule_decode. Stated differences: prefill honours every head's own shape rules of the
core (GQA, more query than key heads, is refused); a scale of 0.0 means the default in prefill, as
there; a padded row (negative index) always gives zero outputs and touches no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ops
from ..functional._arguments import new_state
from . import sequences
from .refusal import check_scale, invalid, only_absent, only_value, unsupported

if TYPE_CHECKING:
    import torch


def _checkpoint_arguments(op: str, states: Any, cu_starts: torch.Tensor, every: int) -> Any:
    """The operators' checkpoint arguments from FlashInfer's packed pool and row starts."""
    if every == 0:
        only_absent(op, "without checkpoint_every_n_tokens", state_checkpoints=states)
        return {}
    if states is None or cu_starts is None:
        invalid(op, "state_checkpoints", states, "given with checkpoint_cu_starts", "checkpoints")
    import torch

    starts, ends = cu_starts[:-1].to(torch.int64), cu_starts[1:].to(torch.int64)
    slots = starts[:, None] + torch.arange(states.shape[0], device=states.device)[None, :]
    slots = torch.where(slots < ends[:, None], slots, -1)
    return dict(checkpoints=states, checkpoint_slots=slots, checkpoint_every=every)


def chunk_gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: torch.Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    output: torch.Tensor | None = None,
    output_state: torch.Tensor | None = None,
    state_checkpoints: torch.Tensor | None = None,
    checkpoint_cu_starts: torch.Tensor | None = None,
    checkpoint_every_n_tokens: int = 0,
    use_cp: Any = "auto",
    state_indices: torch.Tensor | None = None,
    _cp_chunk_len: int | None = None,
    backend: Any = "auto",
    max_seqlen: int | None = None,
) -> Any:
    """Prefill of packed rows: q, k [tokens,H,K], v [tokens,HV,V], g (ALPHA, float32) and beta
    [tokens,HV], None = ones; state [N,HV,V,K], or a pool with state_indices [N] (read and written
    at the same slot; output_state must then be given).

    use_cp "auto" or False, backend "auto" or "flashinfer"; max_seqlen, where
    given, bounds one sequence's tokens and steers how the GPU is filled.
    Returns o alone, or (o, state) with output_final_state.
    """
    op = "flashinfer.chunk_gated_delta_rule"
    only_absent(op, "no context parallelism", _cp_chunk_len=_cp_chunk_len)
    if use_cp not in ("auto", False):
        unsupported(op, "use_cp", use_cp, "'auto' or False", "no context parallelism")
    _check_backend(op, backend)
    if cu_seqlens is None:
        invalid(op, "cu_seqlens", None, "[N+1]", "packed rows only")
    if q.shape[1] != k.shape[1]:
        unsupported(op, "q.shape[1]", q.shape[1], k.shape[1], "no more query than key heads")
    if output_final_state and output_state is None:
        if state_indices is not None:
            invalid(op, "output_state", None, "the pool", "with state_indices")
        output_state = new_state(q.unsqueeze(0), v.unsqueeze(0), cu_seqlens, True)
    *rows, o = (None if t is None else t.unsqueeze(0) for t in (q, k, v, g, beta, output))
    o = ops.chunk_forward(
        *rows,
        o=o,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=output_state if output_final_state else None,
        state_layout="vk",
        read_slots=state_indices,
        scale=scale or None,
        gate_space="linear",
        qk_norm=sequences.qk_norm(use_qk_l2norm_in_kernel),
        max_tokens=max_seqlen or 0,
        **_checkpoint_arguments(
            op, state_checkpoints, checkpoint_cu_starts, checkpoint_every_n_tokens
        ),
    )
    o = output if output is not None else o.squeeze(0)
    return (o, output_state) if output_final_state else o


def _decode(op: str, given: dict[str, Any], **states: Any) -> torch.Tensor:
    """A step of raw gates and logits, whose arguments by FlashInfer's names are among `given`."""
    call = {name: given[name] for name in ("q", "k", "v", "A_log", "dt_bias")}
    call.update(gate=given["a"], beta=given["b"], o=given["output"], gate_space="raw", beta_space="logit")
    call.update(scale=check_scale(op, given["scale"]), qk_norm=sequences.qk_norm(given["use_qk_l2norm"]))
    return sequences.decode(op, {**call, **states})


def _check_backend(op: str, backend: Any) -> None:
    if backend not in ("auto", "flashinfer"):
        unsupported(op, "backend", backend, "'auto' or 'flashinfer'", "FlashInfer's own backends")


def _buffer_arguments(buffer: Any, rows: Any, tokens: int) -> Any:
    """Per-token writes to a dense buffer [>= B, >= T, HV, V, K], row b, step t."""
    import torch

    steps = buffer.shape[1]
    slots = torch.arange(rows, device=buffer.device)[:, None] * steps
    slots = slots + torch.arange(tokens, device=buffer.device)[None, :]
    pool = buffer.view(-1, *buffer.shape[2:])
    return dict(final_state=pool, write_slots=slots, state_writes="per_token")


def gated_delta_rule_decode_pretranspose(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: torch.Tensor,
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    b: torch.Tensor,
    scale: float | None = None,
    output: torch.Tensor | None = None,
    use_qk_l2norm: bool = True,
    initial_state: torch.Tensor | None = None,
    initial_state_indices: torch.Tensor | None = None,
    output_state_indices: torch.Tensor | None = None,
    intermediate_states_buffer: torch.Tensor | None = None,
    disable_state_update: bool = False,
    backend: Any = "auto",
) -> Any:
    """Decode with states [.,HV,V,K] updated IN PLACE: `state` per batch row, or the pool
    `initial_state` with initial_state_indices [B] (and output_state_indices [B] to write
    elsewhere). q, k [B,T,H,K], v [B,T,HV,V], raw a, b [B,T,HV]. intermediate_states_buffer
    [B,>=T,HV,V,K] takes the state after every token and needs disable_state_update. Returns (o,
    state or pool)."""
    op = "flashinfer.gated_delta_rule_decode_pretranspose"
    _check_backend(op, backend)
    if (initial_state is None) == (state is None):
        invalid(
            op, "initial_state", initial_state, "given if and only if state is None", "one pool"
        )
    pool = state if initial_state is None else initial_state
    if len(pool.shape) != 4:
        unsupported(op, "initial_state", pool, "[slots,HV,V,K]", "no split pools")
    writes = _writes(op, intermediate_states_buffer, disable_state_update, q, output_state_indices)
    o = _decode(
        op,
        locals(),
        initial_state=pool,
        state_layout="vk",
        read_slots=initial_state_indices,
        **writes,
    )
    return o, pool


def _writes(
    op: str, buffer: Any, disable_state_update: bool, q: torch.Tensor, output_slots: torch.Tensor
) -> Any:
    """Which states a decode call writes."""
    if buffer is not None:
        if not disable_state_update:
            rule = "states of every token, or the last one"
            unsupported(op, "disable_state_update", False, "True with the buffer", rule)
        return _buffer_arguments(buffer, q.shape[0], q.shape[1])
    if disable_state_update:
        return dict(state_writes="none")
    return dict(write_slots=output_slots)


def gated_delta_rule_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    state: torch.Tensor,
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    b: torch.Tensor,
    scale: float | None = None,
    output: torch.Tensor | None = None,
    use_qk_l2norm: bool = True,
    backend: Any = "auto",
) -> Any:
    """Decode of one token with the state [B,HV,K,V] (KEY first), in place. Returns (o, state)."""
    op = "flashinfer.gated_delta_rule_decode"
    _check_backend(op, backend)
    only_value(op, "q.shape[1]", q.shape[1], 1, "one token")
    o = _decode(
        op,
        locals(),
        initial_state=state,
        state_layout="kv",
    )
    return o, state


def gated_delta_rule_mtp(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    initial_state: torch.Tensor,
    initial_state_indices: torch.Tensor,
    A_log: torch.Tensor,
    a: torch.Tensor,
    dt_bias: torch.Tensor,
    b: torch.Tensor,
    scale: float | None = None,
    output: torch.Tensor | None = None,
    intermediate_states_buffer: torch.Tensor | None = None,
    ssm_state_indices: torch.Tensor | None = None,
    disable_state_update: bool | None = None,
    use_qk_l2norm: bool = True,
    output_state_indices: torch.Tensor | None = None,
    cache_replayssm: bool = False,
    replayssm_rawv: torch.Tensor | None = None,
    replayssm_rawk: torch.Tensor | None = None,
    replayssm_g: torch.Tensor | None = None,
    replayssm_beta: torch.Tensor | None = None,
) -> Any:
    """Verification of T drafted tokens: pool [slots,HV,V,K], initial_state_indices [B].

    disable_state_update has no default here: FlashInfer's is about to change from True to False.
    intermediate_states_buffer needs it True; ssm_state_indices [B,T] (a pool slot per token) needs
    it False. The replayssm windows are refused. Returns (o, initial_state).
    """
    op = "flashinfer.gated_delta_rule_mtp"
    only_absent(
        op,
        "no replay windows",
        cache_replayssm=cache_replayssm,
        replayssm_rawv=replayssm_rawv,
        replayssm_rawk=replayssm_rawk,
        replayssm_g=replayssm_g,
        replayssm_beta=replayssm_beta,
    )
    if disable_state_update is None:
        invalid(op, "disable_state_update", None, "True or False", "the engine's default changes")
    if ssm_state_indices is not None:
        if disable_state_update or intermediate_states_buffer is not None:
            rule = "without disable_state_update and without a buffer"
            invalid(op, "ssm_state_indices", ssm_state_indices, "None", rule)
        writes = dict(write_slots=ssm_state_indices, state_writes="per_token")
    else:
        writes = _writes(
            op, intermediate_states_buffer, disable_state_update, q, output_state_indices
        )
    o = _decode(
        op,
        locals(),
        initial_state=initial_state,
        state_layout="vk",
        read_slots=initial_state_indices,
        **writes,
    )
    return o, initial_state
