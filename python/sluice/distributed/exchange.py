# SPDX-License-Identifier: Apache-2.0
"""Sends between ranks: an agreement on what is to come, and exchanges that run while other work does."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from .._errors import Error, InvalidArgument

# WHY these operators of torch: one path for gloo and NCCL, in eager calls, graphs and compiled code.
_operators = torch.ops._c10d_functional
_MOST_NUMBERS = 12  # that ranks compare


def group_of(what: str, process_group: Any) -> Any:
    """The process group itself; that of all ranks for None."""
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgument(f"{what}: process_group = none, expected torch.distributed to be initialised")
    return dist.group.WORLD if process_group is None else process_group


def total(x: Any, group: Any) -> Any:
    """The sum of the ranks' x."""
    return _operators.wait_tensor(_operators.all_reduce(x.contiguous(), "sum", group.group_name))


class Exchange:
    """A process group, as context parallelism uses it."""

    def __init__(self, process_group: Any, check: str) -> None:
        self.group = group_of("ContextParallel", process_group)
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.check = check
        self._agreed: set[tuple[int, ...]] = set()
        self._streams: dict[torch.device, Any] = {}
        self.sent_bytes = 0

    def start(self, part: Any) -> Any:
        """Every rank's part, which have one shape, one after the other along the first axis. Nobody reads it before
        wait()."""
        self.sent_bytes += part.numel() * part.element_size()
        return _operators.all_gather_into_tensor(part.contiguous(), self.ranks, self.group.group_name)

    def start_parts(self, parts: Any) -> Any:
        """What every rank has for this one, from what this one has for each, as many rows a rank. Nobody reads it
        before wait()."""
        self.sent_bytes += parts.numel() * parts.element_size()
        sizes = [parts.shape[0] // self.ranks] * self.ranks
        return _operators.all_to_all_single(parts.contiguous(), sizes, sizes, self.group.group_name)

    def wait(self, started: Any) -> Any:
        """What has been started, now to be read by the current stream."""
        return _operators.wait_tensor(started)

    def gather(self, part: Any) -> Any:
        """start() and wait()."""
        return self.wait(self.start(part))

    @contextmanager
    def beside(self, device: Any) -> Iterator[None]:
        """Runs what is inside on a stream beside the current one, where the device has streams. What is made there
        and used later must be kept by keep(); join() comes before anybody reads it."""
        if device.type != "cuda":
            yield
            return
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        side = self._streams[device]
        side.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.stream(side):
                yield
        except BaseException:
            self.join(device)
            raise

    def join(self, device: Any) -> None:
        """Makes the current stream wait for what ran beside it."""
        if device in self._streams:
            torch.cuda.current_stream(device).wait_stream(self._streams[device])

    def keep(self, *made: Any) -> None:
        """Tells the allocator that the current stream uses tensors that were made beside it."""
        for x in made:
            if x is not None and x.is_cuda:
                x.record_stream(torch.cuda.current_stream(x.device))

    def tell_failure(self, device: Any) -> None:
        """Tells the other ranks, which are about to agree(), that this one goes no further."""
        self._numbers([1], device)

    def agree(self, what: dict[str, int], device: Any) -> None:
        """Raises on every rank if one of them has failed or is about to send something else.
        `what`: numbers that must be equal, by the names of a message. With check "first" ranks that have
        agreed on the same numbers do not ask again: nothing is read from a GPU then."""
        key = (zlib.crc32(repr(list(what)).encode()), *what.values())
        if self.check == "first" and key in self._agreed:
            return
        every = self._numbers([0, *key], device)
        for rank, numbers in enumerate(every):
            if numbers[0] != 0:
                raise Error(f"ContextParallel: rank {rank} = failed, expected all ranks to come this far")
        for at, name in enumerate(("call (checksum of its numbers' names)", *what), 1):
            for rank, numbers in enumerate(every):
                if numbers[at] != every[0][at]:
                    raise InvalidArgument(
                        f"ContextParallel: {name} = {numbers[at]} on rank {rank}, expected {every[0][at]} "
                        "(that of rank 0; ranks must agree)"
                    )
        self._agreed.add(key)

    def _numbers(self, own: list[int], device: Any) -> list[list[int]]:
        """Those of every rank. Calls of all kinds send as many, so that ranks in different calls find out."""
        padded = own + [0] * (_MOST_NUMBERS - len(own))
        every = self.gather(torch.tensor([padded], dtype=torch.int64, device=device))
        return every.tolist()  # type: ignore[no-any-return]
