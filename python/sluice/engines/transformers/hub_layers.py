# SPDX-License-Identifier: Apache-2.0
"""Wraps the functions of `ops` as the layers that Hugging Face's `kernels` puts in place of transformers' functions:
stateless modules whose forward has the parameters of the function of that name. scripts/build_hub_kernel.py exports
them as a kernel's `layers`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from . import ops


def _packed(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """What an operator reads of a model's keywords."""
    return {name: given[name] for name in names if given.get(name) is not None}


class chunk_gated_delta_rule(nn.Module):
    can_torch_compile = True

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        chunk_size: int = 64,
        initial_state: torch.Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        more = _packed(kwargs, "cu_seqlens", "cu_seq_lens_q")
        return ops.chunk_gated_delta_rule(
            query, key, value, g, beta, chunk_size, initial_state, output_final_state,
            use_qk_l2norm_in_kernel, **more,
        )  # fmt: skip


class recurrent_gated_delta_rule(nn.Module):
    can_torch_compile = True

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: torch.Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        more = _packed(kwargs, "cu_seqlens", "cu_seq_lens_q")
        return ops.fused_recurrent_gated_delta_rule(
            query, key, value, g, beta, initial_state, output_final_state, use_qk_l2norm_in_kernel, **more
        )


class causal_conv1d_fn(nn.Module):
    can_torch_compile = True

    def forward(
        self,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        more = _packed(kwargs, "seq_idx", "cu_seq_lens_q")
        return ops.causal_conv1d_fn(hidden_states, weight, bias, activation, **more)


class causal_conv1d_update(nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(
        self,
        hidden_states: torch.Tensor,
        conv_state: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
    ) -> torch.Tensor:
        return ops.causal_conv1d_update(hidden_states, conv_state, weight, bias, activation)


# KDA: the same with a gate for each channel of k.
class chunk_kda(nn.Module):
    can_torch_compile = True
    forward = chunk_gated_delta_rule.forward


class fused_recurrent_kda(nn.Module):
    can_torch_compile = True
    forward = recurrent_gated_delta_rule.forward
