# SPDX-License-Identifier: Apache-2.0
"""Stands in for what vLLM, SGLang and Triton ask of a Hopper where none is: its properties, streams and driver."""

import itertools
import types

import torch


class Card:
    """Properties of an H200, with as much memory as pools shall be sized by."""

    name, major, minor, multi_processor_count = "NVIDIA H200", 9, 0, 132
    shared_memory_per_block_optin, L2_cache_size, warp_size, is_integrated = 232448, 60 << 20, 32, False

    def __init__(self, total_memory):
        self.total_memory = total_memory


class Anything:
    """A stream, an event or a device: does nothing."""

    numbers = itertools.count(1)

    def __init__(self, *_, **__):
        self.cuda_stream = next(self.numbers)

    def __getattr__(self, name):
        return lambda *_, **__: self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def stand_in_for_driver():
    """What Triton asks of a GPU's driver when modules are imported."""
    import triton.backends.nvidia.driver as nvidia
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    nvidia.CudaDriver.is_active = staticmethod(lambda: True)
    facts = dict(multiprocessor_count=Card.multi_processor_count, max_shared_mem=Card.shared_memory_per_block_optin,
                 sm_clock_rate=1980000)
    driver.set_active(types.SimpleNamespace(
        utils=types.SimpleNamespace(get_device_properties=lambda _: facts),
        get_current_target=lambda: GPUTarget("cuda", 90, Card.warp_size), get_current_device=lambda *_: 0,
        get_current_stream=lambda *_: 0, get_device_interface=lambda: torch.cuda,
    ))
