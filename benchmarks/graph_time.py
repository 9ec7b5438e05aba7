# SPDX-License-Identifier: Apache-2.0
"""Times a torch call on a GPU without host time, for the benchmarks beside Triton kernels: median of
replays of a CUDA graph of the call that find the L2 full of other data."""

import statistics

import torch

AHEAD = 100_000_000  # cycles that the GPU waits while the host queues a call: 50 ms


class Queued:
    """A call that no graph can hold: it is queued behind a kernel that waits, so that host time does not count."""

    def __init__(self, call):
        self.replay = call
        for _ in range(2):
            call()
        torch.cuda.synchronize()


def graph_of(call):
    """A CUDA graph of the call, after two calls that compile and tune it."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def graph_or_queued(call):
    """A graph of the call where it can be captured. A call that does not run at all raises here."""
    try:
        return graph_of(call)
    except Exception:
        return Queued(call)


def milliseconds_of(calls, repeat=15):
    """Median times of one replay of a graph of each of the calls, which take turns."""
    return milliseconds_of_graphs([graph_of(call) for call in calls], repeat)


def milliseconds_of_graphs(graphs, repeat=15):
    """Median times of one replay of each of the graphs, which take turns."""
    sweep = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    pairs = [[] for _ in graphs]
    for i in range(repeat):
        for graph, times in zip(graphs, pairs):
            queued = isinstance(graph, Queued)
            if queued:
                torch.cuda.synchronize()
                torch.cuda._sleep(AHEAD)
            sweep.fill_(i)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            if queued and begin.query():
                raise RuntimeError("the host is slower than the wait")
            end.record()
            times.append((begin, end))
    torch.cuda.synchronize()
    return [statistics.median(a.elapsed_time(b) for a, b in times) for times in pairs]


def milliseconds(call, repeat=15):
    """Median time of one replay of a graph of the call."""
    return milliseconds_of([call], repeat)[0]


def difference(a, b):
    """Relative L2 distance."""
    return ((a.float() - b.float()).norm() / b.float().norm()).item()
