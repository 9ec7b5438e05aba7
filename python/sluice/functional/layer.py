# SPDX-License-Identifier: Apache-2.0
"""Runs the whole layer, with outputs and states made where they are not given."""

from typing import Any

from .. import _kinds
from .._types import T, Tensor
from ._arguments import activation_name


def gdn_layer_prefill(
    qkv: T,
    z: Tensor | None = None,
    b: Tensor | None = None,
    a: Tensor | None = None,
    *,
    conv_weight: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_bias: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    conv_state: Tensor | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    has_initial_state: Tensor | None = None,
    scale: float | None = None,
    norm_eps: float = 1e-6,
    packing: str = "flat",
    allow_neg_eigval: bool = False,
    gate_activation: str = "silu",
    rounding: str = "once",
    out: T | None = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> tuple[T, T | None, T | None]:
    """The layer between its input projections and out_proj, for whole sequences: convolution +
    SiLU, gates, l2 norm, delta rule, gated RMSNorm. Arguments as in `sluice.ops.layer_prefill`
    (which also takes pools and slots), except:

      conv_state: [N,D,L] or None (zeros), D = 2HK+HVV. initial_state: [N,HV,K,V] or None.
      output_final_state: also return both states, out of place.

    Returns: (out [B,T,HV,V], conv state [N,D,L] in qkv's dtype or None, state float32 or None).

    Example:
      >>> H, HV, K, V = 2, 4, 16, 16
      >>> D = 2 * H * K + HV * V
      >>> rows = lambda n: np.full((1, 30, n), 0.1, np.float32)
      >>> out, conv_state, state = sluice.gdn_layer_prefill(
      ...     rows(D), rows(HV * V), rows(HV), rows(HV), conv_weight=np.ones((D, 4), np.float32),
      ...     A_log=np.zeros(HV, np.float32), dt_bias=np.zeros(HV, np.float32),
      ...     norm_weight=np.ones(V, np.float32), num_k_heads=H, num_v_heads=HV, head_k_dim=K,
      ...     head_v_dim=V, output_final_state=True)
      >>> out.shape, conv_state.shape, state.shape
      ((1, 30, 4, 16), (1, 128, 3), (1, 4, 16, 16))
    """
    final_state = conv_final = None
    if output_final_state:
        n = qkv.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
        inner = (head_v_dim, head_k_dim) if state_v_first else (head_k_dim, head_v_dim)
        final_state = _kinds.empty(qkv, (n, num_v_heads, *inner), "float32")
        columns = conv_weight.shape[1] - 1 if conv_state is None else conv_state.shape[2]
        conv_final = _kinds.empty(qkv, (n, conv_weight.shape[0], columns))
    if out is None:
        shape = (qkv.shape[0], qkv.shape[1], num_v_heads, head_v_dim)
        out = _kinds.empty(qkv, shape, zeros=cu_seqlens is not None)
    conv_initial = conv_state
    state_layout = "vk" if state_v_first else "kv"
    eigenvalues = "negative" if allow_neg_eigval else "positive"
    gate_activation = activation_name(gate_activation, "gdn_layer_prefill", "sigmoid")
    _kinds.entry("layer_prefill", qkv)(  # values of layer_prefill
        qkv, z, b, a, conv_weight, conv_bias, A_log, dt_bias, norm_weight, out, None, cu_seqlens,
        conv_initial, conv_final, None, initial_state, final_state, state_layout, None, None,
        has_initial_state, 0, num_k_heads, num_v_heads, head_k_dim, head_v_dim, 0, scale, 1e-06,
        norm_eps, packing, "shift", eigenvalues, "block", gate_activation, rounding, implementation,
        stream, workspace
    )
    return out, conv_final, final_state


def gdn_layer_decode(
    qkv: T,
    z: Tensor | None = None,
    b: Tensor | None = None,
    a: Tensor | None = None,
    *,
    conv_state: Tensor,
    state: Tensor,
    conv_weight: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    norm_weight: Tensor,
    num_k_heads: int,
    num_v_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    conv_bias: Tensor | None = None,
    slots: Tensor | None = None,
    pad_below: int = 0,
    state_v_first: bool = False,
    scale: float | None = None,
    norm_eps: float = 1e-6,
    packing: str = "flat",
    allow_neg_eigval: bool = False,
    gate_activation: str = "silu",
    rounding: str = "once",
    out: T | None = None,
    implementation: str = "auto",
    stream: Any = None,
    workspace: Tensor | None = None,
) -> T:
    """`gdn_layer_prefill` for 1 to 16 tokens per sequence; conv_state [slots,D,L] and state
    [slots,HV,K,V] are updated IN PLACE. slots: int32/int64 [N], default n; below pad_below is
    padding. `sluice.ops.layer_decode` has the rest (speculation, rings, packed rows).

    Returns: out [B,T,HV,V].

    Example:
      >>> H, HV, K, V = 2, 4, 16, 16
      >>> D = 2 * H * K + HV * V
      >>> rows = lambda n: np.full((3, 1, n), 0.1, np.float32)
      >>> state, conv_state = np.zeros((3, HV, K, V), np.float32), np.zeros((3, D, 3), np.float32)
      >>> out = sluice.gdn_layer_decode(
      ...     rows(D), rows(HV * V), rows(HV), rows(HV), conv_state=conv_state, state=state,
      ...     conv_weight=np.ones((D, 4), np.float32), A_log=np.zeros(HV, np.float32),
      ...     dt_bias=np.zeros(HV, np.float32), norm_weight=np.ones(V, np.float32), num_k_heads=H,
      ...     num_v_heads=HV, head_k_dim=K, head_v_dim=V)
      >>> out.shape, bool(state.any())
      ((3, 1, 4, 16), True)
    """
    if out is None:
        out = _kinds.empty(qkv, (qkv.shape[0], qkv.shape[1], num_v_heads, head_v_dim))
    conv_initial = conv_state
    initial_state = state
    state_layout = "vk" if state_v_first else "kv"
    read_slots = slots
    eigenvalues = "negative" if allow_neg_eigval else "positive"
    gate_activation = activation_name(gate_activation, "gdn_layer_decode", "sigmoid")
    _kinds.entry("layer_decode", qkv)(  # values of layer_decode
        qkv, z, b, a, conv_weight, conv_bias, A_log, dt_bias, norm_weight, out, None, None,
        conv_initial, None, None, None, initial_state, None, state_layout, read_slots, None, None,
        pad_below, num_k_heads, num_v_heads, head_k_dim, head_v_dim, 0, scale, 1e-06, norm_eps,
        packing, "shift", eigenvalues, "block", gate_activation, rounding, "last", implementation,
        None, None, None, None, None, None, "auto", stream, workspace
    )
    return out
