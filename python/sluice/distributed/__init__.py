# SPDX-License-Identifier: Apache-2.0
"""Sequences over many devices: exact context parallelism for torch, forward and backward.

A rank holds some pieces of each sequence (`Fragments`). It computes what its pieces do to the
states that enter them, one matrix and one addend a piece and head; one all-gather later every rank
folds these into the states that enter its own pieces, and runs them. Nothing is approximated.
docs/distributed.md has the equations, an example and the limits.

Needs torch, whose process groups carry the exchange: NCCL on GPUs, gloo on CPUs.
"""

from .context import ContextParallel
from .fragments import Fragment, Fragments
from .simulate import SimulatedRanks
from .tensor import TensorParallel

__all__ = ["ContextParallel", "Fragment", "Fragments", "SimulatedRanks", "TensorParallel"]
