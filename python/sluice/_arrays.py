# SPDX-License-Identifier: Apache-2.0
"""Does what depends on the kind of tensors: allocating outputs, streams, scratch memory on a
device. Never imports a framework: a tensor of one is there only if somebody imported it."""

import sys
from typing import Any


def empty(like: Any, shape: Any, dtype: Any = None, zeros: bool = False) -> Any:
    """A new compact tensor of the kind and on the device of `like`; dtype None = that of `like`,
    else "float32"."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        make = torch.zeros if zeros else torch.empty
        kind = like.dtype if dtype is None else torch.float32
        return make(shape, dtype=kind, device=like.device)
    library = _library_of(like)
    make = library.zeros if zeros else library.empty
    kind = like.dtype if dtype is None else library.float32
    if library.__name__ in ("numpy", "cupy"):
        return make(shape, kind)
    return make(shape, dtype=kind, device=like.device)


def zeros_like(like: Any) -> Any:
    """A new compact tensor of zeros of the kind, shape, dtype and device of `like`."""
    return empty(like, getattr(like, "shape", ()), zeros=True)


def has_16_bits(tensor: Any) -> bool:
    """Whether a tensor's numbers are bfloat16 or float16."""
    return str(getattr(tensor, "dtype", "")).endswith(("bfloat16", "float16"))


def converted(tensor: Any, like: Any = None) -> Any:
    """A copy of a tensor in the dtype of `like`, or in float32."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return tensor.to(torch.float32 if like is None else like.dtype)
    library = _library_of(tensor)
    return library.asarray(tensor).astype(library.float32 if like is None else like.dtype)


def _library_of(tensor: Any) -> Any:
    """The array library of a tensor: NumPy, CuPy, or what the array API standard names."""
    name = type(tensor).__module__.partition(".")[0]
    if name in ("numpy", "cupy"):
        return sys.modules[name]
    if name in ("jax", "jaxlib"):
        # WHY: JAX arrays may not be written. On the CPU, NumPy's do for outputs.
        if tensor.__dlpack_device__()[0] == 1:
            return sys.modules["numpy"]
        raise TypeError(
            "sluice: tensor = JAX array on a device, expected outputs to be given (JAX arrays may "
            "not be written)"
        )
    namespace = getattr(tensor, "__array_namespace__", None)
    if namespace is None:
        raise TypeError(
            f"sluice: tensor = {type(tensor).__name__}, expected a kind whose outputs can be "
            "allocated (torch, NumPy, CuPy or the array API); pass the outputs"
        )
    return namespace()


def stream_handle(stream: Any) -> int:
    """The integer handle of a stream: torch and CuPy streams, or the CUDA stream protocol."""
    for attribute in ("cuda_stream", "ptr"):
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return (protocol() if callable(protocol) else protocol)[1]
    raise TypeError(
        f"sluice: stream = {type(stream).__name__}, expected an integer handle, or an object with "
        "cuda_stream, ptr or __cuda_stream__"
    )


def current_stream(tensor: Any) -> int:
    """Handle of the stream on which the framework of a CUDA tensor works now; 0 (the legacy default
    stream) for frameworks that have no such notion."""
    name = type(tensor).__module__.partition(".")[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return torch.cuda.current_stream(tensor.device).cuda_stream
    if name == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    return 0


def device_scratch(tensor: Any, size: int, stream: Any) -> Any:
    """`size` bytes on the device of `tensor`, from its framework's stream-ordered allocator;
    stream: the handle of the call's stream if that is not the current one."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        if stream is None:
            return torch.empty(size, dtype=torch.uint8, device=tensor.device)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=tensor.device)):
            return torch.empty(size, dtype=torch.uint8, device=tensor.device)
    if type(tensor).__module__.partition(".")[0] == "cupy":
        cupy = sys.modules["cupy"]
        with tensor.device:
            if stream is None:
                return cupy.empty(size, cupy.uint8)
            with cupy.cuda.ExternalStream(stream):
                return cupy.empty(size, cupy.uint8)
    raise TypeError(
        f"sluice: tensor = {type(tensor).__name__}, expected workspace= for a call that needs "
        f"{size} bytes on the device (only torch and CuPy lend memory by stream)"
    )
