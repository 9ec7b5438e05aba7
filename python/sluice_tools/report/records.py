# SPDX-License-Identifier: Apache-2.0
"""Turns records of `sluice bench`, this run's and committed ones, into rows of one form.

A row has: source (an index into the sources), op, kernel, H, HV, K, V, B, T, lengths, dtype, state,
seconds, low, high, flops, bytes (both by the op manifest), error_o, error_state, peers and, where
the record has them, share, cold, shape, writes. Unknown is None.
"""

import json
import pathlib
from typing import Any

from . import manifest as manifests

Row = dict[str, Any]
_BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}
_PARTS = {
    "conv": "causal_conv1d",
    "update": "causal_conv1d",
    "norm": "gated_rms_norm",
    "conv-backward": "causal_conv1d_backward",
    "norm-backward": "gated_rms_norm_backward",
    "layer-backward": "layer_backward",
    "layer": "layer_prefill",
    "delta": "chunk_forward",
}


def lengths_of(text: str) -> list[int]:
    """ "8192x2+5" as [8192, 8192, 5]."""
    lengths = []
    for part in text.split("+"):
        length, _, count = part.partition("x")
        lengths += [int(length)] * int(count or 1)
    return lengths


def source_of(record: dict[str, Any], here: bool, file: str = "") -> dict[str, Any]:
    """Whose numbers a record has: device, commit, version, date, command. here: measured by this
    report, on this machine; else `file` names the record."""
    machine = record.get("machine", {})
    ceilings = record.get("ceilings", {})
    speeds = {
        "flop_per_second": ceilings.get("flop_per_second"),
        "bytes_per_second": ceilings.get("bytes_per_second")
        or record.get("bytes_per_second")
        or record.get("copy_bytes_per_second"),
    }
    speeds["flop_per_second"] = speeds["flop_per_second"] or record.get("flop_per_second")
    if "schema" not in record and record.get("rows"):
        limits = [(row["limit_unit"], row["limit"]["median"]) for row in record["rows"]]
        for key, unit in (("flop_per_second", "GFLOP/s"), ("bytes_per_second", "GB/s")):
            of_unit = [value for name, value in limits if name.startswith(unit)]
            # WHY the least: hot states are read from a cache, whose speed is no limit of memory.
            speeds[key] = 1e9 * min(of_unit) if of_unit else None
    return {
        "here": here,
        "file": file,
        "device": machine.get("name") or record.get("cpu") or "unknown",
        "commit": record.get("commit", "unknown"),
        "version": record.get("sluice") or record.get("version") or "unknown",
        "date": record.get("date", "unknown"),
        "command": record.get("command", ""),
        "settings": record.get("settings", {}),
        "first_call": record.get("first_call"),
        **speeds,
    }


def rows_of(record: dict[str, Any], source: int, manifest: dict[str, Any]) -> list[Row]:
    """The rows of a record that did not fail; ValueError for a schema that is not known."""
    schema = record.get("schema", "")
    if schema in _TABLES:
        rows = [_TABLES[schema](row, record) for row in record["rows"]]
    elif not schema and record.get("rows") and "measurements" in record["rows"][0]:
        rows = [entry for row in record["rows"] for entry in _host(row, record)]
    else:
        raise ValueError(f"schema = '{schema}', expected one of `sluice bench`")
    known = [row for row in rows if row["seconds"] is not None]
    for row in known:
        row["source"] = source
        _add_costs(row, manifest)
    return known


def _common(row: Row, **more: Any) -> Row:
    shape = {name: row.get(name) for name in ("H", "HV", "K", "V")}
    empty: Row = dict.fromkeys(
        ("B", "T", "state", "error_o", "error_state", "share", "cold", "writes", "low", "high")
    )
    return {**empty, "shape": "", "peers": [], "who": "Sluice", **shape, **more}


def _times(row: Row, unit: str, factor: float) -> dict[str, float | None]:
    """Median, least and 9th decile in seconds."""
    names = {"seconds": unit, "low": f"{unit}_min", "high": f"{unit}_p90"}
    return {name: None if row[key] is None else factor * row[key] for name, key in names.items()}


def _prefill(row: Row, record: dict[str, Any]) -> Row:
    lengths = lengths_of(row["lengths"])
    peers = [
        {"who": p["peer"], "seconds": 1e-3 * p["ms"], "from": p["source"], "gates": p["gates"]}
        for p in row["peers"]
    ]
    return _common(
        row,
        op="chunk_forward",
        model="chunk",
        kernel=row["kernel"],
        lengths=row["lengths"],
        T=sum(lengths),
        B=len(lengths),
        dtype=record["settings"]["dtype"],
        **_times(row, "ms", 1e-3),
        error_o=row.get("error_o"),
        error_state=row.get("error_state"),
        share=row.get("share_of_floor"),
        peers=peers,
        shape=row.get("split", ""),
    )


def _step(row: Row, record: dict[str, Any]) -> Row:
    return _common(
        row,
        op=record["op"],
        model="step",
        kernel=row["kernel"],
        lengths=f"{row['T']}x{row['B']}",
        T=row["T"],
        B=row["B"],
        dtype="bf16",
        state=row["state"],
        writes=row["writes"],
        cold=True,
        **_times(row, "us", 1e-6),
        share=row["share_of_copy"],
        bytes=row.get("bytes") if row.get("ring") else None,
        peers=[{"who": p["peer"], "seconds": 1e-6 * p["us"], "from": ""} for p in row["peers"]],
    )


def _part(row: Row, record: dict[str, Any]) -> Row:
    return _common(
        row,
        op=_PARTS[row["op"]],
        model="in a layer" if row["op"] == "delta" else "bytes",
        part=row["op"],
        kernel=row["kernel"],
        lengths=f"{row['T']}x{row['N']}",
        T=row["T"],
        B=row["N"],
        dtype=record["dtype"],
        **_times(row, "us", 1e-6),
        share=row["share_of_copy"],
        shape=row["shape"],
        cold=True,
    )


def _stage(row: Row, record: dict[str, Any]) -> Row:
    """A stage, the chain of all, its graph, the one-launch prefill, simple GLA: `part` says which."""
    flops, moved = row["tflop_per_s"], row["gb_per_s"]
    times = _times(row, "ms", 1e-3)
    seconds = times["seconds"]
    return _common(
        row,
        op="chunk_stage",
        model=None,
        part=row["what"],
        kernel=row["kernel"],
        lengths=f"{row['T']}x{row['B']}",
        T=row["T"],
        B=row["B"],
        C=row["C"],
        dtype=record["dtype"],
        **times,
        share=row["share_of_floor"],
        shape=row["shape"],
        difference=row["difference"],
        flops=None if seconds is None or flops is None else 1e12 * flops * seconds,
        bytes=None if seconds is None or moved is None else 1e9 * moved * seconds,
    )


def _backward(row: Row, record: dict[str, Any]) -> Row:
    lengths, times = lengths_of(row["lengths"]), _times(row, "ms", 1e-3)
    rates = {"flops": ("tflop_per_s", 1e12), "bytes": ("gb_per_s", 1e9)}
    seconds = times["seconds"]
    found = {
        name: None if seconds is None or row.get(key) is None else factor * row[key] * seconds
        for name, (key, factor) in rates.items()
    }
    return _common(
        row,
        op="chunk_backward",
        model=None,
        kernel=row["kernel"],
        lengths=row["lengths"],
        T=sum(lengths),
        B=len(lengths),
        dtype=record["dtype"],
        **times,
        share=row.get("share_of_floor"),
        times_forward=row.get("times_forward"),
        **found,
    )


def _host(row: Row, record: dict[str, Any]) -> list[Row]:
    """One row for each contender of `sluice bench cpu`; the first of them is Sluice."""
    decode = row["op"] == "decode"
    time = "cpu_seconds" if record.get("threads") == 1 else "wall_seconds"
    rows = []
    for entry in row["measurements"]:
        # The layer beside its delta rule, and one thread beside several, are other rows.
        if entry.get("failure") or "layer" in entry["name"] or "1 thread" in entry["name"]:
            continue
        ours = entry["name"].startswith("sluice")
        half = "bfloat16" in entry["name"] or "float16" in entry["name"]
        rows.append(
            _common(
                row,
                op="recurrent_step" if decode else "chunk_forward",
                model="states" if decode else "chunk",
                kernel=f"cpu.{'recurrent_step' if decode else 'chunk_forward'}" if ours else "",
                who="Sluice" if ours else entry["name"],
                lengths=f"{row['T']}x{row['B']}",
                T=row["T"],
                B=row["B"],
                dtype=record["dtype"],
                state="bf16" if half else "fp32",
                writes="last",
                cold=row["cold"],
                seconds=entry[time]["median"],
                low=entry[time]["low"],
                high=entry[time]["high"],
                error_o=entry["error_sample"],
                shape=entry["name"].rpartition(" ")[2] if entry["name"].endswith("v") else "kv",
            )
        )
    return rows


def _add_costs(row: Row, manifest: dict[str, Any]) -> None:
    """FLOP and bytes by the op manifest; of stages by the tool, whose formulas these are."""
    if row["model"] is None:
        return
    dense = row["model"] in ("chunk",)
    tokens = row["T"] if dense and row["op"] == "chunk_forward" else (row["T"] * row["B"])
    width = 2 * row["H"] * row["K"] + row["HV"] * row["V"]
    writes = row["T"] if row["writes"] == "per token" else 1
    symbols = {name: row[name] for name in ("H", "HV", "K", "V", "T", "B")}
    symbols.update(tokens=tokens, N=row["B"], e=_BYTES[row["dtype"]], W=4, D=width)
    symbols.update(
        s=_BYTES[row["state"] or "fp32"],
        writes=writes,
        columns=1 if str(row["shape"]).startswith("ring") else 3,
    )
    for what in ("flops", "bytes"):
        known = row.get(what)  # a replay ring's bytes, a mean over time that no formula has
        row[what] = known or manifests.cost(manifest, row["op"], row["model"], what, **symbols)
    if row["flops"] is None:
        row["flops"] = manifests.cost(manifest, row["op"], "chunk", "flops", **symbols)


_TABLES = {
    "sluice.bench.prefill/1": _prefill,
    "sluice.bench.step/1": _step,
    "sluice.bench.parts/1": _part,
    "sluice.bench.stages/1": _stage,
    "sluice.bench.backward/1": _backward,
}


def read_folder(folder: pathlib.Path) -> list[tuple[str, dict[str, Any]]]:
    """(file name, record) of every record of `sluice bench` in a folder, oldest first; other JSON
    is left alone."""
    found = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not content.get("rows"):
            continue
        host = "schema" not in content and "measurements" in content["rows"][0]
        if content.get("schema") in _TABLES or host:
            found.append((path.name, content))
    return sorted(found, key=lambda item: str(item[1].get("date", "")))
