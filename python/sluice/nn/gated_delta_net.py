# SPDX-License-Identifier: Apache-2.0
"""Defines the gated delta rule layer of Qwen3-Next, Qwen3.5 and flash-linear-attention as a module of torch."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .. import ops
from . import _weights, functional

_PROJECTIONS = ("in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")


class States(NamedTuple):
    """What a layer carries from one piece of a sequence to the next."""

    conv: Tensor  # [N,D,W-1], the inputs' dtype
    recurrent: Tensor  # [N,HV,K,V], float32


class _Norm(nn.Module):
    """The weight of the gated norm, under the name that transformers' layers give it."""

    def __init__(self, size: int, like: dict[str, Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, **like))


class GatedDeltaNet(nn.Module):
    """The linear attention layer of Qwen3-Next (packing "interleaved") and Qwen3.5 (packing "flat"), with the
    parameters of transformers' layers under their names: state dicts pass both ways, and fla's by `load_fla` and
    `fla_state_dict`.

    Args:
      hidden_size, num_k_heads, num_v_heads, head_k_dim, head_v_dim, conv_width, norm_eps: sizes.
      rounding: of the gated norm: "hf" rounds where transformers does, "once" where fla does.
      allow_neg_eigval: beta is doubled, as fla's layer does by the same name.
      save_core: keep the delta rule's output for the backward pass, which else computes it again.
      context_parallel: a sluice.distributed.ContextParallel: inputs are this rank's rows of its sequences.
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
        conv_bias: bool = False,
        norm_eps: float = 1e-6,
        packing: str = "interleaved",
        rounding: str = "hf",
        gate_activation: str = "silu",
        allow_neg_eigval: bool = False,
        save_core: bool = False,
        context_parallel: Any = None,
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
        self.packing, self.save_core = packing, save_core
        self.num_k_heads, self.num_v_heads = num_k_heads, num_v_heads
        self.head_k_dim, self.head_v_dim = head_k_dim, head_v_dim
        self.norm_eps, self.rounding, self.gate_activation = norm_eps, rounding, gate_activation
        self.allow_neg_eigval, self.context_parallel = allow_neg_eigval, context_parallel
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
            channels, channels, conv_width, groups=channels, padding=conv_width - 1, bias=conv_bias, **like
        )
        self.dt_bias = nn.Parameter(torch.ones(num_v_heads, **like))
        self.A_log = nn.Parameter(torch.empty(num_v_heads, **like).uniform_(math.log(0.01), math.log(16)))
        self.norm = _Norm(head_v_dim, like)
        self.out_proj = nn.Linear(values, hidden_size, bias=False, **like)

    @classmethod
    def from_transformers(cls, layer: Any, *, rounding: str = "hf", **options: Any) -> "GatedDeltaNet":
        """A module of a layer of transformers (Qwen3NextGatedDeltaNet, Qwen3_5GatedDeltaNet) that shares its
        parameters. options: as in the constructor."""
        own = cls(
            layer.hidden_size, layer.num_k_heads, layer.num_v_heads, layer.head_k_dim, layer.head_v_dim,
            conv_width=layer.conv_kernel_size, norm_eps=layer.layer_norm_epsilon, rounding=rounding,
            packing="interleaved" if hasattr(layer, "in_proj_qkvz") else "flat", device="meta", **options,
        )  # fmt: skip
        for name in (*_PROJECTIONS, "conv1d"):
            if hasattr(own, name):
                setattr(own, name, getattr(layer, name))
        own.dt_bias, own.A_log, own.out_proj = layer.dt_bias, layer.A_log, layer.out_proj
        own.norm.weight = layer.norm.weight
        return own

    @classmethod
    def from_fla(cls, layer: Any, **options: Any) -> "GatedDeltaNet":
        """A module with copies of the parameters of fla.layers.GatedDeltaNet, each of the type that it has there."""
        for name in ("use_gate", "use_short_conv"):
            if not getattr(layer, name):
                raise ValueError(f"GatedDeltaNet: {name} = False, expected True (from_fla)")
        norm = layer.o_norm
        activation = "silu" if norm.activation == "swish" else norm.activation
        own = cls(
            layer.hidden_size, layer.num_heads, layer.num_v_heads, layer.head_k_dim, layer.head_v_dim,
            conv_width=layer.conv_size, conv_bias=layer.conv_bias, norm_eps=norm.eps, packing="flat",
            rounding="once", gate_activation=activation, allow_neg_eigval=layer.allow_neg_eigval, device="meta",
            **options,
        )  # fmt: skip
        given = _weights.from_fla({name: t.detach().clone() for name, t in layer.state_dict().items()})
        own.load_state_dict(given, assign=True)
        return own.requires_grad_()

    @property
    def _sizes(self) -> _weights.Sizes:
        return self.num_k_heads, self.num_v_heads, self.head_k_dim, self.head_v_dim

    def load_fla(self, state_dict: Mapping[str, Tensor]) -> None:
        """Copies the parameters of a state dict of fla's layer (q_proj.weight, q_conv1d.weight, ..)."""
        given = _weights.from_fla(state_dict)
        self.load_state_dict(given if self.packing == "flat" else _weights.interleaved(given, self._sizes))

    def fla_state_dict(self) -> dict[str, Tensor]:
        """The parameters under the names of fla's layer."""
        own = self.state_dict()
        return _weights.to_fla(own if self.packing == "flat" else _weights.flat(own, self._sizes), self._sizes)

    def _arguments(self, x: Tensor) -> dict[str, Any]:
        """What the operators of a layer are told."""
        if self.packing == "interleaved":
            qkv, z, b, a = self.in_proj_qkvz(x), None, self.in_proj_ba(x), None
        else:
            qkv, z, b, a = self.in_proj_qkv(x), self.in_proj_z(x), self.in_proj_b(x), self.in_proj_a(x)
        return dict(
            qkv=qkv, z=z, b=b, a=a, conv_weight=self.conv1d.weight.squeeze(1), conv_bias=self.conv1d.bias,
            A_log=self.A_log, dt_bias=self.dt_bias, norm_weight=self.norm.weight, num_k_heads=self.num_k_heads,
            num_v_heads=self.num_v_heads, head_k_dim=self.head_k_dim, head_v_dim=self.head_v_dim,
            norm_eps=self.norm_eps, packing=self.packing, gate_activation=self.gate_activation,
            rounding=self.rounding, eigenvalues="negative" if self.allow_neg_eigval else "positive",
        )  # fmt: skip

    def new_states(self, sequences: int, dtype: Any = None) -> States:
        """Zero states: those that a sequence starts from."""
        weight = self.conv1d.weight
        conv = weight.new_zeros((sequences, weight.shape[0], weight.shape[2] - 1), dtype=dtype)
        heads = (self.num_v_heads, self.head_k_dim, self.head_v_dim)
        return States(conv, weight.new_zeros((sequences, *heads), dtype=torch.float32))

    def forward(
        self,
        hidden_states: Tensor,
        cu_seqlens: Tensor | None = None,
        states: States | None = None,
        return_states: bool = False,
    ) -> Any:
        """hidden_states [B,T,hidden_size]; with cu_seqlens (int32 or int64 [N+1]) B is 1, and rows are N documents.
        states: what the sequences start from, else zeros; gradients go to them and, by those returned, come
        from behind.

        Returns: [B,T,hidden_size]; with return_states (that, States)."""
        if self.context_parallel is not None:
            return _over_ranks(self, hidden_states, cu_seqlens=cu_seqlens, states=states, return_states=return_states)
        columns = self.conv1d.weight.shape[2] - 1 if return_states else 0
        out, conv, final = run_with_projection(
            self.out_proj, **self._arguments(hidden_states), cu_seqlens=cu_seqlens, save_core=self.save_core,
            conv_initial=None if states is None else states.conv,
            initial_state=None if states is None else states.recurrent, conv_columns=columns,
            output_final_state=return_states,
        )  # fmt: skip
        return (out, States(conv[0], final)) if return_states and final is not None else out

    @torch.no_grad()
    def step(self, hidden_states: Tensor, states: States) -> Tensor:
        """The next 1 to 16 tokens [B,T,hidden_size] of every sequence, without gradients; states are updated IN
        PLACE. Returns [B,T,hidden_size]."""
        out = ops.layer_decode(
            **self._arguments(hidden_states), conv_initial=states.conv, initial_state=states.recurrent
        )
        found: Tensor = self.out_proj(out.flatten(2))
        return found


def _over_ranks(layer: GatedDeltaNet, hidden_states: Tensor, **foreign: Any) -> Tensor:
    for name, value in foreign.items():
        if value is not None and value is not False:
            raise ValueError(f"GatedDeltaNet: {name} = given, expected None with context_parallel")
    from ..distributed.layer import gated_delta_net

    return gated_delta_net(layer, hidden_states)


def run_with_projection(projection: Any, **arguments: Any) -> tuple[Tensor, tuple[Tensor, ...], Tensor | None]:
    """`functional.gated_delta_net` and the output projection behind it. PERF: within the operator the projection's
    input need not be kept."""
    inside = _is_plain(projection)
    weight = projection.weight if inside else None
    out, conv, final = functional.gated_delta_net(**arguments, out_weight=weight)
    return out if inside else projection(out.flatten(2)), conv, final


def _is_plain(projection: Any) -> bool:
    """Whether a projection is nothing but the product with its weight: no bias, hooks, adapters, autocast."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if type(projection) is not nn.Linear or "forward" in vars(projection):
        return False
    if any(getattr(projection, name) for name in hooks) or getattr(projection, "bias", None) is not None:
        return False
    weight = projection.weight
    return type(weight) in (Tensor, nn.Parameter) and not torch.is_autocast_enabled(weight.device.type)
