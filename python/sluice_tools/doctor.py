# SPDX-License-Identifier: Apache-2.0
"""Says what this machine has, which kernels will run and whether they are right (`python -m sluice
doctor`); the tool's `sluice doctor` says the same of a program without Python."""

import importlib.metadata
import os
import platform
import time

import sluice

from . import cases
from .counts import counted
from .report.environment import best_device, cpu_name, package_versions

# Engines that Sluice can be switched on in: their distributions, and how.
_ENGINES = {
    "vllm": "SLUICE_VLLM=1",
    "sglang": "SLUICE_SGLANG=1",
    "transformers": "sluice.engines.transformers.patched(model)",
    "flash-linear-attention": "import sluice.engines.fla",
}


def _fact(what: str, text: str) -> None:
    print(f"{what:<12}{text}")


def _cuda_version(number: str) -> str:
    version = int(number or 0)
    return f"{version // 1000}.{version % 1000 // 10}" if version else "none"


def _driver_is_old(facts: dict[str, str]) -> str:
    """Why no GPU was found, where the driver says why: nothing, or that it is for an older CUDA than the build's."""
    driver, built = (int(facts[name]) for name in ("cuda.driver", "cuda.runtime"))
    if driver == 0 or driver // 1000 >= built // 1000:
        return ""
    return f": the driver is for CUDA {_cuda_version(str(driver))}, this build needs one for CUDA {built // 1000}"


def _machine() -> None:
    facts = sluice.info()
    print(f"sluice {sluice.__version__}, Python {platform.python_version()}\n")
    threads = f"{counted(int(facts['cpu.threads']), 'thread')}, quota {facts['cpu.quota']}"
    _fact("cpu", f"{cpu_name()}: {facts['cpu.isa']}, {threads}")
    devices = facts.get("cuda.devices")
    if devices is None:
        _fact("gpu", "not in this wheel (built without nvcc)")
    elif devices == "0":
        _fact("gpu", "none found" + _driver_is_old(facts))
    for i in range(int(devices or 0)):
        _fact(f"gpu {i}", facts[f"cuda.device{i}"])
    if devices is not None:
        built = _cuda_version(facts["cuda.runtime"])
        _fact("driver", f"for CUDA {_cuda_version(facts['cuda.driver'])}; built with CUDA {built}")
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    _fact("packages", versions)
    for name, switch in _ENGINES.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        variable, _, value = switch.partition("=")
        on = value and os.environ.get(variable) == value
        _fact("engine", f"{name} {version}: {'on' if on else 'off'}; on by {switch}")
    found = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name[:7] == "SLUICE_"]
    _fact("environment", ", ".join(found) or "no SLUICE_ variable")


def _compare(device: str) -> bool:
    start = time.perf_counter()
    report = cases.self_check(device)
    seconds = time.perf_counter() - start
    total, failed = len(report.verdicts), len(report.failed)
    word = "FAIL" if failed or not total else "PASS"
    print(f"  {device}, float32    {word}  {total - failed} of {total} right, {seconds:.1f} s")
    for kernel in sorted(set(report.kernels.values())):
        print(f"    {kernel}")
    for verdict in report.failed:
        print(f"    {verdict}")
    return word == "PASS"


def doctor() -> int:
    """Prints the page; the exit status: 1 where a result is outside its limit."""
    _machine()
    print("\nEvery operator against the float64 reference, and the kernels that ran:")
    right = _compare("cpu")
    if best_device() == "cuda":
        right = _compare("cuda") and right
    print("\nEverything is right." if right else "\nSomething is WRONG: please report this page.")
    return 0 if right else 1
