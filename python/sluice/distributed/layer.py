# SPDX-License-Identifier: Apache-2.0
"""Runs a whole layer (sluice.nn.GatedDeltaNet) over sequences that are cut over ranks."""

from typing import Any

import torch
from torch import Tensor

from ..nn import _weights, functional


def gated_delta_net(layer: Any, hidden_states: Tensor) -> Tensor:
    """The layer's output [1,T,hidden_size] of this rank's rows, from zero states. What the convolution needs of other
    ranks is exchanged while the own rows are projected: the rows before each fragment are sent as they come, which
    is fewer bytes than their projections are, and projected here."""
    context, width = layer.context_parallel, layer.conv1d.kernel_size[0]
    if hidden_states.dim() != 3 or hidden_states.shape[0] != 1:
        raise ValueError(
            f"GatedDeltaNet: hidden_states.shape = {tuple(hidden_states.shape)}, expected [1, T, hidden_size] "
            "(context_parallel: the rows of this rank's fragments)"
        )
    sent = context.send_halo(hidden_states, width)
    qkv, z, b, a = project(layer, hidden_states)
    before = project(layer, context.receive_halo(sent, width))[0]
    qkv = context.causal_conv1d(qkv, layer.conv1d.weight.squeeze(1), layer.conv1d.bias, "silu", before=before)
    keys = layer.num_k_heads * layer.head_k_dim
    q, k, v = qkv.split([keys, keys, qkv.shape[-1] - 2 * keys], -1)
    heads_k, heads_v = (layer.num_k_heads, layer.head_k_dim), (layer.num_v_heads, layer.head_v_dim)
    o, _ = context.chunk_forward(
        q.unflatten(-1, heads_k), k.unflatten(-1, heads_k), v.unflatten(-1, heads_v), a, b, layer.A_log, layer.dt_bias,
        gate_space="raw", beta_space="logit", qk_norm="l2",
        eigenvalues="negative" if layer.allow_neg_eigval else "positive",
    )  # fmt: skip
    out = functional.gated_rms_norm(
        o, z.unflatten(-1, heads_v), layer.norm.weight, layer.norm_eps, layer.gate_activation, layer.rounding
    )
    found: Tensor = layer.out_proj(out.flatten(2))
    return found


def project(layer: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[q | k | v] of all heads, and z, b, a."""
    if not hasattr(layer, "in_proj_qkvz"):
        return layer.in_proj_qkv(x), layer.in_proj_z(x), layer.in_proj_b(x), layer.in_proj_a(x)
    heads, (wide, narrow) = layer.num_k_heads, _weights.by_head(layer._sizes)
    *qkv, z = _weights.parts_of_heads(layer.in_proj_qkvz(x), heads, wide, 2)
    b, a = _weights.parts_of_heads(layer.in_proj_ba(x), heads, narrow, 2)
    return torch.cat(qkv, -1), z, b, a
