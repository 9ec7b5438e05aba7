#!/usr/bin/env python3
"""Makes what repeats ops/manifest.json: the C++ facade's enumerations and arguments, lists of operators and of
their views, tables of the Python binding and of the fuzzer, sluice.ops, the calls of sluice.functional,
docs/ops.md. With --check it writes nothing, and exits 1 with the names of the files that differ.
SPDX-License-Identifier: Apache-2.0
"""

import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "ops"))
from operator_list import argument_views, operator_list
from page import page

MANIFEST = json.loads((ROOT / "ops/manifest.json").read_text(encoding="ascii"))
ENUMS, STRUCTS, OPERATORS = MANIFEST["enums"], MANIFEST["structs"], MANIFEST["operators"]
SPDX, MADE = "SPDX-License-Identifier: Apache-2.0", "Made by ops/generate.py from ops/manifest.json."
STREAM = [{"py": "stream", "type": "stream"}, {"py": "workspace", "type": "workspace"}]
FUNCTIONAL = ("gated_delta_rule", "layer", "conv_norm")  # of python/sluice/functional, their calls


for operator in OPERATORS:
    if isinstance(operator["fields"], str):  # a list that operators share
        operator["fields"] = MANIFEST["field lists"][operator["fields"]]


def camel(text):
    return "".join(part.capitalize() for part in re.split("[-_]", text))


def expand(fields):
    """Fields, those of embedded structs in their place: `path` is the C member, `py` the argument in Python."""
    for field in fields:
        inner = STRUCTS[field["struct"]] if "struct" in field else {"member": "", "fields": [field]}
        for one in inner["fields"]:
            py = one.get("python", one["name"])
            doc = one.get("doc") or MANIFEST["docs"].get(py) or ENUMS[one["enum"]]["doc"]
            path = inner["member"] + "." + one["name"] if inner["member"] else one["name"]
            yield {"type": "tensor", **field, **one, "path": path, "py": py, "doc": doc}


def fields_of(entry):
    """An operator's fields in the order of its Python values. Rare ones come after the stream:
    CPython makes a tuple of a call with more than 30 values."""
    every = [f for f in expand(entry["fields"]) if f.get("only", entry["name"]) == entry["name"]]
    return [f for f in every if not f.get("rare")] + STREAM + [f for f in every if f.get("rare")]


def is_output(entry, field):
    return field["role"] != "in" or "in_place" in entry and (
        field["py"] == "initial_state" or field["py"].endswith("conv_initial"))


def header(path, about, includes, namespace, body):
    guard = "SLUICE_" + re.sub(r"\W", "_", path.removeprefix("include/sluice/")).upper() + "_"
    return path, "\n".join([
        f"// {about} {MADE}", f"// {SPDX}", "// clang-format off", f"#ifndef {guard}", f"#define {guard}", "",
        *(f"#include {name}" if name else "" for name in includes), "", f"namespace {namespace} {{", *body, "",
        f"}}  // namespace {namespace}", "", f"#endif  // {guard}", ""])


def enumerators(enum):
    for value in enum["values"]:
        word = value["word"]
        yield "k" + value.get("cpp", camel(word)), enum["prefix"] + re.sub("-", "_", word).upper(), value


def cpp_enumerations():
    body = []
    for name, enum in ENUMS.items():
        words = ", ".join(f'"{value["word"]}"' for value in enum["values"])
        body += ["", f"/// sluice_{name}: {enum['doc']}.", f"enum class {enum['cpp']} : int32_t {{",
                 *(f"  {cpp},  ///< {value['doc']}" for cpp, _, value in enumerators(enum)), "};",
                 *(f"static_assert(static_cast<int>({enum['cpp']}::{cpp}) == {c});" for cpp, c, _ in enumerators(enum)),
                 f"inline constexpr const char* k{enum['cpp']}Words[] = {{{words}, nullptr}};"]
    return header("include/sluice/enumerations.hpp", "Defines the choices of the operators, and their words.",
                  ["<cstdint>", "", '"sluice/sluice.h"'], "sluice", body)


def cpp_member(field, enums):
    """(declaration, value for C) of a field that is no struct, enumerations those of C++ or of C."""
    name, kind = field["name"], field["type"]
    if kind == "tensor":
        return f"TensorView {name}{{}};", name
    if kind == "scale":
        return f"std::optional<double> {name}{{}};  ///< {field['doc']}", f"{name}.value_or(0)"
    if kind == "enum":
        enum = ENUMS[field["enum"]]
        first, c = next(names for *names, value in enumerators(enum) if value["word"] == field["default"])
        if enums == "C":
            return f"sluice_{field['enum']} {name} = {c};", name
        return f"{enum['cpp']} {name} = {enum['cpp']}::{first};", f"static_cast<int32_t>({name})"
    return f"{kind if kind == 'double' else kind + '_t'} {name} = {field['default']};", name


def cpp_struct(name, c_type, fields, head=(), enums="C++"):
    members, assigned = list(head), ["result.struct_size = sizeof result;"] if head else []
    for field in fields:
        inner = STRUCTS.get(field.get("struct"), {"cpp": ""})
        if inner["cpp"]:
            members.append(f"{inner['cpp']} {inner['member']}{{}};")
            assigned.append(f"result.{inner['member']} = {inner['member']}.c();")
            continue
        for one in expand([field]):
            declaration, value = cpp_member(one, enums)
            members.append(declaration)
            assigned.append(f"result.{one['path']} = {value};")
            if one["type"] == "scale":
                assigned.append(f"result.{one['path']}_mode = {one['name']}.has_value() ? 1 : 0;")
    return ["", f"/// {c_type}.", f"struct {name} {{", *(f"  {line}" for line in members), "",
            f"  [[nodiscard]] {c_type} c() const noexcept {{", f"    {c_type} result{{}};",
            *(f"    {line}" for line in assigned), "    return result;", "  }", "};"]


def cpp_arguments():
    body = [line for c_type, inner in STRUCTS.items() if inner["cpp"]
            for line in cpp_struct(inner["cpp"], c_type, inner["fields"])]
    for args in dict.fromkeys(entry["args"] for entry in OPERATORS):
        users = [entry for entry in OPERATORS if entry["args"] == args]
        head = [f"using CArgs = {args};"] + [f"static constexpr int kOp = {users[0]['enum']};"] * (len(users) == 1)
        body += cpp_struct(camel(args.removeprefix("sluice_")), args, users[0]["fields"], head)
    return header("include/sluice/arguments.hpp",
                  "Defines one struct of arguments for each operator (LINT length: generated).",
                  ["<cstdint>", "<optional>", "", '"sluice/enumerations.hpp"', '"sluice/tensor_view.hpp"'],
                  "sluice", body)


def delta_options():
    """The options of the delta rule as whatever holds them by name sees them: case files, tests, the tool."""
    fields = [*expand([{"struct": "sluice_delta_options"}])]
    body = cpp_struct("DeltaOptions", "sluice_delta_options", STRUCTS["sluice_delta_options"]["fields"], enums="C")
    body += ["", "struct Option {", "  const char *name, *doc;", "  const char* const* words;  ///< null: a number",
             "  double standard;  ///< what a number is that nobody gives", "};", "",
             "/// Calls see(option, member) for each option in its order.", "template <class Options, class See>",
             "void for_each_option(Options& options, See&& see) {"]
    for f in fields:
        words = f"k{ENUMS[f['enum']]['cpp']}Words" if "enum" in f else "nullptr"
        standard = f["default"] if f["type"] == "double" else 0
        body.append(f'  see(Option{{"{f["name"]}", "{f["doc"]}", {words}, {standard}}}, options.{f["name"]});')
    body += ["}", "", "/// Gives arguments of C++ all the options.", "template <class Args>",
             "void set_options(const DeltaOptions& from, Args* to) {"]
    for f in fields:
        value = f"from.{f['name']}"
        value = f"static_cast<{ENUMS[f['enum']]['cpp']}>({value})" if "enum" in f else value
        body.append(f"  to->{f['name']} = {value};")
    return header("src/core/delta_options.hpp", "Holds the delta rule's options, and names them one by one.",
                  ["<optional>", "", '"sluice/enumerations.hpp"'], "sluice::core", [*body, "}"])


def binding_row(entry, field):
    member = f"offsetof({entry['args']}, {field.get('path')})"
    kind = {"int64": "Int", "enum": "Choice"}.get(field["type"], field["type"].capitalize())
    more = ""
    if field in STREAM:
        member = "0"
    elif kind == "Choice":
        more = f", k{ENUMS[field['enum']]['cpp']}Words"
    elif kind == "Scale":
        more = f", nullptr, offsetof({entry['args']}, {field['path']}_mode)"
    elif kind == "Tensor":
        kind = "Output" if field["role"] != "in" else "Update" if is_output(entry, field) else "Input"
        if "made_by" in field:
            stages = enumerate(ENUMS["stage"]["values"])
            more = f", nullptr, {sum(1 << i for i, value in stages if value['word'] in field['made_by'])}"
        if kind == "Update":
            more = f', nullptr, 0, "{field["py"].replace("initial", "final")}"'
    return f'    {{"{field["py"]}", Kind::k{kind}, {member}{more}}},'


def binding_tables():
    body, rows = [], []
    for entry in OPERATORS:
        name, fields = entry["name"], fields_of(entry)
        body += ["", f"inline constexpr Field k{camel(name)}Fields[] = {{",
                 *(binding_row(entry, field) for field in fields), "};"]
        rows += [f'    {{"{name}", sizeof({entry["args"]}), k{camel(name)}Fields, {fields.index(STREAM[0])},',
                 "     [](const Arguments& a, sluice_workspace w, void* s) {",
                 f"       return sluice_{name}(&a.{entry['args'][7:-5]}, w, s);", "     }},"]
    body += ["", "/// By sluice_op.", "inline constexpr Operator kOperators[] = {", *rows, "};"]
    return header("python/src/tables.hpp", "Says where the arguments of each operator go (LINT length: generated).",
                  ['"fields.hpp"', '"sluice/enumerations.hpp"'], "sluice::python", body)


def fuzzer_tables():
    body = []
    for entry in OPERATORS:
        body += ["", f"inline constexpr ViewField k{camel(entry['name'])}Views[] = {{",
                 *(f"    {{offsetof({entry['args']}, {f['path']}), {str(is_output(entry, f)).lower()}}},"
                   for f in expand(entry["fields"]) if f["type"] == "tensor"), "};"]
    return header("fuzz/tables.hpp", "Lists the views of each operator's arguments.", ['"arguments_scene.hpp"'],
                  "sluice::fuzz", body)


def wrap(text, first, hanging=0):
    indents = {"initial_indent": " " * first, "subsequent_indent": " " * (first + hanging)}
    return textwrap.wrap(text, 100, **indents, break_long_words=False, break_on_hyphens=False)


def default_of(field):
    return repr(field.get("default")).replace("'", '"')


def parameter(field, python):
    kind = {"enum": "str", "scale": "float", "double": "float", "int64": "int", "int32": "int", "stream": "Any",
            "tensor": "T" if field["py"] in python.get("like", "").split() else "Tensor"}.get(field["type"], "Tensor")
    if field["py"] in python["required"].split():
        return f"    {field['py']}: {kind},"
    none = " | None" if field.get("default") is None and kind != "Any" else ""
    return f"    {field['py']}: {kind}{none} = {default_of(field)},"


def documented(field):
    integers = "/".join(MANIFEST["dtypes"][field["dtype"]]) + " " if field.get("dtype") in ("index", "mask") else ""
    text = f"{field['py']}: {integers}" + (f"{field['shape']}: " if "shape" in field else "") + field["doc"]
    if "enum" in field:
        text += ": " + ", ".join(f'"{v["word"]}" ({v["doc"]})' for v in ENUMS[field["enum"]]["values"])
    return wrap(text + ".", 6, 2)


def python_function(entry):
    python, fields = entry["python"], fields_of(entry)
    first = [next(f for f in fields if f["py"] == name) for name in python["positional"].split()]
    rest = [f for f in fields if f not in first and f not in STREAM]
    result = {"Gradients": "Gradients", None: "None"}.get(python.get("returns"), "T")
    lines = ["", "", f"def {entry['name']}(", *(parameter(f, python) for f in first), "    *,",
             *(parameter(f, python) for f in rest + STREAM), f") -> {result}:",
             *wrap(f'"""{entry["summary"][0].upper()}{entry["summary"][1:]}.', 4), "",
             *(f"    {line}" for line in entry["text"]), "", "    Args:",
             *(line for f in first + rest for line in documented(f)),
             "      stream, workspace: see the module; a workspace is any 1-D tensor of the device.", "",
             f"    Returns: {python['returns']}." if "returns" in python else "    Returns nothing.", '    """']
    packed = any(f["py"] == "cu_seqlens" for f in fields)  # rows past the last sequence are not written
    for output, source in python.get("allocate", {}).items():
        given = "," in source or source in python["required"].split()
        made = f"_kinds.empty_like({source})"
        if "," in source:
            made = f"_kinds.empty({source}{', zeros=cu_seqlens is not None' if packed else ''})"
        elif packed and next(f for f in fields if f["py"] == output)["shape"].startswith("[B,T"):
            made = f"_kinds.empty_like({source}) if cu_seqlens is None else _kinds.zeros_like({source})"
        lines += [f"    if {output} is None:" if given else f"    if {output} is None and {source} is not None:",
                  *wrap(f"{output} = {made}", 8, 4)]
    lines += [f"    {line}" for line in python.get("before", [])]
    returned = f"Gradients({', '.join(python['allocate'])})" if result == "Gradients" else python.get("returns")
    return [*lines, f'    _kinds.entry("{entry["name"]}", {python.get("tensor", first[0]["py"])})(',
            *wrap(", ".join(f["py"] for f in fields), 8), "    )",
            *(wrap(f"return {returned}", 4, 4) if returned else [])]


def python_module(entries):
    lines = [line for entry in entries for line in python_function(entry)]
    for found in [e["python"]["allocate"] for e in entries if e["python"].get("returns") == "Gradients"]:
        lines = ["", "", "class Gradients(NamedTuple):", '    """None where there is no such input."""', "",
                 *(f"    {source}: Any" for source in found.values()), *lines]
    named = "Any, NamedTuple" if "class Gradients(NamedTuple):" in lines else "Any"
    types = "T, Tensor" if ") -> T:" in lines else "Tensor"
    names = ", ".join(f"`{entry['name']}`" for entry in entries)
    return "\n".join([f"# {SPDX}", f'"""Offers {names}. {MADE}"""', "", f"from typing import {named}", "",
                      "from .. import _kinds", f"from .._types import {types}", *lines, ""])


def fill_calls(text):
    """The values of calls marked `# values of OPERATOR`, or `# values of OPERATOR but NAME..`: for each field
    what has its name in the function so far, else its default; none past the last such name."""
    def fill(call):
        line, margin, op, but = call.groups(default="")
        function = text[text.rindex("\ndef ", 0, call.start()):call.start()]
        known = set(re.findall(r"^ +(\w+)(?: = |: )", function, re.M)) - set(but.split())
        fields = fields_of(next(entry for entry in OPERATORS if entry["name"] == op))
        values = [f["py"] if f["py"] in known else default_of(f) for f in fields]
        last = max(place for place, field in enumerate(fields) if field["py"] in known)
        return "\n".join([line, *wrap(", ".join(values[:last + 1]), len(margin) + 4), margin + ")"])
    return re.sub(r"^(( *)\S.*\(  # values of (\w+)(?: but (.*))?)\n(?:\2    .*\n)*\2\)$", fill, text, flags=re.M)


def files():
    yield from (cpp_enumerations(), cpp_arguments(), delta_options(), operator_list(OPERATORS, header))
    yield from (argument_views(OPERATORS, expand, ENUMS["stage"]["values"], header), binding_tables(),
                fuzzer_tables())
    for name in dict.fromkeys(entry["python"]["file"] for entry in OPERATORS):
        yield f"python/sluice/ops/{name}.py", python_module([e for e in OPERATORS if e["python"]["file"] == name])
    for name in FUNCTIONAL:
        path = f"python/sluice/functional/{name}.py"
        yield path, fill_calls((ROOT / path).read_text())
    yield "docs/ops.md", page(MANIFEST, MADE, expand, enumerators)


def stale():
    return [path for path, text in files() if not (ROOT / path).is_file() or (ROOT / path).read_text() != text]


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(f"{path} is not what ops/generate.py makes" for path in stale()) or 0)
    for name, content in files():
        (ROOT / name).write_text(content)
