# SPDX-License-Identifier: Apache-2.0
"""Runs a whole layer of the gated delta rule or of KDA, from its projections to its gated norm, with outputs and
states made where they are not given."""

from typing import Any

from .. import _kinds, ops
from .._errors import InvalidArgument
from .._types import T, Tensor
from ._arguments import activation_name
from .kda import bound_argument, flat_biases, flat_rates


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


def _parts(op: str, name: str, given: Any) -> tuple[Any, Any, Any]:
    """Of q, k and v; of one tensor for all three (None, None) behind it."""
    if not isinstance(given, (tuple, list)):
        return given, None, None
    if len(given) != 3:
        raise InvalidArgument(f"{op}: {name} length = {len(given)}, expected 3 (those of q, k and v) or a tensor")
    return given[0], given[1], given[2]


def _pools(op: str, name: str, given: Any) -> dict[str, Any]:
    """The convolution states of all channels, or of q, k and v."""
    return dict(zip((name, f"k_{name}", f"v_{name}"), _parts(op, "conv_state", given)))


_SIZES = ("num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim")
# What the layer operators take as it is.
_SAME = ("z", "b", "norm_weight", "out", "scale", "norm_eps", "rounding", "implementation", "stream", "workspace")


def _arguments(op: str, x: dict[str, Any]) -> dict[str, Any]:
    """What the layer operators are told of a call whose arguments by name are `x`, but for its states."""
    heads, key_dim = x["num_v_heads"], x["head_k_dim"]
    found = {name: x[name] for name in (*_SIZES, *_SAME)}
    for name in ("qkv", "conv_weight", "conv_bias"):
        q, k, v = _parts(op, name, x[name])
        names = ("qkv", "k", "v") if name == "qkv" else (name, f"k_{name}", f"v_{name}")
        found.update(zip(names, (q, k, v)))
    f = x["f"]
    found.update(
        a=f if len(f.shape) == 4 else f.reshape(*f.shape[:2], heads, key_dim),
        A_log=flat_rates(x["A_log"]),
        dt_bias=flat_biases(x["dt_bias"], heads, key_dim),
        packing="flat" if found["k"] is None else "separate",
        state_layout="vk" if x["state_v_first"] else "kv",
        eigenvalues="negative" if x["allow_neg_eigval"] else "positive",
        gate_activation=activation_name(x["gate_activation"], op, "sigmoid"),
        gate_lower_bound=bound_argument(op, x["lower_bound"]),
    )
    return found


def _finals(x: dict[str, Any], call: dict[str, Any]) -> tuple[Any, Any]:
    """Memory for the convolution states, one or three, and for the state."""
    rows, cu_seqlens, given = call["qkv"], x["cu_seqlens"], x["conv_state"]
    first = given[0] if isinstance(given, (tuple, list)) else given
    n = rows.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    K, V = call["head_k_dim"], call["head_v_dim"]
    state = _kinds.empty(rows, (n, call["num_v_heads"], *((V, K) if x["state_v_first"] else (K, V))), "float32")
    columns = call["conv_weight"].shape[1] - 1 if first is None else first.shape[2]
    weights = [call[name] for name in ("conv_weight", "k_conv_weight", "v_conv_weight")]
    made = tuple(_kinds.empty(rows, (n, w.shape[0], columns)) for w in weights if w is not None)
    return made if len(made) > 1 else made[0], state


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
      A_log: HV numbers; dt_bias: [HV K] or [HV,K]; with lower_bound (< 0) either may be None.
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
    op, given = "kda_layer_prefill", dict(locals())
    call = _arguments(op, given)
    conv_final, final_state = _finals(given, call) if output_final_state else (None, None)
    out = ops.layer_prefill(
        cu_seqlens=cu_seqlens,
        initial_state=initial_state,
        final_state=final_state,
        has_initial_state=has_initial_state,
        **call,
        **_pools(op, "conv_initial", conv_state),
        **_pools(op, "conv_final", conv_final),
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
    op = "kda_layer_decode"
    return ops.layer_decode(
        initial_state=state,
        read_slots=slots,
        pad_below=pad_below,
        **_arguments(op, dict(locals())),
        **_pools(op, "conv_initial", conv_state),
    )
