# SPDX-License-Identifier: Apache-2.0
"""Cuts a layer by heads over ranks: each rank projects into its heads, runs them, and projects out its part of the
sum that is the output."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from .._errors import InvalidArgument
from ..nn import GatedDeltaNet
from .exchange import group_of, total


class TensorParallel:
    """Heads over the ranks of `process_group` (None: all ranks): rank r has the r-th equal part of the key heads
    and the value heads that belong to them. Inputs and outputs of a layer are whole and equal on all ranks; heads
    need nothing of each other, so that the input's gradient and the output are the only sums over ranks.

    Example:
      parallel = TensorParallel(group)
      layer = parallel.gated_delta_net(2048, 16, 32)                   # of the whole layer; parameters are a part
      layer.load_state_dict(parallel.take(layer, whole.state_dict()))
    """

    def __init__(self, process_group: Any = None) -> None:
        self.group = group_of("TensorParallel", process_group)
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)

    def gated_delta_net(
        self, hidden_size: int, num_k_heads: int, num_v_heads: int, *sizes: int, **options: Any
    ) -> GatedDeltaNet:
        """This rank's heads of a layer of so many; arguments are GatedDeltaNet's (context_parallel among them, of a
        group of its own)."""
        for name, heads in (("num_k_heads", num_k_heads), ("num_v_heads", num_v_heads)):
            if heads % self.ranks:
                raise InvalidArgument(
                    f"TensorParallel: {name} = {heads}, expected a multiple of {self.ranks} (ranks of the group)"
                )
        heads_k, heads_v = num_k_heads // self.ranks, num_v_heads // self.ranks
        return _Heads(self, hidden_size, heads_k, heads_v, *sizes, **options)

    def take(self, layer: GatedDeltaNet, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """This rank's part of the whole layer's state dict."""
        return {
            name: torch.cat([part.chunk(self.ranks, axis)[self.rank] for part in parts], axis)
            for name, x in whole.items()
            for axis, parts in [_sections(layer, name, x, self.ranks)]
        }

    def put(self, layer: GatedDeltaNet) -> dict[str, Tensor]:
        """The whole layer's state dict, on every rank."""
        found = {}
        for name, x in layer.state_dict().items():
            every = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.ranks)]
            dist.all_gather(every, x.contiguous(), group=self.group)
            if name.startswith("norm."):
                found[name] = every[0]
                continue
            cut = [_sections(layer, name, part, 1) for part in every]
            axis = cut[0][0]
            found[name] = torch.cat([part for parts in zip(*(parts for _, parts in cut)) for part in parts], axis)
        return found


def _sections(layer: GatedDeltaNet, name: str, x: Tensor, ranks: int) -> tuple[int, list[Tensor]]:
    """The axis along which a parameter of `ranks` times the layer's heads is cut, and what is cut of it each by
    itself."""
    if name.startswith("norm."):  # one weight for all heads
        return 0, [x.repeat(ranks)]
    if name.startswith(("in_proj_qkv.", "conv1d.")):
        keys = layer.num_k_heads * layer.head_k_dim * ranks
        return 0, list(x.split([keys, keys, x.shape[0] - 2 * keys]))
    return (1 if name.startswith("out_proj.") else 0), [x]


class _Heads(GatedDeltaNet):
    """Some heads of a layer, whose output is summed over ranks."""

    def __init__(self, parallel: TensorParallel, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        group = parallel.group
        self._group = group
        # All heads share it: each rank has its heads' part of the gradient.
        self.norm.weight.register_hook(lambda gradient: total(gradient, group))

    def forward(self, hidden_states: Tensor, *given: Any, **options: Any) -> Any:
        found = super().forward(_Enter.apply(hidden_states, self._group), *given, **options)
        if isinstance(found, Tensor):
            return _Leave.apply(found, self._group)
        return (_Leave.apply(found[0], self._group), *found[1:])

    def step(self, hidden_states: Tensor, states: Any) -> Tensor:
        found: Tensor = total(super().step(hidden_states, states), self._group)
        return found


class _Enter(torch.autograd.Function):
    """The same on all ranks; each has a part of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_x: Tensor) -> Any:
        return total(d_x, ctx.group), None


class _Leave(torch.autograd.Function):
    """Each rank has a part; the gradient is the same on all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Any:
        return total(x, group)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        return d_out, None
