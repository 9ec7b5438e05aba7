#!/usr/bin/env python3
"""Checks that ops/manifest.json is true: every operator, member and enumerator of sluice.h is in it,
what ops/generate.py makes of it is committed, the backends, files and tests it names exist, and its
formulas give the FLOP and bytes that the benchmark tool recorded; exits 1 on a finding.

    check_manifest.py [RECORD.json..]     further records of `sluice bench`, e.g. of this build
SPDX-License-Identifier: Apache-2.0
"""

import importlib.util
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


manifest = load("manifest", "python/sluice_tools/report/manifest.py")
generate = load("generate", "ops/generate.py")

BYTES = {"fp32": 4, "float32": 4, "bf16": 2, "fp16": 2, "bfloat16": 2, "float16": 2}
PARTS = {"conv": "causal_conv1d", "update": "causal_conv1d", "norm": "gated_rms_norm",
         "conv-backward": "causal_conv1d_backward", "norm-backward": "gated_rms_norm_backward",
         "layer-backward": "layer_backward",
         "layer": "layer_prefill", "delta": "chunk_forward"}
SHAPE = re.compile(r"^\[[\w.,+]+\]( or \[[\w.,+]+\])*$")


def header_members(text):
    """{struct: names of its members, those of embedded structs of fields as their types}."""
    known = set(generate.STRUCTS)
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\n\} (\w+);", text, re.S):
        plain = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        members = re.findall(r"(\w+)\s+(\w+);", plain)
        found[name] = sorted(kind if kind in known else member for kind, member in members
                             if member not in ("struct_size", "reserved", "scale_mode"))
    return found


def check_header(content):
    text = (ROOT / "include/sluice/sluice.h").read_text()
    flat, members = " ".join(text.split()), header_members(text)
    owners = [(entry["args"], entry["fields"]) for entry in generate.OPERATORS]
    for name, fields in owners + [(name, inner["fields"]) for name, inner in generate.STRUCTS.items()]:
        ours = sorted(field.get("struct") or field["name"] for field in fields)
        if ours != members.get(name):
            yield f"{name}: the manifest and sluice.h differ in {set(ours) ^ set(members.get(name, ()))}"
    for entry in generate.OPERATORS:
        if f"int sluice_{entry['name']}(const {entry['args']}* args" not in flat:
            yield f"{entry['name']}: sluice.h has no sluice_{entry['name']}(const {entry['args']}* args, ..)"
    listed = {name: [c for _, c, _ in generate.enumerators(enum)] for name, enum in generate.ENUMS.items()}
    listed["op"] = [entry["enum"] for entry in generate.OPERATORS] + ["SLUICE_OP_COUNT"]
    for name, body in re.findall(r"typedef enum sluice_(\w+) \{(.*?)\n\}", text, re.S):
        found = re.findall(r"(SLUICE_\w+)\s*=", body)
        if name not in ("code", "scale_mode") and found != listed.get(name):
            yield f"sluice_{name}: {found} in sluice.h, {listed.get(name)} in the manifest"


def check_fields(content):
    known = set(content["dtypes"]) | {"as q"}
    for entry in generate.OPERATORS:
        for field in generate.expand(entry["fields"]):
            where = f"{entry['name']}.{field['path']}"
            if field["type"] != "tensor":
                continue
            if field["dtype"] not in known:
                yield f"{where}: dtype {field['dtype']} is not defined"
            if field["role"] not in ("in", "out", "inout"):
                yield f"{where}: role {field['role']}, expected in, out or inout"
            if not SHAPE.match(field["shape"]):
                yield f"{where}: shape {field['shape']} is not understood"
    names = {entry["name"] for entry in content["operators"]}
    for workload in content["workloads"]:
        if workload["op"] not in names:
            yield f"workload {workload['name']}: no operator {workload['op']}"


def check_formulas(content):
    """Every formula and rule must evaluate on a common shape, and the rules must hold there."""
    some = dict(B=2, N=2, T=16, tokens=32, P=3, S=4, E=2, H=2, HV=4, K=64, V=64, W=4, D=512, L=3, M=1, e=2, s=4,
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
    for room, name in (("ref", "reference"), ("cpu", "cpu")):  # CUDA's is made of the manifest
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
            if bench.startswith("python -m "):
                module = ROOT / "python" / (bench.split()[2].replace(".", "/") + ".py")
                if not module.is_file():
                    yield f"{entry['name']}: there is no {module.name} for `{bench}`"
                continue
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
            model = "step, key-wise gates" if row.get("key_gates") else "step"
            yield record["op"], model, "bytes", symbols, expected
        elif schema == "sluice.bench.parts/1":
            symbols.update(tokens=row["N"] * row["T"], N=row["N"], e=BYTES[record["dtype"]], W=4,
                           D=2 * row["H"] * row["K"] + row["HV"] * row["V"],
                           columns=1 if row["shape"].startswith("ring") else 3)
            model = "in a layer" if row["op"] == "delta" else "bytes"
            yield PARTS[row["op"]], model, "bytes", symbols, row["gb_per_s"] * row["us"] * 1e3
        elif schema == "sluice.bench.context/1":
            if "flops of a fold" not in row:
                continue
            symbols.update(tokens=row["tokens of a rank"], N=1, S=row["ranks"] - 1,
                           e=BYTES[record["dtype"]])
            yield "state_fold", "fold", "flops", symbols, row["flops of a fold"]
            yield "chunk_summary", "maps", "bytes", symbols, row["bytes of a summary"]
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


def main():
    content = manifest.load()
    extra = [pathlib.Path(name) for name in sys.argv[1:]]
    findings = []
    for check in (check_header, check_fields, check_formulas, check_backends, check_names):
        findings += check(content)
    findings += [f"{path} is not what ops/generate.py makes" for path in generate.stale()]
    findings += check_records(content, [*records(), *extra])
    print("\n".join(findings) if findings else "the op manifest agrees with header, tree and records")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
