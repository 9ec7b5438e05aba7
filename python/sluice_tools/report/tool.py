# SPDX-License-Identifier: Apache-2.0
"""Drives the benchmark tool (`sluice bench`): where it is, what it is asked, and the records it
writes."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any


def find(given: str | None) -> pathlib.Path | None:
    """The tool: the path given, $SLUICE_TOOL, `sluice` on the PATH, or a build of the source tree;
    None if there is none. FileNotFoundError if the path given is no file."""
    named = given or os.environ.get("SLUICE_TOOL")
    if named:
        path = pathlib.Path(named)
        if not path.is_file():
            raise FileNotFoundError(f"no tool at {named}")
        return path.resolve()
    found = shutil.which("sluice")
    if found and not _is_python(pathlib.Path(found)):
        return pathlib.Path(found)
    tree = pathlib.Path(__file__).resolve().parents[3]
    builds = (tree / build / "tools/sluice" for build in ("build/release", "build/cuda"))
    return next((path for path in builds if path.is_file()), None)


def _is_python(path: pathlib.Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def version(tool: pathlib.Path) -> str:
    """What `sluice --version` says, its last word."""
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.split()[-1] if done.stdout.split() else "unknown"


def record(
    tool: pathlib.Path, arguments: list[str], commit: str, seconds: float = 300
) -> dict[str, Any]:
    """Runs `sluice bench ARGUMENTS` and returns its record. RuntimeError with the end of its
    output if it fails or takes longer than `seconds`.

    Exit status 1 and 2 with a record are results (a wrong or failed row), which the record has.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "record.json"
        command = [str(tool), "bench", *arguments]
        if arguments[0] == "cpu":
            command += ["-o", str(path)]
        else:
            command += ["--commit", commit, "--json", str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"longer than {seconds:.0f} s: {' '.join(arguments)}") from None
        if done.returncode == 3 or not path.exists():
            words = (done.stderr or done.stdout).strip().splitlines()
            raise RuntimeError(words[-1] if words else f"exit status {done.returncode}")
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    content.setdefault("command", "sluice bench " + " ".join(arguments))
    content.setdefault("commit", commit)
    return content


def arguments_of(workload: dict[str, Any], quick: bool) -> list[list[str]]:
    """What a workload of the op manifest is as calls of `sluice bench`."""
    return [command.split() for command in _commands(workload, quick)]


def _commands(workload: dict[str, Any], quick: bool) -> list[str]:
    def choice(name: str) -> str:
        value = workload.get(f"quick {name}", workload.get(name)) if quick else workload.get(name)
        return ",".join(str(entry) for entry in value) if isinstance(value, list) else str(value)

    def tokens(name: str) -> str:
        return ",".join(str(T) for T in workload[name][: 1 if quick else None])

    heads, grid = choice("heads"), workload.get("grid")
    match workload["backend"], workload["op"]:
        case "cpu", "chunk_forward":
            command = f"prefill --backend cpu --heads {heads} --lengths {choice('tokens')}"
            timing = f"--repeat {5 if quick else 9} --rest 0"
            return [f"{command} --dtype {dtype} {timing}" for dtype in ("fp32", "bf16")]
        case "cpu", "recurrent_step":
            command = f"cpu --op decode --model {heads} --B {choice('batches')} --state-type fp32,bf16"
            return [f"{command} --rounds {3 if quick else 7} --seconds 0.01"]
        case "cpu", _:
            command = f"parts --backend cpu --op layer,conv,norm --heads {heads}"
            return [f"{command} --most-tokens {512 if quick else 2048} --repeat 3"]
        case _, "chunk_forward":
            cells = f"--grid {grid}" if grid else f"--heads {heads} --lengths {choice('lengths')}"
            slow = workload.get("full only", False) or not grid
            return [f"prefill {cells} {'--repeat 20 --rest 20 --no-error' if slow else '--repeat 50'}"]
        case _, "chunk_stage":
            lengths = f"--T {tokens('tokens of chains')} --gla-T {tokens('tokens of simple GLA')}"
            return [f"stages {lengths} --repeat 20"]
        case _, "recurrent_step":
            return [f"decode --grid {choice('grid')} --repeat 20"]
        case _, "layer_decode":
            return [f"layer --grid {choice('grid')} --repeat 20"]
    return ["parts --heads 16/32 --repeat 20"]
