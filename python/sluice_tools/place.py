# SPDX-License-Identifier: Apache-2.0
"""Puts arrays where operators read them: NumPy's on the host, torch's on a GPU."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Place:
    """Where the tensors of calls lie, and the dtype of those that may have 16 bits. ImportError
    without torch on a GPU, or without ml_dtypes for bfloat16 on the host."""

    def __init__(self, device: str, dtype: str = "float32") -> None:
        self.device, self.dtype = device, dtype
        self._torch: Any = None
        self._kind: Any = dtype
        if device != "cpu":
            import torch

            self._torch, self._kind = torch, getattr(torch, dtype)
        elif dtype == "bfloat16":
            import ml_dtypes

            self._kind = ml_dtypes.bfloat16

    def put(self, array: Array | None, io: bool = True) -> Any:
        """The array there, as the place's dtype where `io`; None stays None. States are updated in place,
        so it is a copy."""
        if array is None:
            return None
        if self._torch is None:
            return array.astype(self._kind if io else array.dtype)
        tensor = self._torch.from_numpy(array.copy()).to(self.device)
        return tensor.to(self._kind) if io else tensor

    def get(self, tensor: Any) -> Array:
        """The values on the host, float32."""
        return np.asarray(tensor if self._torch is None else tensor.float().cpu().numpy(), np.float32)

    def wait(self) -> None:
        """Returns when the calls are done; those on the host are."""
        if self._torch is not None:
            self._torch.cuda.synchronize()
