// Runs sluice, the command-line tool: computes, checks, makes and times cases of gated linear
// attention.
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_tool.hpp"

int main(int argc, char** argv) { return sluice::tools::run_tool(argc, argv); }
