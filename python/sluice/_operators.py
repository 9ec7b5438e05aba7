# SPDX-License-Identifier: Apache-2.0
"""Defines functional operators of torch, which write nothing that they are given and know their results' shapes: what
torch.compile(fullgraph=True), torch.export and activation checkpointing see through."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_library = torch.library.Library("sluice", "FRAGMENT")


def new_like(x: Tensor, packed: Any = False) -> Tensor:
    """Memory for a result; zeros where rows past the last packed sequence are not written."""
    make = torch.zeros_like if packed else torch.empty_like
    return make(x, memory_format=torch.contiguous_format)


def new_like_each(tensors: list[Any]) -> list[Tensor]:
    """Memory for gradients; nothing for what is absent, which the first never is."""
    return [tensors[0].new_empty(0) if x is None else new_like(x) for x in tensors]


def as_rows(x: Tensor) -> Tensor:
    """x, or a copy of it whose rows are what the operators read."""
    return x if x.stride(-1) == 1 else x.contiguous()


def define(name: str, schema: str, run: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    """Defines torch.ops.sluice.NAME; shapes: the results for fake tensors."""
    _library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(name, run, key)
    torch.library.register_fake(f"sluice::{name}", shapes, lib=_library)
    return getattr(torch.ops.sluice, name).default


def differentiate(name: str, keep: Callable[..., None], gradients: Callable[..., Any]) -> None:
    """Gives an operator gradients: `gradients` of what `keep` has kept."""
    torch.library.register_autograd(f"sluice::{name}", gradients, setup_context=keep, lib=_library)


def define_with_gradients(
    name: str,
    inputs: str,
    options: str,
    run: Callable[[dict[str, Any]], Tensor],
    gradients: Callable[[dict[str, Any], Tensor, dict[str, Tensor]], None],
) -> Any:
    """Defines NAME(inputs, options) -> Tensor, which is like its v or x, and NAME_backward(d_out, the same) ->
    Tensor[], and ties the first to the second. An input that ends in `?` may be absent; cu_seqlens has no gradient
    and comes last. run: of arguments by name; gradients: likewise, with d_out, writes to the memory for dNAME."""
    names = [part.split()[1] for part in inputs.split(", ")]
    every = names + [part.split()[1] for part in options.split(", ")]
    count = len(names) - ("cu_seqlens" in names)
    result = names.index("v" if "v" in names else "x")

    def write_gradients(d_out: Tensor, *values: Any) -> list[Tensor]:
        found = new_like_each(list(values[:count]))
        places = {f"d{name}": g for name, g, x in zip(names, found, values) if x is not None}
        gradients(dict(zip(every, values)), d_out, places)
        return found

    forward = define(
        name,
        f"({inputs}, {options}) -> Tensor",
        lambda *values: run(dict(zip(every, values))),
        lambda *values: new_like(values[result]),
    )
    backward = define(
        f"{name}_backward",
        f"(Tensor d_out, {inputs}, {options}) -> Tensor[]",
        write_gradients,
        lambda _, *values: new_like_each(list(values[:count])),
    )

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[: len(names)])
        ctx.options = inputs[len(names) :]

    def found(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        given = [g if x is not None else None for g, x in zip(backward(d_out, *saved, *ctx.options), saved)]
        return *given, *([None] * (len(names) - count + len(ctx.options)))

    differentiate(name, keep, found)
    return forward
