"""Makes src/core/operators.hpp. SPDX-License-Identifier: Apache-2.0"""


def operator_list(operators, header):
    """One list of all operators and one of those with CUDA kernels, for what the library says of each."""
    def rows(some):
        return " \\\n".join(f"  X({entry['name']}, {entry['enum']}, {entry['args']})" for entry in some)

    return header("src/core/operators.hpp", "Lists the operators.", ['"sluice/sluice.h"'], "sluice::core", [
        "", "/// X(name, sluice_op, struct of arguments) of each operator, in the order of sluice_op.",
        f"#define SLUICE_OPERATORS(X) \\\n{rows(operators)}", "", "/// Of those with CUDA kernels.",
        f"#define SLUICE_CUDA_OPERATORS(X) \\\n{rows([e for e in operators if 'cuda' in e['backends']])}", "",
        "#define SLUICE_NAME(name, op, args) #name,", "/// By sluice_op.",
        "inline constexpr const char* kOperatorNames[] = {SLUICE_OPERATORS(SLUICE_NAME)};", "#undef SLUICE_NAME"])
