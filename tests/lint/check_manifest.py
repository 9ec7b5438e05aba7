#!/usr/bin/env python3
"""Checks that ops/manifest.json is true: every operator and tensor of sluice.h is in it, the backends,
files and tests it names exist, and its formulas give the FLOP and bytes that the benchmark tool
recorded. Reads the header, the tree and the committed records; exits 1 on a finding.

    check_manifest.py [RECORD.json..]     further records of `sluice bench`, e.g. of this build
    check_manifest.py --write             makes docs/ops.md anew
SPDX-License-Identifier: Apache-2.0
"""

import importlib.util
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/ops.md"
spec = importlib.util.spec_from_file_location("manifest", ROOT / "python/sluice_tools/report/manifest.py")
manifest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(manifest)

BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "fp16": 2, "bfloat16": 2, "float16": 2}
PARTS = {"conv": "causal_conv1d", "update": "causal_conv1d", "norm": "gated_rms_norm",
         "layer": "layer_prefill", "delta": "chunk_forward"}
SHAPE = re.compile(r"^\[[\w.,+]+\]( or \[[\w.,+]+\])*$")


def header_structs(text):
    """{struct name: (names of its sluice_tensor members, structs that it embeds)}."""
    structs = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\n\} (\w+);", text, re.S):
        members = re.findall(r"^\s*(sluice_\w+)\s+(\w+);", body, re.M)
        tensors = [member for kind, member in members if kind == "sluice_tensor"]
        structs[name] = tensors, sorted(k for k, _ in members if k in structs)
    return {name: (tensors, [k for k in inner if structs[k][0]])
            for name, (tensors, inner) in structs.items()}


def check_header(content):
    text = (ROOT / "include/sluice/sluice.h").read_text()
    structs = header_structs(text)
    enums = re.findall(r"(SLUICE_OP_\w+) = \d+", text)
    entries = content["operators"]
    listed = {entry["enum"] for entry in entries}
    for enum in enums:
        if enum != "SLUICE_OP_COUNT" and enum not in listed:
            yield f"{enum} of sluice.h has no operator in the manifest"
    for entry in entries:
        name = entry["name"]
        if entry["enum"] not in enums:
            yield f"{name}: sluice.h has no {entry['enum']}"
        if f"int sluice_{name}(const {entry['args']}* args" not in " ".join(text.split()):
            yield f"{name}: sluice.h has no sluice_{name}(const {entry['args']}* args, ..)"
        tensors, inner = structs.get(entry["args"], ([], []))
        yield from compare_tensors(name, entry["tensors"], tensors)
        if sorted(entry["nested"]) != inner:
            yield f"{name}: nested structs {entry['nested']}, sluice.h has {inner}"
    for struct, tensors in content["structs"].items():
        yield from compare_tensors(struct, tensors, structs.get(struct, ([], []))[0])


def compare_tensors(name, tensors, members):
    ours = [tensor["name"] for tensor in tensors]
    for missing in [m for m in members if m not in ours]:
        yield f"{name}: tensor {missing} of sluice.h is missing"
    for extra in [t for t in ours if t not in members]:
        yield f"{name}: tensor {extra} is not in sluice.h"


def check_fields(content):
    known = set(content["dtypes"]) | {"as q"}
    for owner, tensors in [(e["name"], e["tensors"]) for e in content["operators"]] + list(
        content["structs"].items()
    ):
        for tensor in tensors:
            if tensor["dtype"] not in known:
                yield f"{owner}.{tensor['name']}: dtype {tensor['dtype']} is not defined"
            if tensor["role"] not in ("in", "out", "inout"):
                yield f"{owner}.{tensor['name']}: role {tensor['role']}, expected in, out or inout"
            if not SHAPE.match(tensor["shape"]):
                yield f"{owner}.{tensor['name']}: shape {tensor['shape']} is not understood"
    names = {entry["name"] for entry in content["operators"]}
    for workload in content["workloads"]:
        if workload["op"] not in names:
            yield f"workload {workload['name']}: no operator {workload['op']}"


def check_formulas(content):
    """Every formula and rule must evaluate on a common shape, and the rules must hold there."""
    some = dict(B=2, N=2, T=16, tokens=32, H=2, HV=4, K=64, V=64, W=4, D=512, L=3, M=1, e=2, s=4,
                writes=1, columns=3, **content["constants"])
    for entry in content["operators"]:
        for rule in entry["rules"]:
            if manifest.evaluate(rule, some) is not True:
                yield f"{entry['name']}: rule {rule} does not hold for {some}"
        for model, cost in entry["costs"].items():
            for what in ("flops", "bytes"):
                if cost[what] is not None and not manifest.evaluate(cost[what], some) > 0:
                    yield f"{entry['name']}: {what} of {model} are not positive"


def check_backends(content):
    for room, name in (("ref", "reference"), ("cpu", "cpu"), ("cuda", "cuda")):
        table = (ROOT / f"src/{room}/backend.cc").read_text()
        for entry in content["operators"]:
            has = re.search(rf"\.{entry['name']}\s*=", table) is not None
            if has != (name in entry["backends"]):
                yield f"{entry['name']}: src/{room}/backend.cc {'has' if has else 'lacks'} it"


def check_names(content):
    commands = "".join(p.read_text() for p in (ROOT / "tools/bench").glob("*.cc"))
    for entry in content["operators"]:
        for source in entry["source"]:
            if not (ROOT / source).is_file():
                yield f"{entry['name']}: source {source} does not exist"
        for test in entry["tests"]:
            file, _, name = test.partition(":")
            path = ROOT / file
            text = path.read_text() if path.is_file() else ""
            if not re.search(rf"(^TEST\w*\({name},|^def {name}\()", text, re.M):
                yield f"{entry['name']}: there is no test {test}"
        for bench in entry["bench"]:
            if f'"{bench.split()[2]}"' not in commands:
                yield f"{entry['name']}: there is no `{bench}`"


def recorded_costs(record):
    """(op, cost model, what, symbols, the tool's number) of every row of a record."""
    schema = record.get("schema", "")
    for row in record["rows"]:
        if row.get("failure"):
            continue
        symbols = {name: row[name] for name in ("H", "HV", "K", "V", "T", "B") if name in row}
        if schema == "sluice.bench.prefill/1":
            if row.get("ms") is None:
                continue
            lengths = lengths_of(row["lengths"])
            symbols.update(tokens=sum(lengths), N=len(lengths),
                           e=BYTES[record["settings"]["dtype"]])
            yield "chunk_forward", "chunk", "flops", symbols, row["tflops"] * row["ms"] * 1e9
            yield "chunk_forward", "chunk", "bytes", symbols, row["gb_per_s"] * row["ms"] * 1e6
        elif schema == "sluice.bench.backward/1":
            lengths = lengths_of(row["lengths"])
            symbols.update(tokens=sum(lengths), N=len(lengths), e=BYTES[record["dtype"]])
            yield "chunk_backward", "recurrence", "flops", symbols, row["tflop_per_s"] * row["ms"] * 1e9
            yield "chunk_backward", "recurrence", "bytes", symbols, row["gb_per_s"] * row["ms"] * 1e6
        elif schema == "sluice.bench.step/1":
            writes = row["T"] if row["writes"] == "per token" else 1
            symbols.update(tokens=row["B"] * row["T"], N=row["B"], s=BYTES[row["state"]],
                           writes=writes, W=4, D=2 * row["H"] * row["K"] + row["HV"] * row["V"])
            # A replay ring's bytes are a mean over time, in no formula: its row without the ring.
            ring = row.get("ring") or {}
            if ring:
                symbols["writes"] = row["T"]
            expected = ring.get("bytes_without_ring", row["bytes"])
            yield record["op"], "step", "bytes", symbols, expected
        elif schema == "sluice.bench.parts/1":
            symbols.update(tokens=row["N"] * row["T"], N=row["N"], e=BYTES[record["dtype"]], W=4,
                           D=2 * row["H"] * row["K"] + row["HV"] * row["V"],
                           columns=1 if row["shape"].startswith("ring") else 3)
            model = "in a layer" if row["op"] == "delta" else "bytes"
            yield PARTS[row["op"]], model, "bytes", symbols, row["gb_per_s"] * row["us"] * 1e3
        elif schema == "sluice.bench.stages/1":
            model = row["what"]
            known = manifest.find(manifest.load(), "chunk_stage")["costs"]
            if row["ms"] is None or row["tflop_per_s"] is None or model not in known:
                continue
            symbols.update(tokens=row["B"] * row["T"], N=row["B"], C=row["C"],
                           e=BYTES[record["dtype"]])
            yield "chunk_stage", model, "flops", symbols, row["tflop_per_s"] * row["ms"] * 1e9
            yield "chunk_stage", model, "bytes", symbols, row["gb_per_s"] * row["ms"] * 1e6
        elif "flops" in row:
            symbols.update(tokens=row["B"] * row["T"], N=row["B"])
            decode = row["op"] == "decode"
            op, model = ("recurrent_step", "step") if decode else ("chunk_forward", "recurrence")
            yield op, model, "flops", symbols, row["flops"]
            for entry in row["measurements"] if decode else []:
                symbols = {**symbols, "s": BYTES["bf16" if "float16" in entry["name"] else "fp32"]}
                if "state_bytes" in entry:
                    yield op, "states", "bytes", symbols, entry["state_bytes"]


def lengths_of(text):
    """"8192x2+5" as [8192, 8192, 5]."""
    lengths = []
    for part in text.split("+"):
        length, _, count = part.partition("x")
        lengths += [int(length)] * int(count or 1)
    return lengths


def check_records(content, paths):
    compared = set()
    for path in paths:
        record = json.loads(path.read_text())
        for op, model, what, symbols, expected in recorded_costs(record):
            value = manifest.cost(content, op, model, what, **symbols)
            compared.add((op, model, what))
            if value is None or abs(value - expected) > 1e-6 * expected:
                yield f"{path.name}: {op} {model} {what} = {expected}, the manifest says {value}"
                break
    for entry in content["operators"]:
        if not any(op == entry["name"] for op, _, _ in compared):
            yield f"{entry['name']}: no record has a number to compare its costs with"


def records():
    """Committed records of the tool; those of other programs have no schema and no flops, a report's
    numbers are the manifest's own."""
    for path in sorted((ROOT / "benchmarks/results").glob("*/*.json")):
        content = json.loads(path.read_text())
        rows = content.get("rows") if isinstance(content, dict) else None
        schema = content.get("schema", "") if rows else ""
        if rows and (schema.startswith("sluice.bench.") or (not schema and "flops" in rows[0])):
            yield path


def document(content):
    """docs/ops.md."""
    lines = ["# Operators", "",
             "Made from [ops/manifest.json](../ops/manifest.json) by `tests/lint/check_manifest.py --write`; "
             "CI compares both with", "`include/sluice/sluice.h`, which has the exact semantics.", "",
             "| symbol | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in content["symbols"].items()]
    lines += ["", "`float` is " + ", ".join(content["dtypes"]["float"]) + "; `index` "
              + " or ".join(content["dtypes"]["index"]) + "; `mask` "
              + " or ".join(content["dtypes"]["mask"]) + "."]
    for entry in content["operators"]:
        lines += operator_lines(entry)
    for struct, tensors in content["structs"].items():
        lines += ["", f"## `{struct}`", ""] + tensor_lines(tensors)
    return "\n".join(lines) + "\n"


def operator_lines(entry):
    lines = ["", f"## `sluice_{entry['name']}`", "", entry["summary"][0].upper() + entry["summary"][1:]
             + ". Implementations: " + ", ".join(entry["backends"]) + "."]
    if entry["nested"]:
        lines[-1] += " States: " + ", ".join(f"`{name}`" for name in entry["nested"]) + "."
    lines += ["", *tensor_lines(entry["tensors"]), "",
              "Rules: " + "; ".join(f"`{rule}`" for rule in entry["rules"]) + ".", "",
              "| cost model | FLOP | bytes | what is counted |", "|---|---|---|---|"]
    for model, cost in entry["costs"].items():
        cells = [f"`{cost[what]}`" if cost[what] else "-" for what in ("flops", "bytes")]
        lines.append(f"| {model} | {cells[0]} | {cells[1]} | {cost['text']} |")
    tests = [f"`{t.partition(':')[2]}` ([{pathlib.Path(t.partition(':')[0]).name}](../{t.partition(':')[0]}))"
             for t in entry["tests"]]
    lines += ["", "Source: " + ", ".join(f"[{s}](../{s})" for s in entry["source"]) + ".",
              "", "Tests: " + ", ".join(tests) + "."]
    if entry["bench"]:
        lines += ["", "Benchmarks: " + ", ".join(f"`{bench}`" for bench in entry["bench"]) + "."]
    return lines


def tensor_lines(tensors):
    lines = ["| tensor | shape | role | dtype |", "|---|---|---|---|"]
    for tensor in tensors:
        optional = ", optional" if tensor.get("optional") else ""
        lines.append(
            f"| `{tensor['name']}` | `{tensor['shape']}` | {tensor['role']}{optional} | {tensor['dtype']} |"
        )
    return lines


def main():
    content = manifest.load()
    if sys.argv[1:] == ["--write"]:
        DOCUMENT.write_text(document(content))
        return 0
    extra = [pathlib.Path(name) for name in sys.argv[1:]]
    findings = []
    for check in (check_header, check_fields, check_formulas, check_backends, check_names):
        findings += check(content)
    findings += check_records(content, [*records(), *extra])
    if not DOCUMENT.exists() or DOCUMENT.read_text() != document(content):
        findings.append("docs/ops.md is not what the manifest says: check_manifest.py --write")
    print("\n".join(findings) if findings else "the op manifest agrees with header, tree and records")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
