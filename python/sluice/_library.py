# SPDX-License-Identifier: Apache-2.0
"""Tells what the library says of itself: version, machine, implementations, kernels, threads."""

from typing import Any

from . import _core
from ._errors import Error, InvalidArgument

__version__ = _core.version()


def info() -> dict[str, str]:
    """Version, machine and choices made (instruction set, threads, devices) as a dict of strings.

    Keys are those of the library's capability report; `version` and `implementations` (the names
    of those that can run now) are always there. Cheap, and needs no GPU.

    Example:
      >>> sluice.info()["version"] == sluice.__version__
      True
    """
    facts = {"version": __version__}
    for line in _core.capability().splitlines():
        key, separator, value = line.partition(":")
        if separator:
            facts[key.strip()] = value.strip()
    facts["implementations"] = ", ".join(i["name"] for i in implementations() if i["available"])
    return facts


def implementations() -> list[dict[str, Any]]:
    """The implementations of this build, one dict each: name, description, requirement, and
    whether it is available on this machine, now.

    Example:
      >>> [i["name"] for i in sluice.implementations() if i["available"]][0]
      'cpu'
    """
    return _core.implementations()


def last_kernel() -> str:
    """Name of the kernel that this thread's last successful operator call ran, e.g.
    "cpu.chunk_forward.avx512"; "" before the first.

    Example:
      >>> x = np.ones((2, 8), np.float32)
      >>> _ = sluice.gated_rms_norm(x, x, np.ones(8, np.float32), implementation="reference")
      >>> sluice.last_kernel()
      'reference.gated_rms_norm'
    """
    return _core.last_kernel()


def supported(op: str, **arguments: Any) -> tuple[str, None] | tuple[None, Error]:
    """(kernel name, None) if operator `op` of `sluice.ops` would run on these arguments, else
    (None, the exception that the call would raise).

    Takes the operator's name and its arguments, outputs included: supported("chunk_forward", q=q,
    k=k, v=v, o=o). Reads no tensor data.

    Example:
      >>> x = np.ones((1, 5, 2, 300), np.float32)
      >>> kernel, refusal = sluice.supported(
      ...     "chunk_forward", q=x, k=x, v=x, o=np.empty_like(x), implementation="cpu")
      >>> print(kernel, refusal)                                    # doctest: +ELLIPSIS
      None chunk_forward: k.shape[3] = 300, ...
    """
    try:
        return _core.supported(op, **arguments), None
    except Error as refusal:
        return None, refusal


def set_num_threads(threads: int) -> None:
    """Runs the CPU backend on `threads` threads from now on (1 to 4096), or, with None, on its own
    again: SLUICE_NUM_THREADS, else the CPUs this process may use. Results do not depend on it.

    Waits for operators that run in other threads, and lets no further one begin before.

    Example:
      >>> sluice.set_num_threads(1)
      >>> sluice.set_num_threads(None)
    """
    if threads == 0:  # the library's word for None
        raise InvalidArgument("set_num_threads: threads = 0, expected 1 to 4096, or None")
    _core.set_num_threads(0 if threads is None else threads)


def warm_up(device: str = "cpu") -> None:
    """Starts threads and loads kernels now, so that no later call does. device: "cpu", "cuda" or
    "cuda:1".

    Example:
      >>> sluice.warm_up("cpu")
    """
    kind, _, index = str(device).partition(":")
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"warm_up: device = {device}, expected cpu, cuda or cuda:INDEX")
    _core.warm_up(kind == "cuda", int(index or 0))
