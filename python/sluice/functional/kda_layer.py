# SPDX-License-Identifier: Apache-2.0
"""Runs a whole layer of KDA, from its projections to its gated norm, with outputs and states made
where they are not given."""

from typing import Any

from .. import _kinds, ops
from .._types import Tensor
from ._arguments import activation_name
from .kda import flat_biases, flat_rates


def _parts(given: Any) -> tuple[Any, Any, Any]:
    """Of q, k and v; of one tensor for all three (None, None) behind it."""
    if isinstance(given, (tuple, list)):
        q, k, v = given
        return q, k, v
    return given, None, None


def _projections(
    qkv: Any, f: Any, conv_weight: Any, conv_bias: Any, A_log: Any, dt_bias: Any, sizes: Any
) -> dict[str, Any]:
    """What the layer operators call the inputs of a KDA layer."""
    _, heads, key_dim, _ = sizes
    q, k, v = _parts(qkv)
    weight, k_weight, v_weight = _parts(conv_weight)
    bias, k_bias, v_bias = _parts(conv_bias)
    return {
        "qkv": q,
        "k": k,
        "v": v,
        "a": f if len(f.shape) == 4 else f.reshape(*f.shape[:2], heads, key_dim),
        "conv_weight": weight,
        "k_conv_weight": k_weight,
        "v_conv_weight": v_weight,
        "conv_bias": bias,
        "k_conv_bias": k_bias,
        "v_conv_bias": v_bias,
        "A_log": flat_rates(A_log),
        "dt_bias": flat_biases(dt_bias, heads, key_dim),
        "packing": "flat" if k is None else "separate",
        **dict(zip(("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim"), sizes)),
    }


def _pools(name: str, given: Any) -> dict[str, Any]:
    q, k, v = _parts(given)
    return {name: q, f"k_{name}": k, f"v_{name}": v}


def kda_layer_prefill(
    qkv: Any,
    f: Tensor,
    b: Tensor,
    z: Tensor,
    *,
    conv_weight: Any,
    A_log: Tensor | None,
    dt_bias: Tensor | None,
    norm_weight: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    lower_bound: float | None = None,
    conv_bias: Any = None,
    cu_seqlens: Tensor | None = None,
    conv_state: Any = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    has_initial_state: Tensor | None = None,
    scale: float | None = None,
    norm_eps: float = 1e-5,
    allow_neg_eigval: bool = False,
    gate_activation: str = "sigmoid",
    rounding: str = "once",
    out: Any = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[Any, Any, Any]:
    """A KDA layer between its input projections and o_proj, for whole sequences: convolutions +
    SiLU, gates, l2 norm, the delta rule with a gate for each key channel, gated RMSNorm.

    Args:
      qkv: [B,T,2HK+HVV], or q [B,T,HK], k [B,T,HK] and v [B,T,HVV] as a tuple. With a tuple
        conv_weight, conv_bias and conv_state are tuples of three as well.
      f: [B,T,HV K] or [B,T,HV,K]: raw gates, as in `chunk_kda` with use_gate_in_kernel.
      b: [B,T,HV]: logits of beta. z: [B,T,HVV]: gates of the norm.
      conv_weight: [D,W], W in 2, 3, 4. conv_bias: [D] or None. conv_state: [N,D,L] or None (zeros).
      A_log: HV numbers; dt_bias: [HV K] or [HV,K]; with lower_bound either may be None.
      initial_state: [N,HV,K,V] or None. output_final_state: also return both states, out of place.
      `sluice.ops.layer_prefill` has pools and slots.

    Returns: (out [B,T,HV,V], conv states in q's dtype or None, state float32 or None).

    Example:
      >>> H, K = 2, 16
      >>> rows = lambda n: np.full((1, 30, n), 0.1, np.float32)
      >>> out, conv_state, state = sluice.kda_layer_prefill(
      ...     rows(3 * H * K), rows(H * K), rows(H), rows(H * K),
      ...     conv_weight=np.ones((3 * H * K, 4), np.float32), A_log=np.zeros(H, np.float32),
      ...     dt_bias=np.zeros(H * K, np.float32), norm_weight=np.ones(K, np.float32), num_k_heads=H,
      ...     num_v_heads=H, head_k_dim=K, head_v_dim=K, output_final_state=True)
      >>> out.shape, conv_state.shape, state.shape
      ((1, 30, 2, 16), (1, 96, 3), (1, 2, 16, 16))
    """
    sizes = (num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    inputs = _projections(qkv, f, conv_weight, conv_bias, A_log, dt_bias, sizes)
    rows, final_state, conv_final = inputs["qkv"], None, None
    if output_final_state:
        n = rows.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        inner = (head_v_dim, head_k_dim) if state_v_first else (head_k_dim, head_v_dim)
        final_state = _kinds.empty(rows, (n, num_v_heads, *inner), "float32")
        given = _parts(conv_state)[0]
        columns = inputs["conv_weight"].shape[1] - 1 if given is None else given.shape[2]
        made = [
            None if weight is None else _kinds.empty(rows, (n, weight.shape[0], columns))
            for weight in _parts(conv_weight)
        ]
        conv_final = made[0] if made[1] is None else tuple(made)
    out = ops.layer_prefill(
        z=z,
        b=b,
        norm_weight=norm_weight,
        out=out,
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        state_layout="vk" if state_v_first else "kv",
        has_initial_state=has_initial_state,
        scale=scale,
        norm_eps=norm_eps,
        eigenvalues="negative" if allow_neg_eigval else "positive",
        gate_activation=activation_name(gate_activation, "kda_layer_prefill", "sigmoid"),
        rounding=rounding,
        gate_lower_bound=lower_bound or 0.0,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
        **inputs,
        **_pools("conv_initial", conv_state),
        **_pools("conv_final", conv_final),
    )
    return out, conv_final, final_state


def kda_layer_decode(
    qkv: Any,
    f: Tensor,
    b: Tensor,
    z: Tensor,
    *,
    conv_state: Any,
    state: Tensor,
    conv_weight: Any,
    A_log: Tensor | None,
    dt_bias: Tensor | None,
    norm_weight: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    lower_bound: float | None = None,
    conv_bias: Any = None,
    slots: Tensor | None = None,
    pad_below: int = 0,
    state_v_first: bool = False,
    scale: float | None = None,
    norm_eps: float = 1e-5,
    allow_neg_eigval: bool = False,
    gate_activation: str = "sigmoid",
    rounding: str = "once",
    out: Any = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> Any:
    """`kda_layer_prefill` for 1 to 16 tokens per sequence; conv_state [slots,D,L] (or three of them)
    and state [slots,HV,K,V] are updated IN PLACE. slots: int32/int64 [N], default n; below pad_below
    is padding. `sluice.ops.layer_decode` has the rest (speculation, packed rows).

    Returns: out [B,T,HV,V].

    Example:
      >>> H, K = 2, 16
      >>> rows = lambda n: np.full((3, 1, n), 0.1, np.float32)
      >>> state, conv_state = np.zeros((3, H, K, K), np.float32), np.zeros((3, 3 * H * K, 3), np.float32)
      >>> out = sluice.kda_layer_decode(
      ...     rows(3 * H * K), rows(H * K), rows(H), rows(H * K), conv_state=conv_state, state=state,
      ...     conv_weight=np.ones((3 * H * K, 4), np.float32), A_log=np.zeros(H, np.float32),
      ...     dt_bias=np.zeros(H * K, np.float32), norm_weight=np.ones(K, np.float32), num_k_heads=H,
      ...     num_v_heads=H, head_k_dim=K, head_v_dim=K)
      >>> out.shape, bool(state.any())
      ((3, 1, 2, 16), True)
    """
    sizes = (num_k_heads, num_v_heads, head_k_dim, head_v_dim)
    return ops.layer_decode(
        z=z,
        b=b,
        norm_weight=norm_weight,
        out=out,
        initial_state=state,
        state_layout="vk" if state_v_first else "kv",
        read_slots=slots,
        pad_below=pad_below,
        scale=scale,
        norm_eps=norm_eps,
        eigenvalues="negative" if allow_neg_eigval else "positive",
        gate_activation=activation_name(gate_activation, "kda_layer_decode", "sigmoid"),
        rounding=rounding,
        gate_lower_bound=lower_bound or 0.0,
        implementation=implementation,
        stream=stream,
        workspace=workspace,
        **_projections(qkv, f, conv_weight, conv_bias, A_log, dt_bias, sizes),
        **_pools("conv_initial", conv_state),
    )
