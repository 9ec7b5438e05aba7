# SPDX-License-Identifier: Apache-2.0
"""Writes signatures.json again: the signatures of the engines' functions, read from their wheels or
source archives without importing them, for test_engine_signatures.py.

Usage: python record_signatures.py ARCHIVE..., e.g. after `pip download --no-deps vllm sglang
flashinfer-python causal-conv1d fla-core`. Functions of engines that are not given are kept. The file says which
functions there are, by our namespace and by the file of the engine that defines them: a new one is added there by hand.
"""

import ast
import json
import pathlib
import re
import sys
import tarfile
import zipfile

OUT = pathlib.Path(__file__).with_name("signatures.json")

PACKAGES = {
    "fla_core": "fla",
    "vllm": "vllm",
    "sglang": "sglang",
    "flashinfer_python": "flashinfer",
    "causal_conv1d": "causal_conv1d",
}
# Names that the engines use as defaults.
CONSTANTS = {"PAD_SLOT_ID": -1, "NULL_BLOCK_ID": 0}


def recorded():
    """{namespace: {"version": of the engine, "functions": {name: parameters}}}."""
    table = {}
    for namespace, entry in json.loads(OUT.read_text()).items():
        functions = {name: text for file in entry["files"].values() for name, text in file.items()}
        table[namespace] = {"version": entry["version"], "functions": functions}
    return table


def files(archive):
    """{path: source} of an archive's Python files."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as z:
            return {n: z.read(n) for n in z.namelist() if n.endswith(".py")}
    with tarfile.open(archive) as t:
        members = [m for m in t if m.name.endswith(".py")]
        # WHY: a source archive has everything below a folder of its own.
        return {m.name.partition("/")[2]: t.extractfile(m).read() for m in members}


def parameters(source, name):
    """The parameters as text, "a, b=None", and ", **kwargs" where the engine has it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            break
    else:
        raise SystemExit(f"{name} not found")
    names = [a.arg for a in node.args.args + node.args.kwonlyargs]
    defaults = [None] * (len(node.args.args) - len(node.args.defaults))
    defaults += node.args.defaults + node.args.kw_defaults
    rows = []
    for parameter, default in zip(names, defaults, strict=True):
        if default is not None:
            default = repr(eval(ast.unparse(default), {"__builtins__": {}}, dict(CONSTANTS)))
        rows.append(parameter if default is None else f"{parameter}={default}")
    return ", ".join(rows + (["**kwargs"] if node.args.kwarg else []))


def main(archives):
    table = json.loads(OUT.read_text())
    for archive in map(pathlib.Path, archives):
        package, version = re.match(r"(.+?)-(\d[^-]*?)(?:-|\.tar)", archive.name).groups()
        engine, sources = PACKAGES[package], files(archive)
        # Releases whose parameters differ have a module of their own.
        apart = f"{engine}.v{'_'.join(version.split('.')[:2])}"
        # So have functions of one release that share a name.
        engines = [apart] if apart in table else [engine, f"{engine}.kimi"]
        for entry in (table[each] for each in engines if each in table):
            entry["version"] = version
            for file, functions in entry["files"].items():
                functions |= {name: parameters(sources[file], name) for name in functions}
    OUT.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
