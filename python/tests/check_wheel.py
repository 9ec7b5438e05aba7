#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures that a wheel is self-contained: its tag, the shared libraries that its files need (those
it bundles and those every Linux has) and the versions of them, that the extension exports its init
function alone, and that nothing in it runs when Python starts.

    check_wheel.py WHEEL        (needs readelf and nm of binutils)
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

# What manylinux lets a wheel expect of the system.
SYSTEM = {
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}


# The newest versions of the system's libraries that symbols may ask for: those of manylinux_2_28.
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24)}


# Where glibc before 2.34 keeps these functions.
HOMES = {
    "libpthread.so.0": r"pthread_\w+|sem_\w+",
    "libdl.so.2": r"dl[a-z]+",
    "librt.so.1": r"(?:shm|timer|mq|aio)_\w+",
}


def newest(libraries, family):
    """The newest version of a family of symbols that the libraries ask for."""
    found = set()
    for library in libraries:
        needs = output("readelf", "-V", str(library)).partition("version_r")[2]
        found |= set(re.findall(rf"Name: {family}_([0-9.]+)", needs))
    return max((tuple(map(int, version.split("."))) for version in found), default=(0,))


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def findings(wheel, folder):
    """One line for each thing that is wrong."""
    tag = re.match(r"sluice_gdn-[0-9.]+\+(cpu|cu\d+)-cp311-abi3-manylinux_2_(\d+)_", wheel.name)
    if not tag or int(tag[2]) > 28:
        yield f"name {wheel.name}: expected +cpu or +cuN and the tag cp311-abi3-manylinux_2_28 or older"
    libraries = sorted(folder.rglob("*.so*"))
    bundled = {library.name for library in libraries}
    if "_core.abi3.so" not in bundled:
        yield "no _core.abi3.so"
    for library in libraries:
        dynamic = output("readelf", "-d", str(library))
        needed = set(re.findall(r"NEEDED.*\[(.+?)\]", dynamic))
        for name in sorted(needed - SYSTEM - bundled):
            yield f"{library.name} needs {name}, which is neither bundled nor the system's"
        paths = re.findall(r"(?:RPATH|RUNPATH).*\[(.+?)\]", dynamic)
        if any(path != "$ORIGIN" for path in paths):
            yield f"{library.name} looks for libraries in {paths}"
        print(f"{library.name}: needs {', '.join(sorted(needed))}")
    for family, most in NEWEST.items():
        needed = newest(libraries, family)
        print(f"needs {family} {'.'.join(map(str, needed))}")
        if needed > most:
            yield f"needs {family} {needed}, expected at most {most} (manylinux_2_28)"
    for extension in folder.rglob("_core*.so"):
        table = output("nm", "-D", "--defined-only", str(extension))
        symbols = re.findall(r" [TDBRVW] (\S+)$", table, re.M)
        if symbols != ["PyInit__core"]:
            yield f"{extension.name} exports {symbols}, expected PyInit__core alone"
        needed = output("readelf", "-d", str(extension))
        table = output("nm", "-D", "--undefined-only", str(extension))
        for home, names in HOMES.items():
            found = re.findall(rf" U ({names})@GLIBC", table)
            if found and f"[{home}]" not in needed:
                yield f"{extension.name} calls {found[0]} and does not need {home}, where it is before glibc 2.34"
        # What has no version and is not Python's was in no library when it was linked.
        missing = re.findall(r" U (?!_?Py)([^@\s]+)$", table, re.M)
        if missing:
            yield f"{extension.name} lacks {missing}"
    for start in folder.rglob("*.pth"):
        yield f"{start.name} would run whenever Python starts"
    if not list(folder.rglob("py.typed")):
        yield "no py.typed"
    if not list(folder.rglob("licenses/LICENSE")):
        yield "no LICENSE"


def main():
    wheel = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        wrong = list(findings(wheel, pathlib.Path(folder)))
    print("\n".join(wrong) if wrong else f"{wheel.name} is self-contained")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
