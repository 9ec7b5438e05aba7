# SPDX-License-Identifier: Apache-2.0
"""Reads the lists of faults and writes the sources that hold all of them, each switched on by SLUICE_FAULT."""

import dataclasses
import pathlib
import re
import shutil
import sys
import tomllib

FIELDS = ("name", "file", "text", "becomes", "suite", "tests", "why")
FOLDERS = ("cmake", "include", "ops", "python", "src", "tests", "conformance")


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    file: str
    text: str  # once in the file
    becomes: str  # the same with the fault, where the word FAULT is true
    suite: str
    tests: str  # filter of the tests that must fail
    why: str  # what a person did wrong
    hangs: bool = False  # a test that never ends is how it shows

    @property
    def number(self) -> int:
        """FNV-1a of the name, as planted.hpp has it."""
        number = 2166136261
        for byte in self.name.encode():
            number = (number ^ byte) * 16777619 % 2**32
        return number

    def switched(self) -> str:
        """What stands in the file in place of the text."""
        if self.file.endswith(".py"):
            on = f'(__import__("os").environ.get("SLUICE_FAULT") == "{self.name}")'
            return re.sub(r"\bFAULT\b", on, self.becomes)
        on = f"(::sluice::faults::planted == {self.number}u)"
        late = f"(!__builtin_is_constant_evaluated() && {on})"
        return re.sub(r"\bFAULT\b", on, re.sub(r"\bFAULT_AT_RUN_TIME\b", late, self.becomes))


def read_lists(folder: pathlib.Path) -> list[Fault]:
    faults = [Fault(**row) for path in sorted(folder.glob("*.toml"))
              for row in tomllib.loads(path.read_text())["fault"]]
    numbers = {fault.number for fault in faults}
    if len(numbers) != len(faults):
        sys.exit("faults: two rows have one name")
    return faults


def mutated(source: str, file: str, faults: list[Fault], wrong: list[str]) -> str:
    """The source with its faults. Each text must be there once, and no two may meet; `wrong` gets what is not so."""
    edits = []
    for fault in faults:
        count = source.count(fault.text)
        if count != 1:
            wrong.append(f"{fault.name}: its text is {count} times in {file}, expected once: {fault.text!r}")
        if not re.search(r"\bFAULT(_AT_RUN_TIME)?\b", fault.becomes):
            wrong.append(f"{fault.name}: nothing in `becomes` is switched by the word FAULT")
        begin = source.find(fault.text)
        edits.append((begin, begin + len(fault.text), fault))
    edits.sort(key=lambda edit: edit[0])
    for (_, end, first), (begin, _, second) in zip(edits, edits[1:]):
        if begin < end:
            wrong.append(f"{first.name} and {second.name}: their texts meet in {file}")
    for begin, end, fault in reversed(edits):
        source = source[:begin] + fault.switched() + source[end:]
    return source


def mutate(root: pathlib.Path, faults: list[Fault]) -> dict[str, str]:
    """The files that have a fault, with all of theirs."""
    sources, wrong = {}, []
    for file in sorted({fault.file for fault in faults}):
        found = [fault for fault in faults if fault.file == file]
        if not (root / file).is_file():
            wrong += [f"{fault.name}: no file {file}" for fault in found]
            continue
        sources[file] = mutated((root / file).read_text(), file, found, wrong)
    if wrong:
        sys.exit("faults: the list is not true any more:\n  " + "\n  ".join(wrong))
    return sources


def plant(root: pathlib.Path, tree: pathlib.Path, faults: list[Fault]) -> list[str]:
    """Writes a copy of the sources with all faults; returns the files that have one."""
    sources = mutate(root, faults)
    for folder in FOLDERS:
        shutil.copytree(root / folder, tree / folder, dirs_exist_ok=True)
    for file, source in sources.items():
        (tree / file).write_text(source)
    return list(sources)
