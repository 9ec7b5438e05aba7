# SPDX-License-Identifier: Apache-2.0
"""Turns records of `sluice bench`, this run's and committed ones, into rows of one form.

A row has: source (an index into the sources), op, kernel, H, HV, K, V, B, T, lengths, dtype, state,
seconds, low, high, flops, bytes (both by the op manifest), error_o, error_state, peers and, where
the record has them, share, cold, shape, writes. Unknown is None.
"""

import json
import pathlib
from collections.abc import Callable, Iterator
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
    speeds = {name: ceilings.get(name) or record.get(name) for name in ("flop_per_second", "bytes_per_second")}
    speeds["bytes_per_second"] = speeds["bytes_per_second"] or record.get("copy_bytes_per_second")
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
    if schema in _SCHEMAS:
        rows = [row for entry in record["rows"] for row in _timed(entry, record)]
    elif not schema and record.get("rows") and "measurements" in record["rows"][0]:
        rows = [row for entry in record["rows"] for row in _host(entry, record)]
    else:
        raise ValueError(f"schema = '{schema}', expected one of `sluice bench`")
    for row in rows:
        row["source"] = source
        _add_costs(row, manifest)
    return rows


# What the rows of a schema have of their own.
_SCHEMAS: dict[str, Callable[[Row, dict[str, Any]], Row]] = {
    "sluice.bench.prefill/1": lambda row, record: {
        "op": "chunk_forward",
        "model": "chunk",
        "dtype": record["settings"]["dtype"],
        "error_o": row.get("error_o"),
        "error_state": row.get("error_state"),
        "shape": row.get("split", ""),
    },
    "sluice.bench.step/1": lambda row, record: {
        "op": record["op"],
        "model": "step",
        "dtype": "bf16",
        "state": row["state"],
        "writes": row["writes"],
        "bytes": row.get("bytes") if row.get("ring") else None,
    },
    "sluice.bench.parts/1": lambda row, record: {
        "op": _PARTS[row["op"]],
        "model": "in a layer" if row["op"] == "delta" else "bytes",
        "part": row["op"],
    },
    # A stage, the chain of all, its graph, the one-launch prefill, simple GLA: `part` says which.
    "sluice.bench.stages/1": lambda row, record: {
        "op": "chunk_stage",
        "part": row["what"],
        "C": row["C"],
        "difference": row["difference"],
    },
    "sluice.bench.backward/1": lambda row, record: {
        "op": "chunk_backward",
        "times_forward": row.get("times_forward"),
    },
}


def _row(row: Row, seconds: float, **more: Any) -> Row:
    """A row with what all have; without a cost model its FLOP and bytes are those of the tool's rates."""
    shape = {name: row.get(name) for name in ("H", "HV", "K", "V")}
    empty = dict.fromkeys(("state", "error_o", "error_state", "share", "cold", "writes", "model"))
    made: Row = {**empty, "shape": "", "peers": [], "who": "Sluice", **shape, "seconds": seconds, **more}
    if made["model"] is None:
        for what, key, unit in (("flops", "tflop_per_s", 1e12), ("bytes", "gb_per_s", 1e9)):
            made[what] = _scaled(row.get(key), unit * seconds)
    return made


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _timed(row: Row, record: dict[str, Any]) -> Iterator[Row]:
    """The row of one of the tool's; none where it failed."""
    unit, factor = ("ms", 1e-3) if "ms" in row else ("us", 1e-6)
    if row[unit] is None:
        return
    count: Any = row.get("B", row.get("N"))
    lengths = lengths_of(row["lengths"]) if "lengths" in row else [row["T"]] * count
    peers = [
        {"who": p["peer"], "seconds": factor * p[unit], "from": p.get("source", "")}
        | ({"gates": p["gates"]} if "gates" in p else {})
        for p in row.get("peers", [])
    ]
    common = {
        "kernel": row["kernel"],
        "lengths": row.get("lengths", f"{row.get('T')}x{count}"),
        "T": row.get("T", sum(lengths)),
        "B": len(lengths),
        "dtype": record.get("dtype"),
        "low": _scaled(row[f"{unit}_min"], factor),
        "high": _scaled(row[f"{unit}_p90"], factor),
        "share": row.get("share_of_floor", row.get("share_of_copy")),
        "cold": True if "share_of_copy" in row else None,
        "shape": row.get("shape", ""),
        "peers": peers,
    }
    yield _row(row, factor * row[unit], **{**common, **_SCHEMAS[record["schema"]](row, record)})


def _host(row: Row, record: dict[str, Any]) -> Iterator[Row]:
    """One row for each contender of `sluice bench cpu`; the first of them is Sluice."""
    op, model = ("recurrent_step", "states") if row["op"] == "decode" else ("chunk_forward", "chunk")
    time = "cpu_seconds" if record.get("threads") == 1 else "wall_seconds"
    for entry in row["measurements"]:
        # The layer beside its delta rule, and one thread beside several, are other rows.
        if entry.get("failure") or "layer" in entry["name"] or "1 thread" in entry["name"]:
            continue
        ours = entry["name"].startswith("sluice")
        half = "bfloat16" in entry["name"] or "float16" in entry["name"]
        yield _row(
            row,
            entry[time]["median"],
            op=op,
            model=model,
            kernel=f"cpu.{op}" if ours else "",
            who="Sluice" if ours else entry["name"],
            lengths=f"{row['T']}x{row['B']}",
            T=row["T"],
            B=row["B"],
            dtype=record["dtype"],
            state="bf16" if half else "fp32",
            writes="last",
            cold=row["cold"],
            low=entry[time]["low"],
            high=entry[time]["high"],
            error_o=entry["error_sample"],
            shape=entry["name"].rpartition(" ")[2] if entry["name"].endswith("v") else "kv",
        )


def _add_costs(row: Row, manifest: dict[str, Any]) -> None:
    """FLOP and bytes by the op manifest; of stages by the tool, whose formulas these are."""
    if row["model"] is None:
        return
    symbols = {name: row[name] for name in ("H", "HV", "K", "V", "T", "B")} | {
        "tokens": row["T"] if row["model"] == "chunk" else row["T"] * row["B"],
        "N": row["B"],
        "e": _BYTES[row["dtype"]],
        "W": 4,
        "D": 2 * row["H"] * row["K"] + row["HV"] * row["V"],
        "s": _BYTES[row["state"] or "fp32"],
        "writes": row["T"] if row["writes"] == "per token" else 1,
        "columns": 1 if str(row["shape"]).startswith("ring") else 3,
    }
    for what in ("flops", "bytes"):
        known = row.get(what)  # a replay ring's bytes, a mean over time that no formula has
        row[what] = known or manifests.cost(manifest, row["op"], row["model"], what, **symbols)
    if row["flops"] is None:
        row["flops"] = manifests.cost(manifest, row["op"], "chunk", "flops", **symbols)


def read_folder(folder: pathlib.Path) -> list[tuple[str, dict[str, Any]]]:
    """(file name, record) of every record of `sluice bench` in a folder, oldest first; other JSON
    is left alone."""
    found = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not content.get("rows"):
            continue
        host = "schema" not in content and "measurements" in content["rows"][0]
        if content.get("schema") in _SCHEMAS or host:
            found.append((path.name, content))
    return sorted(found, key=lambda item: str(item[1].get("date", "")))
