# SPDX-License-Identifier: Apache-2.0
"""Simulates a group of ranks: all of its calls on one device, one rank after the other, with the same
operators on the same pieces. For tests, and to measure what a rank would compute."""

from typing import Any

import torch

from . import rule
from .fragments import Fragments


class SimulatedRanks:
    """`ContextParallel` without a process group: inputs are all sequences' rows [1,T,..]."""

    def __init__(
        self,
        fragments: Fragments,
        *,
        split: str = "auto",
        split_value: int = 0,
        history: str = "auto",
        overlap: bool = True,
        transitions: int | None = None,
    ) -> None:
        fixed = split == "length"
        self.fragments = fragments.cut(split_value) if fixed else fragments
        self._settings = [
            rule.Settings(self.fragments, rank, history, fixed, overlap, transitions)
            for rank in range(len(fragments.ranks))
        ]
        self.calls: list[rule.Call] = []

    def make_calls(
        self, tensors: dict[str, Any], *, output_final_state: bool = False, state_layout: str = "kv", **options: Any
    ) -> list[rule.Call]:
        """The ranks' calls of tensors by the names of rule.TENSORS."""
        self.calls = []
        for settings in self._settings:
            own = dict.fromkeys(rule.TENSORS)
            for name, x in tensors.items():
                whole = x is None or name in rule.SHARED
                own[name] = x if whole else self.fragments.take(x, settings.rank).contiguous()
            self.calls.append(
                rule.make_call(
                    settings, own, options, output_final_state=output_final_state, state_layout=state_layout
                )
            )
        return self.calls

    def forward(self, tensors: dict[str, Any], **options: Any) -> tuple[Any, Any]:
        """o of all rows, and the final states as the last rank has them."""
        calls = self.make_calls(tensors, **options)
        gathered = gather([rule.begin(call) for call in calls])
        for call in calls:
            rule.early(call)
        found = [rule.finish(call, gathered) for call in calls]
        return self.fragments.put([o for o, _ in found]), found[-1][1]

    def backward(self, d_o: Any, d_final: Any = None) -> dict[str, Any]:
        """Gradients of the last forward(), by all rows; those of what ranks share are sums."""
        d_os = [self.fragments.take(d_o, call.rank).contiguous() for call in self.calls]
        gathered = gather([rule.begin(call, x) for call, x in zip(self.calls, d_os)])
        needed = dict.fromkeys(rule.TENSORS, True)
        for call, x in zip(self.calls, d_os):
            rule.early_backward(call, x, needed)
        parts = [rule.finish_backward(call, gathered, x, d_final, needed) for call, x in zip(self.calls, d_os)]
        return {
            name: sum(p[name] for p in parts) if name in rule.SHARED else self.fragments.put([p[name] for p in parts])
            for name in parts[0]
        }


def gather(parts: list[Any]) -> Any:
    """What an all-gather of the ranks' parts would give."""
    return None if parts[0] is None else torch.cat(parts)
