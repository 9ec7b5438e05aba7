# SPDX-License-Identifier: Apache-2.0
"""Offers key-wise gates with fla's signatures: KDA (Kimi delta attention) and gated linear
attention."""

from typing import Any

from .._errors import Unsupported
from .._types import T, Tensor
from .gated_delta_rule import fused_recurrent_gated_delta_rule
from .simple_gla import fused_recurrent_simple_gla


def fused_recurrent_kda(
    q: T,
    k: T,
    v: T,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    out: T | None = None,
    final_state: T | None = None,
    max_tokens: int | None = None,
    allow_chunks: bool = False,
    read_slots: Tensor | None = None,
    write_slots: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    pad_below: int = 0,
    num_accepted: Tensor | None = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """KDA token by token: the gated delta rule with one decay for each channel of k,
      S_t = diag(alpha_t) S_{t-1} + k_t (beta_t (v_t - (diag(alpha_t) S_{t-1})^T k_t))^T.

    g: [B,T,HV,K] log gates <= 0. use_gate_in_kernel (with A_log, dt_bias) and lower_bound are
    refused (Unsupported): pass the gates. The rest as in `fused_recurrent_gated_delta_rule`.

    Returns: (o, final state or None).
    Source: Kimi Team, Kimi Linear, arXiv:2510.26692.
    """
    op = "fused_recurrent_kda"
    if use_gate_in_kernel:
        raise Unsupported(f"{op}: use_gate_in_kernel = True, expected False (pass log gates)")
    for name, value in (("A_log", A_log), ("dt_bias", dt_bias), ("lower_bound", lower_bound)):
        if value is not None:
            raise Unsupported(f"{op}: {name} = given, expected None (pass log gates)")
    return fused_recurrent_gated_delta_rule(
        q,
        k,
        v,
        gk=g,
        beta=beta,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel,
        allow_neg_eigval=allow_neg_eigval,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
        out=out,
        final_state=final_state,
        max_tokens=max_tokens,
        allow_chunks=allow_chunks,
        read_slots=read_slots,
        write_slots=write_slots,
        has_initial_state=has_initial_state,
        pad_below=pad_below,
        num_accepted=num_accepted,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )


def fused_recurrent_gla(
    q: T,
    k: T,
    v: T,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    out: T | None = None,
    final_state: T | None = None,
    max_tokens: int | None = None,
    allow_chunks: bool = False,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None]:
    """Gated linear attention token by token: S_t = diag(alpha_t) S_{t-1} + k_t v_t^T.

    gk: [B,T,HV,K] log gates <= 0; None = no decay. gv and reverse are refused (Unsupported). The
    rest as in `fused_recurrent_simple_gla`.

    Returns: (o, final state or None).
    Source: Yang et al., Gated Linear Attention Transformers, arXiv:2312.06635.
    """
    op = "fused_recurrent_gla"
    if gv is not None:
        raise Unsupported(f"{op}: gv = given, expected None (gates are per head or key-wise)")
    if reverse:
        raise Unsupported(f"{op}: reverse = True, expected False (pass flipped rows)")
    return fused_recurrent_simple_gla(
        q,
        k,
        v,
        gk,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
        out=out,
        final_state=final_state,
        max_tokens=max_tokens,
        allow_chunks=allow_chunks,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
    )
