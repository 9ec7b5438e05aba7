# SPDX-License-Identifier: Apache-2.0
"""Modules of torch that train on Sluice: `GatedDeltaNet`. Needs torch; `sluice.nn.functional` has the operators."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from . import functional

__all__ = ["GatedDeltaNet", "functional"]


class _Norm(nn.Module):
    """The weight of the gated norm, under the name that transformers' layers give it."""

    def __init__(self, size: int, like: dict[str, Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, **like))


class GatedDeltaNet(nn.Module):
    """The linear attention layer of Qwen3-Next (packing "interleaved") and Qwen3.5 (packing "flat"), with the
    parameters of transformers' layers under their names: state dicts pass both ways. From zero states, for
    training; transformers' own layers serve, patched by sluice.engines.transformers.

    Args:
      hidden_size, num_k_heads, num_v_heads, head_k_dim, head_v_dim, conv_width, norm_eps: sizes.
      rounding: of the gated norm: "hf" rounds where transformers does, "once" where fla does.
    """

    def __init__(
        self,
        hidden_size: int,
        num_k_heads: int,
        num_v_heads: int,
        head_k_dim: int = 128,
        head_v_dim: int = 128,
        *,
        conv_width: int = 4,
        norm_eps: float = 1e-6,
        packing: str = "interleaved",
        rounding: str = "hf",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if packing not in ("interleaved", "flat"):
            raise ValueError(f"GatedDeltaNet: packing = {packing}, expected interleaved or flat")
        if num_v_heads % num_k_heads:
            raise ValueError(
                f"GatedDeltaNet: num_v_heads = {num_v_heads}, expected a multiple of {num_k_heads} (num_k_heads)"
            )
        like: dict[str, Any] = dict(device=device, dtype=dtype)
        self.num_k_heads, self.num_v_heads = num_k_heads, num_v_heads
        self.head_k_dim, self.head_v_dim = head_k_dim, head_v_dim
        self.norm_eps, self.rounding = norm_eps, rounding
        keys, values = num_k_heads * head_k_dim, num_v_heads * head_v_dim
        channels = 2 * keys + values

        def linear(outputs: int) -> nn.Linear:
            return nn.Linear(hidden_size, outputs, bias=False, **like)

        if packing == "interleaved":
            self.in_proj_qkvz = linear(channels + values)
            self.in_proj_ba = linear(2 * num_v_heads)
        else:
            self.in_proj_qkv, self.in_proj_z = linear(channels), linear(values)
            self.in_proj_b, self.in_proj_a = linear(num_v_heads), linear(num_v_heads)
        self.conv1d = nn.Conv1d(
            channels, channels, conv_width, groups=channels, padding=conv_width - 1, bias=False, **like
        )
        self.dt_bias = nn.Parameter(torch.ones(num_v_heads, **like))
        self.A_log = nn.Parameter(torch.empty(num_v_heads, **like).uniform_(math.log(0.01), math.log(16)))
        self.norm = _Norm(head_v_dim, like)
        self.out_proj = nn.Linear(values, hidden_size, bias=False, **like)

    @classmethod
    def from_transformers(cls, layer: Any, *, rounding: str = "hf") -> "GatedDeltaNet":
        """A module of a layer of transformers (Qwen3NextGatedDeltaNet, Qwen3_5GatedDeltaNet) that shares its
        parameters."""
        own = cls(
            layer.hidden_size, layer.num_k_heads, layer.num_v_heads, layer.head_k_dim, layer.head_v_dim,
            conv_width=layer.conv_kernel_size, norm_eps=layer.layer_norm_epsilon, rounding=rounding,
            packing="interleaved" if hasattr(layer, "in_proj_qkvz") else "flat", device="meta",
        )  # fmt: skip
        for name in ("in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "conv1d"):
            if hasattr(own, name):
                setattr(own, name, getattr(layer, name))
        own.dt_bias, own.A_log, own.out_proj = layer.dt_bias, layer.A_log, layer.out_proj
        own.norm.weight = layer.norm.weight
        return own

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """[q | k | v] of all heads, and z, b, a."""
        if not hasattr(self, "in_proj_qkvz"):
            return self.in_proj_qkv(x), self.in_proj_z(x), self.in_proj_b(x), self.in_proj_a(x)
        r = self.num_v_heads // self.num_k_heads
        head = [self.head_k_dim, self.head_k_dim, r * self.head_v_dim, r * self.head_v_dim]
        q, k, v, z = self.in_proj_qkvz(x).unflatten(-1, (self.num_k_heads, -1)).split(head, -1)
        b, a = self.in_proj_ba(x).unflatten(-1, (self.num_k_heads, -1)).split([r, r], -1)
        return torch.cat([q.flatten(2), k.flatten(2), v.flatten(2)], -1), z.flatten(2), b.flatten(2), a.flatten(2)

    def forward(self, hidden_states: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
        """hidden_states [B,T,hidden_size]; with cu_seqlens (int32 or int64 [N+1]) B is 1, and rows are N documents."""
        qkv, z, b, a = self._project(hidden_states)
        keys = self.num_k_heads * self.head_k_dim
        qkv = functional.causal_conv1d(qkv, self.conv1d.weight.squeeze(1), None, cu_seqlens)
        q, k, v = qkv.split([keys, keys, qkv.shape[-1] - 2 * keys], -1)
        heads_k, heads_v = (self.num_k_heads, self.head_k_dim), (self.num_v_heads, self.head_v_dim)
        o = functional.gated_delta_rule(
            q.unflatten(-1, heads_k), k.unflatten(-1, heads_k), v.unflatten(-1, heads_v), a, b, self.A_log,
            self.dt_bias, cu_seqlens, gate_space="raw", beta_space="logit",
        )  # fmt: skip
        out = functional.gated_rms_norm(
            o, z.unflatten(-1, heads_v), self.norm.weight, self.norm_eps, "silu", self.rounding
        )
        found: Tensor = self.out_proj(out.flatten(2))
        return found
