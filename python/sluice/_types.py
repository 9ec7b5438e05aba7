# SPDX-License-Identifier: Apache-2.0
"""Names the types of the signatures."""

from typing import Any, Protocol, TypeVar


class Tensor(Protocol):
    """A torch tensor, a NumPy array, or anything else that exports DLPack."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...


# The kind of a call's tensors: outputs are of the kind of the inputs.
T = TypeVar("T", bound=Tensor)
