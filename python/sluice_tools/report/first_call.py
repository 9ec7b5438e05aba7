# SPDX-License-Identifier: Apache-2.0
"""Measures what the first call of a process costs: import, first and later calls, in a fresh
interpreter."""

import json
import subprocess
import sys
from typing import Any

_PROGRAM = """
import json, sys, time
t0 = time.perf_counter()
import numpy as np
t1 = time.perf_counter()
import sluice
t2 = time.perf_counter()
cuda = sys.argv[1] == "cuda"
rng = np.random.default_rng(0)
shape = (1, 256, 4, 128)
host = [rng.standard_normal(shape, np.float32) for _ in range(3)]
host += [-rng.random(shape[:3], np.float32), rng.random(shape[:3], np.float32)]
wait = lambda: None
if cuda:
    import torch
    torch.zeros(1, device="cuda")
    wait = torch.cuda.synchronize
    host = [torch.from_numpy(a).cuda() for a in host]
    host[:3] = [a.bfloat16() for a in host[:3]]
times = []
for _ in range(9):
    wait()
    start = time.perf_counter()
    sluice.chunk_gated_delta_rule(*host, use_qk_l2norm_in_kernel=True)
    wait()
    times.append(time.perf_counter() - start)
print(json.dumps({"numpy_import": t1 - t0, "import": t2 - t1, "first": times[0],
                  "second": times[1], "later": sorted(times[2:])[3],
                  "kernel": sluice.last_kernel()}))
"""


def measure(device: str) -> dict[str, Any]:
    """Seconds: `import` of sluice (NumPy's own beside it), `first`, `second` and `later` calls of
    a prefill of 256 tokens, 4 heads; on a GPU torch's context is there before. RuntimeError if the
    process fails."""
    command = [sys.executable, "-c", _PROGRAM, device]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
