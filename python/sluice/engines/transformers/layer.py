# SPDX-License-Identifier: Apache-2.0
"""Runs a whole GatedDeltaNet or KDA layer of transformers in one call of Sluice between its
projections.

Three shapes of layers: separate qkv, z, b, a (Qwen3.5 and its MoE, Qwen4-exp), the interleaved
qkvz, ba (Qwen3-Next), and KDA's (kda_layer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import ops
from ..swap import needs_gradient
from . import kda_layer

if TYPE_CHECKING:
    import torch

_FLAT = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
_INTERLEAVED = ("in_proj_qkvz", "in_proj_ba")
_PARTS = ("conv1d", "A_log", "dt_bias", "norm", "out_proj", "layer_idx", "activation")
_SIZES = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "conv_kernel_size")


def packing_of(layer: Any) -> str | None:
    """ "flat", "interleaved", "kda", or None where the layer is not of a known shape."""
    if kda_layer.is_known(layer):
        return "kda"
    if not all(hasattr(layer, name) for name in _PARTS + _SIZES):
        return None
    if not hasattr(layer.norm, "variance_epsilon"):
        return None
    if all(hasattr(layer, name) for name in _FLAT):
        return "flat"
    return "interleaved" if all(hasattr(layer, name) for name in _INTERLEAVED) else None


def _entry(cache: Any, layer: Any) -> Any:
    """The cache's entry for the layer, None where its states are kept in another way."""
    entries = getattr(cache, "layers", ())
    entry = entries[layer.layer_idx] if layer.layer_idx < len(entries) else None
    names = ("conv_states", "recurrent_states", "has_previous_state")
    known = all(isinstance(getattr(entry, name, None), dict) for name in names)
    return entry if known else None


def _trains(layer: Any, hidden_states: torch.Tensor) -> bool:
    return needs_gradient(hidden_states, *layer.parameters())


def unfit(
    layer: Any, hidden_states: torch.Tensor, cache_params: Any = None, attention_mask: Any = None, **kwargs: Any
) -> str | None:
    """Why this call goes to the layer's own forward, or None."""
    if hidden_states.device.type not in ("cpu", "cuda"):
        return f"device {hidden_states.device.type}, Sluice has cpu and cuda"
    if layer.activation not in ("silu", "swish"):
        return f"activation {layer.activation} of the convolution"
    offsets = kwargs.get("cu_seq_lens_q")
    if offsets is None and kwargs.get("seq_idx") is not None:
        return "packed rows without cu_seq_lens_q"
    if offsets is not None and (cache_params is not None or hidden_states.shape[0] != 1):
        return "packed rows with a cache or in a batch: the layer's own forward with Sluice's functions"
    if cache_params is not None:
        entry = _entry(cache_params, layer)
        if entry is None:
            return "the cache is not of the form of transformers 5.17 to 5.23"
        if getattr(entry, "record_past", False):
            return "the cache records the past (assisted decoding)"
        if entry.has_previous_state[0] and _trains(layer, hidden_states):
            return "a gradient through a cache that goes on: the layer's own forward with Sluice's functions"
    if hasattr(layer.conv1d, "_hf_hook"):
        return "the convolution's weights are offloaded"
    return None


def _inputs(layer: Any, packing: str, hidden_states: torch.Tensor) -> dict[str, Any]:
    """The operators' qkv, z, b, a, of KDA k and v too."""
    if packing == "kda":
        return kda_layer.inputs(layer, hidden_states)
    if packing == "flat":
        values = [getattr(layer, name)(hidden_states) for name in _FLAT]
    else:
        qkv, b = (getattr(layer, name)(hidden_states) for name in _INTERLEAVED)
        values = [qkv, None, b, None]
    return dict(zip(("qkv", "z", "b", "a"), values))


def _constants(layer: Any, packing: str) -> dict[str, Any]:
    """The arguments that depend on the layer alone."""
    if packing == "kda":
        return kda_layer.constants(layer)
    gate = layer.norm.activation
    return dict(
        conv_weight=layer.conv1d.weight.squeeze(1),
        conv_bias=layer.conv1d.bias,
        A_log=layer.A_log,
        dt_bias=layer.dt_bias,
        norm_weight=layer.norm.weight,
        num_k_heads=layer.num_k_heads,
        num_v_heads=layer.num_v_heads,
        head_k_dim=layer.head_k_dim,
        head_v_dim=layer.head_v_dim,
        norm_eps=layer.norm.variance_epsilon,
        packing=packing,
        gate_activation="silu" if gate == "swish" else gate,
        rounding="hf",
    )


def _pools(layer: Any, packing: str, name: str, pool: Any) -> dict[str, Any]:
    """A pool of convolution states of all channels as the operators take it."""
    return kda_layer.pools(layer, name, pool) if packing == "kda" else {name: pool}


def _prefill(
    layer: Any,
    packing: str,
    arguments: Any,
    inputs: Any,
    cache: Any,
    conv_state: Any,
    state: Any,
) -> torch.Tensor:
    """Any number of tokens; the cache is given both new states."""
    final = conv_final = None
    if cache is not None:
        import torch

        qkv, batch = inputs["qkv"], inputs["qkv"].shape[0]
        channels = layer.conv1d.weight.shape[0]
        conv_final = qkv.new_empty((batch, channels, layer.conv_kernel_size))
        sizes = (arguments[name] for name in ("num_v_heads", "head_k_dim", "head_v_dim"))
        rows = (batch, *sizes)
        final = torch.empty(rows, dtype=torch.float32, device=qkv.device)
    out = ops.layer_prefill(
        **inputs,
        **_pools(layer, packing, "conv_initial", conv_state),
        **_pools(layer, packing, "conv_final", conv_final),
        initial_state=state,
        final_state=final,
        **arguments,
    )
    if cache is not None:
        _update(cache, layer, conv_final, final)
    return out


def _train(layer: Any, packing: str, arguments: Any, inputs: Any, cache: Any) -> torch.Tensor:
    """All of the layer, with gradients, from zero states."""
    import torch

    from ...nn.gated_delta_net import run_with_projection

    out, conv, final = run_with_projection(
        _output_projection(layer, packing),
        **inputs,
        **arguments,
        conv_columns=0 if cache is None else layer.conv_kernel_size,
        output_final_state=cache is not None,
    )
    if cache is not None:
        _update(cache, layer, torch.cat(conv, 1), final)
    return out


def _update(cache: Any, layer: Any, conv_state: Any, state: Any) -> None:
    cache.update_conv_state(conv_state, layer.layer_idx, conv_kernel_size=layer.conv_kernel_size)
    cache.update_recurrent_state(state, layer.layer_idx)


def _output_projection(layer: Any, packing: str) -> Any:
    return layer.o_proj if packing == "kda" else layer.out_proj


def forward(
    layer: Any,
    packing: str,
    hidden_states: torch.Tensor,
    cache_params: Any = None,
    attention_mask: torch.Tensor | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    **_: Any,
) -> torch.Tensor:
    """The layer's forward: hidden_states [B,T,hidden], attention_mask [B,T] (zeros mask inputs),
    the cache's states updated as the layer's own forward updates them, or cu_seq_lens_q [N+1] the offsets
    of documents in one row. Returns [B,T,hidden]."""
    if attention_mask is not None:
        masked = hidden_states * attention_mask[:, :, None]
        hidden_states = masked.to(hidden_states.dtype)
    conv_state = state = None
    if cache_params is not None:
        entry = _entry(cache_params, layer)
        if entry.has_previous_state[0]:
            conv_state, state = entry.conv_states[0], entry.recurrent_states[0]
    inputs = _inputs(layer, packing, hidden_states)
    arguments = {**_constants(layer, packing), "cu_seqlens": cu_seq_lens_q}
    if _trains(layer, hidden_states):
        return _train(layer, packing, arguments, inputs, cache_params)
    if conv_state is not None and state is not None and hidden_states.shape[1] == 1:
        # The cache's tensors keep their addresses: both states are updated in place.
        pools = _pools(layer, packing, "conv_initial", conv_state)
        out = ops.layer_decode(**inputs, **pools, initial_state=state, **arguments)
    else:
        out = _prefill(layer, packing, arguments, inputs, cache_params, conv_state, state)
    return _output_projection(layer, packing)(out.flatten(2))
