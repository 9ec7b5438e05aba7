# SPDX-License-Identifier: Apache-2.0
"""Makes src/core/operators.hpp and src/core/argument_views.hpp."""


def operator_list(operators, header):
    """One list of all operators, for what the library says of each."""
    rows = " \\\n".join(f"  X({entry['name']}, {entry['enum']}, {entry['args']})" for entry in operators)
    return header("src/core/operators.hpp", "Lists the operators.", ['"sluice/sluice.h"'], "sluice::core", [
        "", "/// X(name, sluice_op, struct of arguments) of each operator, in the order of sluice_op.",
        f"#define SLUICE_OPERATORS(X) \\\n{rows}", "",
        "#define SLUICE_NAME(name, op, args) #name,", "/// By sluice_op.",
        "inline constexpr const char* kOperatorNames[] = {SLUICE_OPERATORS(SLUICE_NAME)};", "#undef SLUICE_NAME"])


VIEW_FIELD = """
/// Views of one pool may be one view.
enum class Pool : uint8_t {{ kNone, {pools} }};

/// What elements are.
enum class Holds : uint8_t {{ kNumbers, kIndices, kFlags }};

/// Of ViewField::writers: every call.
inline constexpr uint8_t kAlways = 0xff;

struct ViewField {{
  const char* name;
  uint16_t offset;  ///< of a sluice_tensor in the struct
  Holds holds = Holds::kNumbers;
  uint8_t writers = 0;  ///< who writes it: nobody, kAlways, or stages, a bit each
  Pool pool = Pool::kNone;
  uint16_t other = 0;  ///< where states are written; without it those of this view are, in place

  sluice_tensor* in(void* args) const noexcept {{
    return reinterpret_cast<sluice_tensor*>(static_cast<std::byte*>(args) + offset);
  }}
  const sluice_tensor& of(const void* args) const noexcept {{
    return *reinterpret_cast<const sluice_tensor*>(static_cast<const std::byte*>(args) + offset);
  }}
}};

/// Those of a struct of arguments.
template <class Args>
inline constexpr int kViews = 0;  ///< other structs have none"""


def argument_views(operators, expand, stages, header):
    """A table of the views of each struct of arguments: an operator's own, then those of embedded structs."""
    expanded = {entry["args"]: sorted((f for f in expand(entry["fields"]) if f["type"] == "tensor"),
                                      key=lambda f: "." in f["path"]) for entry in operators}
    pools = dict.fromkeys(f["pool"] for views in expanded.values() for f in views if "pool" in f)
    body = [*VIEW_FIELD.format(pools=", ".join(map(pool_name, pools))).split("\n")]
    for args, views in expanded.items():
        body += ["", "template <>", f"inline constexpr ViewField kViews<{args}>[] = {{",
                 *(f"    {view_row(args, view, views, stages)}," for view in views), "};"]
    return header("src/core/argument_views.hpp", "Lists the views of each operator's arguments.",
                  ["<cstddef>", "<cstdint>", "", '"sluice/sluice.h"'], "sluice::core", body)


def pool_name(pool):
    return "k" + "".join(part.capitalize() for part in pool.split("_"))


def view_row(args, field, views, stages):
    holds = {"index": "kIndices", "mask": "kFlags"}.get(field["dtype"], "kNumbers")
    writers = "0" if field["role"] == "in" else "kAlways"
    if "made_by" in field:
        writers = str(sum(1 << i for i, stage in enumerate(stages) if stage["word"] in field["made_by"]))
    other = field["path"].replace("initial", "final")
    known = "pool" in field and other != field["path"] and other in (view["path"] for view in views)
    values = [f"Holds::{holds}", writers, f"Pool::{pool_name(field['pool'])}" if "pool" in field else "0",
              f"offsetof({args}, {other})" if known else "0"]
    while values and values[-1] in ("0", "Holds::kNumbers"):  # what members are without a value
        values.pop()
    return "{" + ", ".join([f'"{field["path"]}"', f"offsetof({args}, {field['path']})", *values]) + "}"
