#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes stand-ins of glibc's shared libraries that have the symbols of an older release alone, so that
what is linked with them runs on systems of that release and newer.

    glibc_stubs.py FOLDER [RELEASE]        (default: 2.28, manylinux_2_28; needs readelf and a C compiler)

The installed glibc keeps, for programs linked long ago, every older version of its functions. A stand-in
names, for each symbol, the newest version up to RELEASE; it has no code and is used by the linker alone.
What came later is then an undefined symbol and stops the link. Until 2.34 threads, dlopen and shared memory had
libraries of their own: they are named among the needed ones, with nothing in them, as glibc has it today.
"""

import pathlib
import re
import subprocess
import sys

# What a program may need beside libc: (name to link by, name at run time).
LIBRARIES = [("libm.so", "libm.so.6"), ("libc.so", "libc.so.6")]
LOADERS = ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"]
EMPTY = [("libpthread.so", "libpthread.so.0"), ("libdl.so", "libdl.so.2"), ("librt.so", "librt.so.1")]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def release(version):
    """GLIBC_2.3.4 as (2, 3, 4); None for private versions."""
    match = re.fullmatch(r"GLIBC_([0-9.]+)", version)
    return tuple(map(int, match[1].split("."))) if match else None


def exported(library, most):
    """Symbol -> (version's name, type, bytes) of a library: the newest version of each, up to `most`."""
    best = {}
    row = re.compile(r"\s+\d+: \w+\s+(\d+) (\w+)\s+(?:GLOBAL|WEAK)\s+DEFAULT\s+(\w+) (\w+)@+(\S+)")
    for line in output("readelf", "--dyn-syms", "-W", library).splitlines():
        match = row.match(line)
        if not match or match[3] in ("UND", "ABS"):
            continue
        size, kind, _, name, version = match.groups()
        found = release(version)
        if found and found <= most and (name not in best or found > best[name][0]):
            best[name] = (found, version, kind, int(size))
    return {name: rest for name, (_, *rest) in best.items()}


def linked_in(archive):
    """What is always linked in, for which the libraries keep forms of long ago: atexit, pthread_atfork."""
    return set(re.findall(r" [TW] (\S+)$", output("nm", archive), re.M))


def assembly(symbols):
    """An object with nothing but these symbols, each in its version."""
    sections = {"FUNC": ".text", "IFUNC": ".text", "OBJECT": ".bss", "TLS": ".tbss"}
    flags = {".text": '"ax",@progbits', ".bss": '"aw",@nobits', ".tbss": '"awT",@nobits'}
    for name, (version, kind, size) in sorted(symbols.items()):
        section = sections.get(kind)
        if section is None:
            continue
        kind = {".text": "function", ".bss": "object", ".tbss": "tls_object"}[section]
        yield f".section {section},{flags[section]}"
        yield f".globl stub_{name}\n.type stub_{name},%{kind}\n.size stub_{name},{max(size, 1)}"
        yield f"stub_{name}: .skip {max(size, 1)}\n.symver stub_{name},{name}@@@{version}"
    yield '.section .note.GNU-stack,"",@progbits'


def link(folder, name, soname, symbols, options=()):
    source, versions = folder / f"{soname}.s", folder / f"{soname}.map"
    source.write_text("\n".join(assembly(symbols)) + "\n")
    names = sorted({version for version, *_ in symbols.values()}, key=release)
    versions.write_text("".join(f"{each} {{ }};\n" for each in names) or "GLIBC_2.2.5 { };\n")
    subprocess.run(["cc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script,{versions}",
                    "-Wl,--build-id=none", source, "-o", folder / name, *options], check=True)
    source.unlink(), versions.unlink()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    most = tuple(map(int, (sys.argv[2] if len(sys.argv) > 2 else "2.28").split(".")))
    beside = output("cc", "-print-file-name=libc_nonshared.a").strip()
    own = linked_in(beside)
    for name, soname in LIBRARIES:
        symbols = exported(output("cc", f"-print-file-name={soname}").strip(), most)
        link(folder, name, soname, {key: value for key, value in symbols.items() if key not in own})
    for name, soname in EMPTY:
        link(folder, name, soname, {})
    for soname in LOADERS:
        path = output("cc", f"-print-file-name={soname}").strip()
        if path != soname:
            link(folder, soname, soname, exported(path, most))
    # As the system's libc.so: a script of the linker. The part that is always linked in holds atexit().
    (folder / "libc.so").rename(folder / "libc.so.6")
    loader = next(name for name in LOADERS if (folder / name).exists())
    (folder / "libc.so").write_text(
        f"GROUP ( {folder.resolve()}/libc.so.6 {beside} AS_NEEDED ( {folder.resolve()}/{loader} ) )\n")


if __name__ == "__main__":
    main()
