# SPDX-License-Identifier: Apache-2.0
"""Translates the weights of a layer: projections of one row order into the other, and fla's names."""

from collections.abc import Mapping

import torch
from torch import Tensor

# fla's parameters, whose projections and convolutions are three each, and the ones here of packing "flat".
_FLA = {
    "g_proj.weight": "in_proj_z.weight",
    "b_proj.weight": "in_proj_b.weight",
    "a_proj.weight": "in_proj_a.weight",
    "A_log": "A_log",
    "dt_bias": "dt_bias",
    "o_norm.weight": "norm.weight",
    "o_proj.weight": "out_proj.weight",
}
_THREE = {
    ("q_proj.weight", "k_proj.weight", "v_proj.weight"): "in_proj_qkv.weight",
    ("q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"): "conv1d.weight",
    ("q_conv1d.bias", "k_conv1d.bias", "v_conv1d.bias"): "conv1d.bias",
}
Sizes = tuple[int, int, int, int]  # num_k_heads, num_v_heads, head_k_dim, head_v_dim


def by_head(sizes: Sizes) -> tuple[list[int], list[int]]:
    """Rows of an interleaved projection for each key head: [q | k | v | z] and [b | a]."""
    H, HV, K, V = sizes
    return [K, K, HV // H * V, HV // H * V], [HV // H, HV // H]


def parts_of_heads(x: Tensor, heads: int, sizes: list[int], axis: int) -> list[Tensor]:
    """Parts of so many rows of each head, along an axis on which heads follow each other."""
    return [part.flatten(axis, axis + 1) for part in x.unflatten(axis, (heads, -1)).split(sizes, axis + 1)]


def interleaved(flat: Mapping[str, Tensor], sizes: Sizes) -> dict[str, Tensor]:
    """A state dict of packing "flat" as one of packing "interleaved"."""
    H, _, K, _ = sizes
    rest = dict(flat)
    qkv, z, b, a = (rest.pop(f"in_proj_{name}.weight") for name in ("qkv", "z", "b", "a"))
    q, k, v = qkv.split([H * K, H * K, qkv.shape[0] - 2 * H * K])

    def by_head(*parts: Tensor) -> Tensor:
        return torch.cat([part.unflatten(0, (H, -1)) for part in parts], 1).flatten(0, 1)

    return {**rest, "in_proj_qkvz.weight": by_head(q, k, v, z), "in_proj_ba.weight": by_head(b, a)}


def flat(interleaved: Mapping[str, Tensor], sizes: Sizes) -> dict[str, Tensor]:
    """A state dict of packing "interleaved" as one of packing "flat"."""
    rest, (wide, narrow) = dict(interleaved), by_head(sizes)
    *qkv, z = parts_of_heads(rest.pop("in_proj_qkvz.weight"), sizes[0], wide, 0)
    b, a = parts_of_heads(rest.pop("in_proj_ba.weight"), sizes[0], narrow, 0)
    for name, part in (("qkv", torch.cat(qkv)), ("z", z), ("b", b), ("a", a)):
        rest[f"in_proj_{name}.weight"] = part
    return rest


def from_fla(given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of fla's GatedDeltaNet as one of packing "flat". KeyError names what is missing, ValueError what
    has no place here."""
    rest = dict(given)
    found = {ours: rest.pop(theirs) for theirs, ours in _FLA.items()}
    for three, ours in _THREE.items():
        if three[0] in rest or not ours.endswith("bias"):
            found[ours] = torch.cat([rest.pop(name) for name in three])
    if rest:
        raise ValueError(f"GatedDeltaNet: state dict entry = {min(rest)}, expected those of fla's GatedDeltaNet")
    return found


def to_fla(given: Mapping[str, Tensor], sizes: Sizes) -> dict[str, Tensor]:
    """A state dict of packing "flat" as one of fla's GatedDeltaNet."""
    H, HV, K, V = sizes
    found = {theirs: given[ours] for theirs, ours in _FLA.items()}
    for three, ours in _THREE.items():
        if ours in given:
            found.update(zip(three, given[ours].split([H * K, H * K, HV * V])))
    return found
