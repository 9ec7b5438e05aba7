# SPDX-License-Identifier: Apache-2.0
"""Shortens what Triton kernels of peers take to begin: their autotuner compiles one configuration after the other, here
all of a kernel at once, in threads. What is chosen, and how fast that is, stays the autotuner's business."""

from concurrent.futures import ThreadPoolExecutor


def compile_at_once(threads=16):
    """Changes Triton's autotuner in this process, where it is one that can (3.4 and later)."""
    import triton
    from triton.runtime.autotuner import Autotuner

    if not hasattr(triton, "AsyncCompileMode") or not hasattr(Autotuner, "check_disk_cache"):
        return
    executor = ThreadPoolExecutor(threads)
    run, check = Autotuner.run, Autotuner.check_disk_cache

    def compile_all(tuner, configs):
        args, kwargs = tuner.asked
        options = {name: value for name, value in kwargs.items() if name != "warmup"}
        with triton.AsyncCompileMode(executor, ignore_errors=True):
            for config in configs:
                tuner.fn.warmup(*args, **options, **config.all_kwargs())

    def run_and_remember(self, *args, **kwargs):
        self.asked = args, kwargs
        return run(self, *args, **kwargs)

    def check_disk_cache(self, key, configs, bench):
        def compile_and_bench():
            compile_all(self, configs)
            bench()

        return check(self, key, configs, compile_and_bench)

    Autotuner.run, Autotuner.check_disk_cache = run_and_remember, check_disk_cache
