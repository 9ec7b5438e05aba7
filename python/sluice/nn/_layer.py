# SPDX-License-Identifier: Apache-2.0
"""Makes a whole layer, from its input projections to its gated norm or its output projection, one operator of torch
with gradients: torch.ops.sluice.train_layer. It keeps the projections and, if asked to, the delta rule's output;
its backward pass computes the rest again."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core

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
Values = dict[str, Any]


def _named(arguments: Sequence[Any]) -> Values:
    return dict(zip((*INPUTS, "cu_seqlens", *OPTIONS), arguments))


def _like(x: Tensor, packed: bool) -> Tensor:
    """Rows past the last packed sequence are not written by the operators."""
    make = torch.zeros_like if packed else torch.empty_like
    return make(x, memory_format=torch.contiguous_format)


def _rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


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
    x["qkv"] = _rows(x["qkv"])
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


class _Layer:
    """The tensors of a layer in its backward pass, whatever the packing: rows of all channels or of three parts,
    gates of tokens, z by heads; and the gradients that are asked for."""

    def __init__(self, x: Values, asked: set[str]) -> None:
        self.x, self.asked = x, asked
        self.packed, self.interleaved = x["cu_seqlens"] is not None, x["packing"] == "interleaved"
        # Each convolution and the input that is its rows.
        self.parts = {"": "qkv", "k_": "k", "v_": "v"} if x["packing"] == "separate" else {"": "qkv"}
        H, HV, K, V = (x[name] for name in OPTIONS[:4])
        self.heads_k, self.heads_v, self.r = (H, K), (HV, V), HV // H
        if self.interleaved:
            *qkv, z = self.split_heads(x["qkv"])
            self.rows = [torch.cat([part.flatten(2) for part in qkv], -1)]
            self.z = self.norm_rows(z.unflatten(-1, (self.r, V)))
            self.b, self.a = (
                part.flatten(2) for part in x["b"].unflatten(-1, (H, -1)).split([self.r, self.r], -1)
            )
        else:
            self.rows = [_rows(x[name]) for name in self.parts.values()]
            self.z = _rows(x["z"]).unflatten(-1, self.heads_v)
            self.b, self.a = _rows(x["b"]), _rows(x["a"])
        self.found: Values = {}

    def gradient(self, name: str) -> Tensor | None:
        """Memory for the gradient by input `name`, if it is asked for."""
        if name in self.asked:
            self.found[name] = _like(self.x[name], self.packed)
        return self.found.get(name)

    def split_heads(self, qkvz: Tensor) -> tuple[Tensor, ...]:
        """Views q, k [B,T,H,K], v, z [B,T,H,rV] of an interleaved projection, or of its gradient."""
        K, values = self.heads_k[1], self.r * self.heads_v[1]
        return qkvz.unflatten(-1, (self.heads_k[0], -1)).split([K, K, values, values], -1)

    def norm_rows(self, heads: Tensor) -> Tensor:
        """Rows of the gated norm: interleaved ones are no view of [B,T,HV,V], but one of [BT,H,r,V]."""
        return heads.flatten(0, 1) if self.interleaved else heads

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

    def norm(self, core: Tensor) -> Values:
        """Core has been rounded, which is what "input" says."""
        x = self.x
        return dict(
            x=self.norm_rows(core.unflatten(2, (-1, self.r)) if self.interleaved else core), z=self.z,
            weight=x["norm_weight"], eps=x["norm_eps"], activation=x["gate_activation"],
            rounding="once" if x["rounding"] == "input" else x["rounding"],
        )  # fmt: skip


def _backward(*arguments: Any) -> list[Tensor]:
    d_out, d_conv, (d_final, core, wanted), call = arguments[0], arguments[1:4], arguments[4:7], arguments[7:]
    x = _named(call)
    layer = _Layer(x, {name for name, asks in zip(INPUTS, wanted) if asks and x[name] is not None})
    convolved = [_like(rows, layer.packed) for rows in layer.rows]
    for part, rows, out in zip(layer.parts, layer.rows, convolved):
        _core.causal_conv1d(out=out, **layer.conv(part, rows))
    rule = layer.rule(convolved)
    if core is None:
        core = _like(rule["v"], layer.packed)
        _core.chunk_forward(o=core, **rule)
    d_core = _norm_gradients(layer, core, d_out)
    d_rows, d_gates = ([_like(t, layer.packed) for t in given] for given in (convolved, (layer.b, layer.a)))
    _core.chunk_backward(
        d_o=d_core, d_final_state=None if d_final is None else d_final.contiguous(),
        **dict(zip(("dq", "dk", "dv"), layer.heads(d_rows))), dbeta=d_gates[0], dgate=d_gates[1],
        dA_log=layer.gradient("A_log"), ddt_bias=layer.gradient("dt_bias"),
        d_initial_state=layer.gradient("initial_state"), **rule,
    )  # fmt: skip
    del rule, convolved, core, d_core
    for index, part in enumerate(layer.parts):
        d_rows[index] = _conv_gradients(layer, part, layer.rows[index], d_rows[index], d_conv[index])
    _place(layer, d_gates, d_rows)
    return [
        layer.found[n] if n in layer.found else torch.zeros_like(x[n]) if n in layer.asked else x["qkv"].new_empty(0)
        for n in INPUTS
    ]


def _norm_gradients(layer: _Layer, core: Tensor, d_out: Tensor | None) -> Tensor:
    """Those of the norm and of the output projection behind it; returns the one by `core`."""
    norm, weight = layer.norm(core), layer.x["out_weight"]
    d_z = layer.gradient("qkv" if layer.interleaved else "z")
    if d_out is None:  # the states alone are used
        if d_z is not None:
            d_z.zero_()
        return torch.zeros_like(core)
    if weight is not None:
        rows = d_out.flatten(0, 1)
        if "out_weight" in layer.asked:
            out = torch.empty_like(norm["x"], memory_format=torch.contiguous_format)
            _core.gated_rms_norm(out=out, **norm)
            layer.found["out_weight"] = rows.t() @ out.view(rows.shape[0], -1)
        d_out = rows @ weight
    d_core = _like(norm["x"], layer.packed)
    if d_z is not None and layer.interleaved:
        d_z = layer.norm_rows(layer.split_heads(d_z)[3].unflatten(-1, (layer.r, layer.heads_v[1])))
    _core.gated_rms_norm_backward(
        d_out=_rows(d_out).view(d_core.shape), dx=d_core, dz=None if d_z is None else d_z.view(d_core.shape),
        dweight=layer.gradient("norm_weight"), **norm,
    )  # fmt: skip
    return d_core.view(core.shape)


def _conv_gradients(layer: _Layer, part: str, rows: Tensor, d_rows: Tensor, d_state: Any) -> Tensor:
    """Those of one convolution; returns the one by its rows."""
    d_x = _like(rows, layer.packed)
    _core.causal_conv1d_backward(
        d_out=d_rows, d_final_state=d_state, dx=d_x, dweight=layer.gradient(f"{part}conv_weight"),
        dbias=layer.gradient(f"{part}conv_bias"), d_initial_state=layer.gradient(f"{part}conv_initial"),
        **layer.conv(part, rows),
    )  # fmt: skip
    return d_x


def _place(layer: _Layer, d_gates: list[Tensor], d_rows: list[Tensor]) -> None:
    """Gradients of rows and gates to where their inputs have them."""
    if not layer.interleaved:
        layer.found.update(zip(("b", "a", *layer.parts.values()), (*d_gates, *d_rows)))
        return
    pair = [gradient.unflatten(-1, (-1, layer.r)) for gradient in d_gates]
    layer.found["b"] = torch.cat(pair, -1).flatten(2)
    if "qkv" in layer.found:
        q, k, v = layer.split_heads(layer.found["qkv"])[:3]
        for place, gradient in zip((q, k, v), layer.heads(d_rows)):
            place.copy_(gradient.reshape(place.shape))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    save_core, ctx.call = inputs[-3], inputs[len(INPUTS) + 1 : -3]
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[: len(INPUTS) + 1], output[1] if save_core else None)


def _differentiate(ctx: Any, d_out: Any, _: Any, *states: Any) -> tuple[Any, ...]:
    *saved, core = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[: len(INPUTS)])
    found = torch.ops.sluice.train_layer_backward(d_out, *map(_given, states), core, wanted, *saved, *ctx.call)
    asked = [g if asks and x is not None else None for g, asks, x in zip(found, wanted, saved)]
    return *asked, *[None] * (len(ctx.call) + 4)


def _fake_backward(*arguments: Any) -> list[Tensor]:
    wanted, x = arguments[6], arguments[7:]
    return [_like(t, False) if asks and t is not None else x[0].new_empty(0) for asks, t in zip(wanted, x)]


def _register() -> Any:
    library = torch.library.Library("sluice", "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    library.define(
        f"train_layer({_ARGUMENTS}, bool save_core, int conv_columns, bool final_state) -> "
        "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        tags=tags,
    )
    grads = ", ".join(f"Tensor? d_{name}" for name in ("out", "conv", "k_conv", "v_conv", "final"))
    library.define(
        f"train_layer_backward({grads}, Tensor? core, bool[] wanted, {_ARGUMENTS}) -> Tensor[]", tags=tags
    )
    for key in ("CPU", "CUDA"):
        library.impl("train_layer", _forward, key)
        library.impl("train_layer_backward", _backward, key)
    torch.library.register_fake("sluice::train_layer", _fake, lib=library)
    torch.library.register_fake("sluice::train_layer_backward", _fake_backward, lib=library)
    torch.library.register_autograd(
        "sluice::train_layer", _differentiate, setup_context=_setup_context, lib=library
    )
    return library


_library = _register()
train_layer = torch.ops.sluice.train_layer
