# SPDX-License-Identifier: Apache-2.0
"""Tells what a KDA layer of transformers gives the layer operators: Kimi Linear, GLM-5.3-Flash, Ling-3.0.

All three project q, k and v apart and convolve them as one tensor; a forget gate makes the gate of
each key channel, with a lower bound (GLM, Ling) or without (Kimi).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functional.kda import bound_argument

if TYPE_CHECKING:
    import torch

_PARTS = ("q_proj", "k_proj", "v_proj", "b_proj", "conv1d", "forget_gate", "o_norm", "o_proj")
_SIZES = ("num_heads", "head_dim", "conv_kernel_size", "layer_idx", "activation")
_FORGET = (("f_proj",), ("f_a_proj", "f_b_proj"))
_GATE = (("g_proj",), ("g_a_proj", "g_b_proj"))


def _projections(module: Any, choices: Any) -> list[Any] | None:
    """The first of `choices` that the module has in full."""
    for names in choices:
        if all(hasattr(module, name) for name in names):
            return [getattr(module, name) for name in names]
    return None


def _project(module: Any, choices: Any, x: torch.Tensor) -> torch.Tensor:
    for projection in _projections(module, choices) or ():
        x = projection(x)
    return x


def is_kda(layer: Any) -> bool:
    """A layer that calls Kimi delta attention, whatever else it has."""
    return hasattr(layer, "forget_gate") and hasattr(layer, "o_norm")


def is_known(layer: Any) -> bool:
    """Whether `inputs` and `constants` are all that such a layer is."""
    if not all(hasattr(layer, name) for name in _PARTS + _SIZES):
        return False
    forget, norm = layer.forget_gate, layer.o_norm
    return (
        all(hasattr(forget, name) for name in ("A_log", "dt_bias"))
        and _projections(forget, _FORGET) is not None
        and _projections(layer, _GATE) is not None
        and hasattr(norm, "variance_epsilon")
        and hasattr(norm, "activation")
    )


def _lower_bound(forget: Any) -> float | None:
    """Of bounded gates, else None."""
    if hasattr(forget, "safe_gate_lower_bound"):  # GLM
        found: float | None = forget.safe_gate_lower_bound
        return found
    return forget.lower_bound if getattr(forget, "safe_gate", False) else None


def _slices(layer: Any, pool: Any, axis: int) -> list[Any]:
    """The channels of q, k and v, as views."""
    width = layer.num_heads * layer.head_dim
    return [pool.narrow(axis, part * width, width) for part in range(3)]


def inputs(layer: Any, hidden_states: torch.Tensor) -> dict[str, Any]:
    """The operators' tensors that depend on the tokens."""
    heads = (*hidden_states.shape[:2], layer.num_heads, layer.head_dim)
    return {
        "qkv": layer.q_proj(hidden_states),
        "k": layer.k_proj(hidden_states),
        "v": layer.v_proj(hidden_states),
        "z": _project(layer, _GATE, hidden_states),
        "b": layer.b_proj(hidden_states),
        "a": _project(layer.forget_gate, _FORGET, hidden_states).view(heads),
    }


def constants(layer: Any) -> dict[str, Any]:
    """The arguments that depend on the layer alone."""
    forget, norm = layer.forget_gate, layer.o_norm
    weight = layer.conv1d.weight.squeeze(1)
    bias = layer.conv1d.bias
    arguments = dict(
        A_log=forget.A_log.view(-1),
        dt_bias=forget.dt_bias.view(layer.num_heads, layer.head_dim),
        norm_weight=norm.weight,
        num_k_heads=layer.num_heads,
        num_v_heads=layer.num_heads,
        head_k_dim=layer.head_dim,
        head_v_dim=layer.head_dim,
        norm_eps=norm.variance_epsilon,
        packing="separate",
        gate_activation=norm.activation,
        rounding="input",
        gate_lower_bound=bound_argument("transformers.kda_layer", _lower_bound(forget)),
    )
    names = ("conv_weight", "k_conv_weight", "v_conv_weight")
    arguments.update(zip(names, _slices(layer, weight, 0)))
    if bias is not None:
        arguments.update(zip(("conv_bias", "k_conv_bias", "v_conv_bias"), _slices(layer, bias, 0)))
    return arguments


def pools(layer: Any, name: str, pool: Any) -> dict[str, Any]:
    """A pool [N,D,L] of all channels as those of q, k and v."""
    if pool is None:
        return {}
    return dict(zip((name, f"k_{name}", f"v_{name}"), _slices(layer, pool, 1)))
