# SPDX-License-Identifier: Apache-2.0
"""Gradients of the delta rule."""

from typing import Any, NamedTuple

from .. import _kinds
from .._types import Tensor


class Gradients(NamedTuple):
    """What `chunk_backward` found; None where there is no such input."""

    q: Any
    k: Any
    v: Any
    gate: Any
    beta: Any
    A_log: Any
    dt_bias: Any
    initial_state: Any


def chunk_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gate: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    d_o: Tensor,
    d_final_state: Tensor | None = None,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    initial_state: Tensor | None = None,
    dq: Tensor | None = None,
    dk: Tensor | None = None,
    dv: Tensor | None = None,
    dgate: Tensor | None = None,
    dbeta: Tensor | None = None,
    dA_log: Tensor | None = None,
    ddt_bias: Tensor | None = None,
    d_initial_state: Tensor | None = None,
    state_layout: str = "kv",
    scale: float | None = None,
    l2norm_eps: float = 1e-6,
    gate_space: str = "log",
    beta_space: str = "value",
    eigenvalues: str = "positive",
    qk_norm: str = "none",
    head_map: str = "block",
    rule: str = "gated_delta",
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> Gradients:
    """Gradients of `chunk_forward` by every input, from those of its outputs, for training.

    Args:
      d_o: [B,T,HV,V], inner stride 1: gradient of o.
      d_final_state: [N,HV,K,V] (or its "vk" form): gradient of the final state. None = zeros.
      initial_state: [N,HV,K,V], dense per sequence: no pools with slots here.
      dq, dk, dv, dgate, dbeta, dA_log, ddt_bias, d_initial_state: outputs of the shape of what they
        are by, dtypes free; allocated with its dtype if None, where that input is given.
      The rest as in `chunk_forward`, and as they were there.

    Torch tensors that require a gradient need no call of this: `chunk_forward` and the functions
    built on it are differentiable.

    Returns: Gradients: by raw q and k with qk_norm "l2", by what the gate holds, by logits. Zero for
      gates that the clamp at -128 holds.
    Source: docs/math.md section 8.
    """

    found = Gradients(
        _output(dq, q),
        _output(dk, k),
        _output(dv, v),
        _output(dgate, gate),
        _output(dbeta, beta),
        _output(dA_log, A_log),
        _output(ddt_bias, dt_bias),
        _output(d_initial_state, initial_state),
    )
    _kinds.entry("chunk_backward", q)(
        q,
        k,
        v,
        gate,
        beta,
        A_log,
        dt_bias,
        cu_seqlens,
        initial_state,
        d_o,
        d_final_state,
        *found,
        scale,
        l2norm_eps,
        gate_space,
        beta_space,
        eigenvalues,
        qk_norm,
        head_map,
        rule,
        state_layout,
        implementation,
        stream,
        workspace,
    )
    return found


def _output(given: Tensor | None, like: Tensor | None) -> Any:
    return _kinds.empty_like(like) if given is None and like is not None else given
