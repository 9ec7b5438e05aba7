# SPDX-License-Identifier: Apache-2.0
"""Runs a test's function in several processes that form a group over gloo. Processes that wait for each other end
by a timeout."""

import datetime
import gc
import os
import tempfile


def start(rank, ranks, store, task, errors):
    """One process of a group."""
    import torch

    torch.set_num_threads(1)
    try:
        torch.distributed.init_process_group(
            "gloo", f"file://{store}", rank=rank, world_size=ranks,
            timeout=datetime.timedelta(seconds=60),
        )
        task(rank, ranks)
        errors.put((rank, None))
    except BaseException as error:  # the parent reports it
        errors.put((rank, f"{type(error).__name__}: {error}"))
    finally:
        if torch.distributed.is_initialized():
            gc.collect()  # what holds the group goes first: gloo's threads must end before Python does
            torch.distributed.destroy_process_group()


def together(task, ranks):
    """Runs task(rank, ranks) in `ranks` processes; what each of them raised. The task is a function of a module that
    they can import."""
    import torch

    context = torch.multiprocessing.get_context("spawn")
    errors = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [
            context.Process(target=start, args=(rank, ranks, store, task, errors))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        found = dict(errors.get(timeout=240) for _ in processes)
        for rank, process in enumerate(processes):
            process.join(30)
            if found[rank] is None and process.exitcode != 0:
                found[rank] = f"ended with exit code {process.exitcode}"
    return found
