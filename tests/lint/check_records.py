#!/usr/bin/env python3
"""Checks that no script of benchmarks/ truncates a file: what a run of hours leaves is replaced as a whole
(sluice_tools/whole_file.py), so that the old record survives a failure; and that the list of records
(benchmarks/results/README.md) names every record. Exits 1 on a finding."""

import ast
import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Calls that write a file in place, whatever their arguments are. savefig may write to memory.
WRITERS = {"write_text", "write_bytes", "dump", "save", "savez", "savetxt", "tofile", "to_csv", "to_json", "imsave"}


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def opens_for_writing(call: ast.Call) -> bool:
    """open(path, mode), path.open(mode), os.fdopen(number, mode); a mode that is no literal counts."""
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    first = 0 if isinstance(call.func, ast.Attribute) and name_of(call) == "open" else 1
    modes += call.args[first : first + 1]
    return any(not isinstance(mode, ast.Constant) or set(str(mode.value)) & set("wax+") for mode in modes)


def findings_of(text: str) -> list[tuple[int, str]]:
    """Lines of a script that write a file in place, and the call's name."""
    tree, found = ast.parse(text), []
    memory = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if name_of(node.value) in ("StringIO", "BytesIO"):
                memory |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node)
        to_memory = bool(node.args) and isinstance(node.args[0], ast.Name) and node.args[0].id in memory
        # A function of the script's own may be called save().
        wrong = name in WRITERS and isinstance(node.func, ast.Attribute)
        wrong = wrong or (name in ("open", "fdopen") and opens_for_writing(node))
        if wrong or (name == "savefig" and not to_memory):
            found.append((node.lineno, name))
    return found


def check_itself() -> None:
    """Fails where a way to write is not seen, or a way to read is taken for one."""
    for line in ('open(p, "w")', 'open(p, mode="x")', 'p.open("a")', 'open(p, "r+")', "open(p, m)", "p.write_text(t)",
                 "json.dump(r, f)", "numpy.save(p, a)", "figure.savefig(p)", 'os.fdopen(n, "w")'):
        assert findings_of(line), line
    for line in ("open(p)", 'open(p, "rb")', "p.open()", "save()", "json.dumps(r)", "whole_file.write(p, t)",
                 "f = io.StringIO()\nfigure.savefig(f)", 'urllib.request.urlopen(u, "w")'):
        assert not findings_of(line), line


def unlisted(text: str, records: list[str]) -> list[str]:
    """Records, FOLDER/FILE, that a list does not name. Names may have *; a file alone is of the row before."""
    listed = re.findall(r"[\w./*-]+\.json", text)
    return [record for record in records
            if not any(fnmatch.fnmatch(record, name) or fnmatch.fnmatch(record.split("/")[1], name) for name in listed)]


def main() -> int:
    check_itself()
    assert unlisted("| a/b.json, c-*.json |", ["a/b.json", "a/c-1.json", "a/d.json"]) == ["a/d.json"]
    scripts = sorted((ROOT / "benchmarks").glob("**/*.py"))
    findings = [f"{path.relative_to(ROOT)}:{line}: {name}() writes in place, expected whole_file.write()"
                for path in scripts for line, name in findings_of(path.read_text())]
    results = ROOT / "benchmarks/results"
    records = sorted(str(path.relative_to(results)) for path in results.glob("*/*.json"))
    findings += [f"benchmarks/results/README.md: {record} is not in the table"
                 for record in unlisted((results / "README.md").read_text(), records)]
    print("\n".join(findings) if findings else
          f"{len(scripts)} scripts of benchmarks/ replace their files as a whole; {len(records)} records are listed")
    return 1 if findings or not scripts or not records else 0


if __name__ == "__main__":
    sys.exit(main())
