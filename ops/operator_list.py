# SPDX-License-Identifier: Apache-2.0
"""Makes src/core/operators.hpp and src/check/argument_views.hpp."""


def operator_list(operators, header):
    """One list of all operators, for what the library says of each."""
    rows = " \\\n".join(f"  X({entry['name']}, {entry['enum']}, {entry['args']})" for entry in operators)
    return header("src/core/operators.hpp", "Lists the operators.", ['"sluice/sluice.h"'], "sluice::core", [
        "", "/// X(name, sluice_op, struct of arguments) of each operator, in the order of sluice_op.",
        f"#define SLUICE_OPERATORS(X) \\\n{rows}", "",
        "#define SLUICE_NAME(name, op, args) #name,", "/// By sluice_op.",
        "inline constexpr const char* kOperatorNames[] = {SLUICE_OPERATORS(SLUICE_NAME)};", "#undef SLUICE_NAME"])


def argument_views(operators, structs, header):
    """All views of the C++ facade's arguments, one by one."""
    body = []
    for args in dict.fromkeys(entry["args"] for entry in operators):
        name = "".join(part.capitalize() for part in args.removeprefix("sluice_").split("_"))
        body += ["", "template <class See>", f"void for_each_view({name}& args, See&& see) {{"]
        for field in next(entry["fields"] for entry in operators if entry["args"] == args):
            inner = structs.get(field.get("struct"), {"cpp": "", "fields": [field]})
            member = inner["member"] + "." if inner["cpp"] else ""
            body += [f"  see(args.{member}{one['name']});" for one in inner["fields"]
                     if one.get("type", "tensor") == "tensor" and "struct" not in one]
        body.append("}")
    return header("src/check/argument_views.hpp", "Calls see(view) for each view of arguments.",
                  ['"sluice/arguments.hpp"'], "sluice::check", body)
