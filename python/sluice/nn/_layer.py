# SPDX-License-Identifier: Apache-2.0
"""Makes a whole layer, from its input projections to its gated norm or its output projection, one operator of torch
with gradients: torch.ops.sluice.train_layer. It keeps the projections and, if asked to, the delta rule's output;
its backward pass computes the rest again. Interleaved projections have layer_backward, which reads them where they
are. PERF: of others the parts' operators are as fast one by one, and faster by a convolution where the output
projection's gradient is asked for, which needs what the convolution gives again too."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._errors import Unsupported
from .._operators import as_rows, define, differentiate, new_like

# What may have a gradient, in the order of the operator's arguments and of its gradients.
INPUTS = (
    "qkv", "k", "v", "z", "b", "a", "conv_weight", "k_conv_weight", "v_conv_weight", "conv_bias", "k_conv_bias",
    "v_conv_bias", "A_log", "dt_bias", "norm_weight", "conv_initial", "k_conv_initial", "v_conv_initial",
    "initial_state", "out_weight",
)  # fmt: skip
OPTIONS = (
    "num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "norm_eps", "packing", "eigenvalues",
    "gate_activation", "rounding", "gate_lower_bound",
)  # fmt: skip
_REQUIRED = ("qkv", "b", "conv_weight", "norm_weight")
_ARGUMENTS = ", ".join(
    [f"Tensor{'' if name in _REQUIRED else '?'} {name}" for name in INPUTS]
    + ["Tensor? cu_seqlens", "int num_k_heads, int num_v_heads, int head_k_dim, int head_v_dim, float norm_eps"]
    + ["str packing, str eigenvalues, str gate_activation, str rounding, float gate_lower_bound"]
)
_PARTS = ("", "k_", "v_")
# What layer_prefill and layer_backward are told alike of interleaved projections.
_INTERLEAVED = (
    "qkv", "b", "conv_weight", "conv_bias", "A_log", "dt_bias", "norm_weight", "cu_seqlens", "conv_initial",
    "initial_state", "num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "norm_eps", "packing", "eigenvalues",
    "gate_activation",
)  # fmt: skip
Values = dict[str, Any]


def _named(arguments: Sequence[Any]) -> Values:
    return dict(zip((*INPUTS, "cu_seqlens", *OPTIONS), arguments))


def _outputs(x: Values, save_core: bool, columns: int, final_state: bool) -> list[Tensor]:
    """Memory for out, core, three convolution states and the final state; for what is not asked for, none."""
    qkv, cu = x["qkv"], x["cu_seqlens"]
    n = qkv.shape[0] if cu is None else cu.shape[0] - 1
    make = qkv.new_empty if cu is None else qkv.new_zeros
    heads = (*qkv.shape[:2], x["num_v_heads"], x["head_v_dim"])
    rows = [make(heads), make(heads if save_core else (0,))]
    for part in _PARTS:
        weight = x[f"{part}conv_weight"]
        rows.append(qkv.new_empty((0,) if weight is None or columns == 0 else (n, weight.shape[0], columns)))
    state = (n, x["num_v_heads"], x["head_k_dim"], x["head_v_dim"]) if final_state else (0,)
    return [*rows, qkv.new_empty(state, dtype=torch.float32)]


def _given(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None or tensor.numel() == 0 else tensor


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    *call, save_core, columns, final_state = arguments
    x = _named(call)
    out, core, *states, final = _outputs(x, save_core, columns, final_state)
    weight = x.pop("out_weight")
    x["qkv"] = as_rows(x["qkv"])
    _core.layer_prefill(
        out=out, core_out=_given(core), final_state=_given(final),
        **{f"{part}conv_final": _given(state) for part, state in zip(_PARTS, states)}, **x,
    )  # fmt: skip
    if weight is not None:
        out = torch.nn.functional.linear(out.flatten(2), weight)
    return out, core, *states, final


def _fake(*arguments: Any) -> tuple[Tensor, ...]:
    *call, save_core, columns, final_state = arguments
    x = _named(call)
    out, *others = _outputs(x, save_core, columns, final_state)
    if x["out_weight"] is not None:
        out = out.new_empty((*out.shape[:2], x["out_weight"].shape[0]))
    return out, *others


def _backward(*arguments: Any) -> list[Tensor]:
    d_out, d_conv, (d_final, core, wanted), call = arguments[0], arguments[1:4], arguments[4:7], arguments[7:]
    x = _named(call)
    asked = {name for name, asks in zip(INPUTS, wanted) if asks and x[name] is not None}
    x["qkv"] = as_rows(x["qkv"])
    if d_final is not None:
        d_final = d_final.contiguous()
    if x["packing"] == "interleaved":
        found = _interleaved_gradients(x, asked, d_out, (d_conv[0], d_final), core)
    else:
        found = _parts_gradients(_Parts(x, asked), d_out, d_conv, d_final, core)
    return [
        found[n] if n in found else torch.zeros_like(x[n]) if n in asked else x["qkv"].new_empty(0) for n in INPUTS
    ]


def _interleaved_gradients(x: Values, asked: set[str], d_out: Tensor | None, d_states: Any, core: Any) -> Values:
    packed = x["cu_seqlens"] is not None
    found = {name: new_like(x[name], packed) for name in asked if name != "out_weight"}
    heads = (*x["qkv"].shape[:2], x["num_v_heads"], x["head_v_dim"])
    weight, rounding = x["out_weight"], x["rounding"]
    # The operator has no rounding "input": there core has been rounded, which "once" leaves as it is.
    asks = d_out is not None and "out_weight" in asked
    out = None
    if core is None and (asks or rounding == "input"):
        out, core = _again(x)
    elif asks:
        out = _norm_again(x, core)
    if d_out is None:  # the states alone are used
        d_out = x["qkv"].new_zeros(heads)
    elif weight is not None:
        d_out = _through_projection(d_out, weight, out if asks else None, found).view(heads)
    places = {f"d{name}": place for name, place in found.items() if name not in ("out_weight", "initial_state")}
    _core.layer_backward(
        core_out=core, d_out=as_rows(d_out), d_conv_final=d_states[0], d_final_state=d_states[1],
        d_initial_state=found.get("initial_state"), **places,
        rounding="once" if rounding == "input" else rounding, **{name: x[name] for name in _INTERLEAVED},
    )  # fmt: skip
    return found


def _through_projection(d_out: Tensor, weight: Tensor, out: Tensor | None, found: Values) -> Tensor:
    """The gradient by what the output projection has read, `out`; with that its weight's goes to `found`."""
    rows = d_out.flatten(0, 1)
    if out is not None:
        found["out_weight"] = rows.t() @ out.view(rows.shape[0], -1)
    return rows @ weight


def _again(x: Values) -> tuple[Tensor, Tensor]:
    """The outputs of the gated norm and of the delta rule."""
    out, core = _outputs(x, True, 0, False)[:2]
    _core.layer_prefill(out=out, core_out=core, rounding=x["rounding"], **{name: x[name] for name in _INTERLEAVED})
    return out, core


def _norm_again(x: Values, core: Tensor) -> Tensor:
    """The output of the gated norm of what the forward pass kept."""
    H, HV, _, V = (x[name] for name in OPTIONS[:4])
    # z is no view of [B,T,HV,V], but one of [BT,H,r,V].
    z = x["qkv"].unflatten(-1, (H, -1))[..., -(HV // H * V) :].unflatten(-1, (HV // H, V)).flatten(0, 1)
    core = core.view(z.shape)
    out = torch.empty_like(core)
    _core.gated_rms_norm(out=out, **_norm(x, core, z))
    return out


def _norm(x: Values, core: Tensor, z: Tensor) -> Values:
    """Core has been rounded, which is what "input" says."""
    return dict(
        x=core, z=z, weight=x["norm_weight"], eps=x["norm_eps"], activation=x["gate_activation"],
        rounding="once" if x["rounding"] == "input" else x["rounding"],
    )  # fmt: skip


class _Parts:
    """The tensors of a layer whose gradients are those of its parts: rows of all channels, or of three projections."""

    def __init__(self, x: Values, asked: set[str]) -> None:
        self.x, self.asked, self.packed = x, asked, x["cu_seqlens"] is not None
        # Each convolution and the input that is its rows.
        self.inputs = {"": "qkv", "k_": "k", "v_": "v"} if x["packing"] == "separate" else {"": "qkv"}
        H, HV, K, V = (x[name] for name in OPTIONS[:4])
        self.heads_k, self.heads_v = (H, K), (HV, V)
        self.rows = [as_rows(x[name]) for name in self.inputs.values()]
        self.z, self.b, self.a = as_rows(x["z"]).unflatten(-1, self.heads_v), as_rows(x["b"]), as_rows(x["a"])
        self.found: Values = {}

    def gradient(self, name: str) -> Tensor | None:
        """Memory for the gradient by input `name`, if it is asked for."""
        if name in self.asked:
            self.found[name] = new_like(self.x[name], self.packed)
        return self.found.get(name)

    def heads(self, rows: list[Tensor]) -> list[Tensor]:
        """q, k, v by heads: views of convolved rows, or of their gradients."""
        shapes = (self.heads_k, self.heads_k, self.heads_v)
        if len(rows) == 1:
            rows = list(rows[0].split([heads * width for heads, width in shapes], -1))
        return [row.unflatten(-1, shape) for row, shape in zip(rows, shapes)]

    def conv(self, part: str, rows: Tensor) -> Values:
        weight, bias, initial = (self.x[f"{part}conv_{name}"] for name in ("weight", "bias", "initial"))
        return dict(
            x=rows, weight=weight, bias=bias, cu_seqlens=self.x["cu_seqlens"], initial_state=initial,
            activation="silu",
        )  # fmt: skip

    def rule(self, rows: list[Tensor]) -> Values:
        x, bounded = self.x, bool(self.x["gate_lower_bound"])
        given = ("A_log", "dt_bias", "cu_seqlens", "initial_state", "eigenvalues", "gate_lower_bound")
        return dict(
            zip("qkv", self.heads(rows)), gate=self.a, beta=self.b, beta_space="logit", qk_norm="l2",
            gate_space="raw_bounded" if bounded else "raw", **{name: x[name] for name in given},
        )  # fmt: skip


def _parts_gradients(layer: _Parts, d_out: Tensor | None, d_conv: Any, d_final: Any, core: Any) -> Values:
    convolved = [new_like(rows, layer.packed) for rows in layer.rows]
    for part, rows, out in zip(layer.inputs, layer.rows, convolved):
        _core.causal_conv1d(out=out, **layer.conv(part, rows))
    rule = layer.rule(convolved)
    if core is None:
        core = new_like(rule["v"], layer.packed)
        _core.chunk_forward(o=core, **rule)
    d_core = _norm_gradients(layer, core, d_out)
    d_rows, d_gates = ([new_like(t, layer.packed) for t in given] for given in (convolved, (layer.b, layer.a)))
    _core.chunk_backward(
        d_o=d_core, d_final_state=d_final,
        **dict(zip(("dq", "dk", "dv"), layer.heads(d_rows))), dbeta=d_gates[0], dgate=d_gates[1],
        dA_log=layer.gradient("A_log"), ddt_bias=layer.gradient("dt_bias"),
        d_initial_state=layer.gradient("initial_state"), **rule,
    )  # fmt: skip
    del rule, convolved, core, d_core
    for index, part in enumerate(layer.inputs):
        d_rows[index] = _conv_gradients(layer, part, layer.rows[index], d_rows[index], d_conv[index])
    layer.found.update(zip(("b", "a", *layer.inputs.values()), (*d_gates, *d_rows)))
    return layer.found


def _norm_gradients(layer: _Parts, core: Tensor, d_out: Tensor | None) -> Tensor:
    """Those of the norm and of the output projection behind it; returns the one by `core`."""
    norm, weight = _norm(layer.x, core, layer.z), layer.x["out_weight"]
    d_z = layer.gradient("z")
    if d_out is None:  # the states alone are used
        if d_z is not None:
            d_z.zero_()
        return torch.zeros_like(core)
    if weight is not None:
        out = None
        if "out_weight" in layer.asked:
            out = new_like(core)
            _core.gated_rms_norm(out=out, **norm)
        d_out = _through_projection(d_out, weight, out, layer.found)
    d_core = new_like(core, layer.packed)
    _core.gated_rms_norm_backward(
        d_out=as_rows(d_out).view(d_core.shape), dx=d_core, dz=None if d_z is None else d_z.view(d_core.shape),
        dweight=layer.gradient("norm_weight"), **norm,
    )  # fmt: skip
    return d_core


def _conv_gradients(layer: _Parts, part: str, rows: Tensor, d_rows: Tensor, d_state: Any) -> Tensor:
    """Those of one convolution; returns the one by its rows."""
    d_x = new_like(rows, layer.packed)
    _core.causal_conv1d_backward(
        d_out=d_rows, d_final_state=d_state, dx=d_x, dweight=layer.gradient(f"{part}conv_weight"),
        dbias=layer.gradient(f"{part}conv_bias"), d_initial_state=layer.gradient(f"{part}conv_initial"),
        **layer.conv(part, rows),
    )  # fmt: skip
    return d_x


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    save_core, ctx.call = inputs[-3], inputs[len(INPUTS) + 1 : -3]
    x = _named(inputs)
    if x["packing"] == "interleaved" and x["gate_lower_bound"]:
        raise Unsupported(
            f"gated_delta_net: gate_lower_bound = {x['gate_lower_bound']}, expected 0 with packing interleaved where "
            "an input requires a gradient (flat has it)"
        )
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[: len(INPUTS) + 1], output[1] if save_core else None)


def _differentiate(ctx: Any, d_out: Any, _: Any, *states: Any) -> tuple[Any, ...]:
    *saved, core = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[: len(INPUTS)])
    found = _train_layer_backward(d_out, *map(_given, states), core, wanted, *saved, *ctx.call)
    asked = [g if asks and x is not None else None for g, asks, x in zip(found, wanted, saved)]
    return *asked, *[None] * (len(ctx.call) + 4)


def _fake_backward(*arguments: Any) -> list[Tensor]:
    wanted, x = arguments[6], arguments[7:]
    return [new_like(t) if asks and t is not None else x[0].new_empty(0) for asks, t in zip(wanted, x)]


_GRADIENTS = ", ".join(f"Tensor? d_{name}" for name in ("out", "conv", "k_conv", "v_conv", "final"))
train_layer = define(
    "train_layer",
    f"({_ARGUMENTS}, bool save_core, int conv_columns, bool final_state) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _forward,
    _fake,
)
_train_layer_backward = define(
    "train_layer_backward",
    f"({_GRADIENTS}, Tensor? core, bool[] wanted, {_ARGUMENTS}) -> Tensor[]",
    _backward,
    _fake_backward,
)
differentiate("train_layer", _setup_context, _differentiate)
