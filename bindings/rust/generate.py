#!/usr/bin/env python3
"""Makes the Rust declarations of the C interface, bindings/rust/sluice-sys/src/lib.rs, from include/sluice/sluice.h.

  bindings/rust/generate.py [--check]        --check: writes nothing, exits 1 where the file is not what would be made

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = ROOT / "include/sluice/sluice.h"
TARGET = ROOT / "bindings/rust/sluice-sys/src/lib.rs"
TYPES = {
    "size_t": "usize", "int": "c_int", "double": "f64", "void*": "*mut c_void", "const void*": "*const c_void",
    "char*": "*mut c_char", "const char*": "*const c_char", "size_t*": "*mut usize", "uint8_t": "u8", "uint16_t": "u16",
    "uint32_t": "u32", "int32_t": "i32", "int64_t": "i64",
}
HEAD = """// Declares the C interface of Sluice, as include/sluice/sluice.h does: its comments are the contract. Made by
// bindings/rust/generate.py; nobody edits it.
// SPDX-License-Identifier: Apache-2.0
#![allow(non_camel_case_types, non_snake_case)]

use std::os::raw::{c_char, c_int, c_void};
"""


def rust_type(text):
    text = re.sub(r"\s*\*", "*", re.sub(r"\s+", " ", text)).strip()
    if text in TYPES:
        return TYPES[text]
    if text.startswith("const ") and text.endswith("*"):
        return f"*const {text[6:-1]}"
    return f"*mut {text[:-1]}" if text.endswith("*") else text


def constants(text):
    for name, value in re.findall(r"^#define (SLUICE_\w+) (\d+)u?$", text, re.M):
        kind = "usize" if name == "SLUICE_MAX_RANK" else "u32" if name == "SLUICE_ABI_VERSION" else "i32"
        yield f"pub const {name}: {kind} = {value};"
    for body in re.findall(r"typedef enum \w+ \{(.*?)\}", text, re.S):
        for name, value in re.findall(r"(SLUICE_\w+)\s*=\s*(\d+)", body):
            yield f"pub const {name}: i32 = {value};"


KEYWORDS = {"final", "type"}  # reserved in Rust: an underscore is added


def field(text):
    kind, name, count = re.fullmatch(r"(.*?)(\w+)(?:\[(\w+)\])?", text.strip(), re.S).groups()
    kind = rust_type(kind)
    name += "_" if name in KEYWORDS else ""
    return f"    pub {name}: " + (f"[{kind}; {count}]," if count else f"{kind},")


def structs(text):
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", text, re.S):
        yield "#[repr(C)]\n#[derive(Clone, Copy)]\npub struct " + name + " {"
        yield "\n".join(field(item) for item in body.split(";") if item.strip())
        yield "}\n"


def functions(text):
    for kind, name, arguments in re.findall(r"SLUICE_API ([\w *]+?)(\w+)\(([^;]*)\);", text, re.S):
        named = []
        for argument in () if arguments.strip() == "void" else arguments.split(","):
            words = re.fullmatch(r"\s*(.*?)(\w+)\s*", argument, re.S).groups()
            named.append(f"{words[1]}: {rust_type(words[0])}")
        yield f"    pub fn {name}({', '.join(named)}) -> {rust_type(kind)};"


def made():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    parts = [HEAD, *constants(text), "", *structs(text)]
    parts += ["pub type sluice_parallel_for = Option<",
              "    unsafe extern \"C\" fn(*mut c_void, i64, unsafe extern \"C\" fn(*mut c_void, i64), *mut c_void),",
              ">;", "", "extern \"C\" {", *functions(text), "}", ""]
    return "\n".join(parts)


def main():
    wanted = made()
    if sys.argv[1:] != ["--check"]:
        TARGET.write_text(wanted)
    same = TARGET.exists() and TARGET.read_text() == wanted
    print("the Rust declarations are those of sluice.h" if same
          else "the Rust declarations are not those of sluice.h: bindings/rust/generate.py")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
