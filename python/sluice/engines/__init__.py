# SPDX-License-Identifier: Apache-2.0
"""Holds one namespace per engine, with the signatures and conventions that engine calls.

Equal names differ between engines in argument order, state layout, gate space, padding rule and
number of return values, so nothing is shared between namespaces and nothing is exported here:
import `sluice.engines.fla`, `.vllm`, `.sglang`, `.flashinfer`, `.causal_conv1d`, `.transformers` or
`.sgl_npu`. Each shim only maps arguments onto `sluice.ops`; what the operators cannot honour is
refused by name (sluice.Unsupported, or sluice.InvalidArgument for a caller's mistake). Importing a
namespace imports neither its engine nor torch. docs/engines/ says for every engine which version
was read, what ran inside it and what was only checked against its contract.
"""
