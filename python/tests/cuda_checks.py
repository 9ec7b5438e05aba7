# SPDX-License-Identifier: Apache-2.0
"""Records and watches calls on a GPU. A module that imports this is skipped where torch can use none."""

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: its tests are skipped")
if not torch.cuda.is_available():
    pytest.skip("no GPU that torch can use", allow_module_level=True)


def recorded(step):
    """What a second call of step gave, a graph of one more, and where the graph's results are."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        expected = [t.clone() for t in step()]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            found = step()
    return expected, graph, found


@contextlib.contextmanager
def nothing_waits(cycles=100_000_000):
    """Calls in it end while the GPU is still busy with what came before, or raise."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(cycles)
        yield
        assert not torch.cuda.current_stream().query(), "a call waited"
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
