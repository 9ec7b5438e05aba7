# SPDX-License-Identifier: Apache-2.0
"""Offers `chunk_summary`, `state_fold`. Made by ops/generate.py from ops/manifest.json."""

from typing import Any

from .. import _kinds
from .._types import Tensor


def chunk_summary(
    k: Tensor,
    v: Tensor,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    q: Tensor | None = None,
    d_o: Tensor | None = None,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    wanted: Tensor | None = None,
    transition: Tensor | None = None,
    addend: Tensor | None = None,
    forgotten: Tensor | None = None,
    scale: float | None = None,
    l2norm_eps: float = 1e-06,
    gate_space: str = "log",
    beta_space: str = "value",
    eigenvalues: str = "positive",
    qk_norm: str = "none",
    head_map: str = "block",
    rule: str = "gated_delta",
    direction: str = "forward",
    history: str = "auto",
    implementation: str = "auto",
    gate_lower_bound: float = 0.0,
    stream: Any = None,
    workspace: Tensor | None = None,
) -> None:
    """What the pieces of sequences do to the states that enter them: one matrix M and one addend N
    a piece and head.

    S_out = M S_in + N for any state; reverse: D_in = M^T D_out + N_D for its gradient. With state_fold the
    means to cut a sequence over devices, exactly. Source: docs/math.md section 9.

    Args:
      k: [B,T,H,K]: keys, inner stride 1.
      v: [B,T,HV,V]: values, inner stride 1.
      gate: [B,T,HV] or [B,T,HV,K]: what it holds is gate_space; absent = no decay. Of rank 4 it is
        key-wise (KDA, GLA): one decay for each row of the state, inner stride 1.
      beta: [B,T,HV]: write strengths; what they hold is beta_space; absent = 1.
      q: [B,T,H,K]: queries, inner stride 1; reverse only.
      d_o: [B,T,HV,V]: gradient of o, inner stride 1; reverse only.
      A_log: [HV]: of raw gates; absent in bounded ones = 0.
      dt_bias: [HV] or [HV,K]: of raw gates; absent in bounded and key-wise ones = 0.
      cu_seqlens: int32/int64 [N+1]: offsets of packed pieces, B = 1.
      wanted: int32/int64 [N]: bit 0: the addend is wanted, bit 1: the transition; absent = both.
        What is not wanted may hold anything.
      transition: [N,HV,K,K]: M of each piece, contiguous inside a piece.
      addend: [N,HV,K,V]: N of each piece (reverse: that of its gradient), contiguous inside a
        piece.
      forgotten: bool/uint8 [N,HV]: 1 = the piece forgets what came before it, and M is zeros; with
        transition only.
      scale: factor of o; absent = K^-0.5; 0.0 is zero.
      l2norm_eps: epsilon of the l2 norm of q and k.
      gate_space: what `gate` holds: "log" (g = ln(alpha), g <= 0), "linear" (alpha = exp(g), 0 <=
        alpha <= 1), "raw" (a: g = -exp(A_log) softplus(a + dt_bias)), "raw_bounded" (a: g =
        gate_lower_bound sigmoid(exp(A_log) (a + dt_bias))).
      beta_space: what `beta` holds: "value" (the write strength itself), "logit" (b: beta =
        sigmoid(b)).
      eigenvalues: range of the transition's eigenvalues along k: "positive" (beta as given),
        "negative" (2 beta).
      qk_norm: normalisation of q and k inside: "none" (none), "l2" (x rsqrt(sum(x^2) +
        l2norm_eps)).
      head_map: which key head value head h reads: "block" (h // r), "cyclic" (h mod H (ggml)).
      rule: the recurrence: "gated_delta" (S <- alpha S + k (beta (v - (alpha S)^T k))^T),
        "linear_attention" (S <- alpha S + k v^T (simple GLA); beta must be absent).
      direction: which way chunk_cumsum sums, chunk_summary and state_fold carry: "forward" (tokens
        up to and with i; states), "reverse" (tokens from i on; gradients of states).
      history: may segments begin from zero where a head has forgotten what came before: "auto"
        (where that is sure to hold), "strict" (they may not), "forget" (they may: the caller says
        that it holds).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      gate_lower_bound: of bounded gates, < 0: what their logarithms stay above.
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns nothing.
    """
    _kinds.entry("chunk_summary", k)(
        q, k, v, gate, beta, d_o, A_log, dt_bias, cu_seqlens, wanted, transition, addend, forgotten,
        scale, l2norm_eps, gate_space, beta_space, eigenvalues, qk_norm, head_map, rule, direction,
        history, implementation, stream, workspace, gate_lower_bound
    )


def state_fold(
    transition: Tensor,
    addend: Tensor,
    cu_chains: Tensor,
    route_pieces: Tensor,
    route_states: Tensor,
    *,
    forgotten: Tensor | None = None,
    initial: Tensor | None = None,
    entering: Tensor | None = None,
    final: Tensor | None = None,
    direction: str = "forward",
    state_layout: str = "kv",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> None:
    """The states that enter the pieces of sequences, from the pieces' maps.

    Chain by chain S <- addend + transition S, in the order of the route (reverse: from its end, with
    transition^T); before each step S goes to its place in entering. Source: docs/math.md section 9.

    Args:
      transition: [P,HV,K,K]: M of each piece, contiguous inside a piece.
      addend: [P,HV,K,V]: N of each piece (reverse: that of its gradient), contiguous inside a
        piece.
      cu_chains: int32/int64 [N+1]: offsets of the N chains in the route.
      route_pieces: int32/int64 [S]: the piece of each step; < 0 = none.
      route_states: int32/int64 [S]: where its entering state goes; < 0 = nowhere.
      forgotten: bool/uint8 [P,HV]: 1 = the piece forgets what came before it: M is zeros.
      initial: [N,HV,K,V]: states that chains start from; reverse: gradients of their final states.
      entering: [E,HV,K,V]: states that enter the pieces.
      final: [N,HV,K,V]: states at the ends of chains; reverse: gradients of their initial states.
      direction: which way chunk_cumsum sums, chunk_summary and state_fold carry: "forward" (tokens
        up to and with i; states), "reverse" (tokens from i on; gradients of states).
      state_layout: order of a state's inner dimensions: "kv" ([..,K,V]), "vk" ([..,V,K]).
      implementation: which implementation runs: "auto" (by the views' device, or by SLUICE_IMPL),
        "reference" (float64, token by token), "reference-chunked" (float64, chunk form), "cpu" (CPU
        kernels), "cuda" (CUDA kernels).
      stream, workspace: see the module; a workspace is any 1-D tensor of the device.

    Returns nothing.
    """
    _kinds.entry("state_fold", transition)(
        transition, addend, forgotten, cu_chains, route_pieces, route_states, initial, entering,
        final, direction, state_layout, implementation, stream, workspace
    )
