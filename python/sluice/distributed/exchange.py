# SPDX-License-Identifier: Apache-2.0
"""What ranks send each other: an agreement on what is to come, and one all-gather of float32."""

from typing import Any

import torch
import torch.distributed as dist

from .._errors import Error, InvalidArgument


class Exchange:
    """A process group, as context parallelism uses it."""

    def __init__(self, group: Any, check: str) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise InvalidArgument("ContextParallel: process_group = none, expected torch.distributed to be initialised")
        self.group = dist.group.WORLD if group is None else group
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.check = check
        self._agreed: set[tuple[int, ...]] = set()
        self.sent_bytes = 0

    def gather(self, part: Any) -> Any:
        """[ranks, ..] of every rank's part, which have one shape."""
        part = part.contiguous()
        out = part.new_empty((self.ranks, *part.shape))
        self.sent_bytes += part.numel() * part.element_size()
        if dist.get_backend(self.group) == "gloo":
            dist.all_gather(list(out.unbind(0)), part, group=self.group)
        else:
            dist.all_gather_into_tensor(out.view(-1), part.view(-1), group=self.group)
        return out

    def agree(self, what: dict[str, int], device: Any, error: BaseException | None = None) -> None:
        """Raises on every rank if one of them has failed or is about to send something else.
        `what`: numbers that must be equal, by the names of a message. With check "first" ranks that have
        agreed on the same numbers do not ask again: nothing is read from a GPU then."""
        key = tuple(what.values())
        if error is None and self.check == "first" and key in self._agreed:
            return
        mine = torch.tensor([0 if error is None else 1, *key], dtype=torch.int64, device=device)
        every = self.gather(mine).tolist()
        if error is not None:
            raise error
        for rank, numbers in enumerate(every):
            if numbers[0] != 0:
                raise Error(f"ContextParallel: rank {rank} = failed, expected all ranks to come this far")
        for at, name in enumerate(what, 1):
            for rank, numbers in enumerate(every):
                if numbers[at] != every[0][at]:
                    raise InvalidArgument(
                        f"ContextParallel: {name} = {numbers[at]} on rank {rank}, expected {every[0][at]} "
                        "(that of rank 0; ranks must agree)"
                    )
        self._agreed.add(key)
