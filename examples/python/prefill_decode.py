# SPDX-License-Identifier: Apache-2.0
"""Runs a prefill of a prompt, then single tokens on the same state, checked against one prefill of
all. Needs sluice and NumPy: python examples/python/prefill_decode.py"""

import numpy as np
import sluice

B, T, H, HV, K, V = 1, 100, 2, 4, 64, 64  # HV value heads share H key heads
rng = np.random.default_rng(0)
q, k = rng.standard_normal((2, B, T, H, K), dtype=np.float32)
v = rng.standard_normal((B, T, HV, V), dtype=np.float32)
g, beta = -rng.random((B, T, HV), dtype=np.float32), rng.random((B, T, HV), dtype=np.float32)
l2 = dict(use_qk_l2norm_in_kernel=True)

whole, _ = sluice.chunk_gated_delta_rule(q, k, v, g, beta, **l2)
first = [x[:, :90] for x in (q, k, v, g, beta)]  # views: nothing is copied
o, state = sluice.chunk_gated_delta_rule(*first, output_final_state=True, **l2)
for t in range(90, T):
    q1, k1, v1, g1, beta1 = (x[:, t : t + 1] for x in (q, k, v, g, beta))
    o, _ = sluice.fused_recurrent_gated_delta_rule(
        q1, k1, v1, g1, beta=beta1, initial_state=state, final_state=state, **l2)  # in place
error = np.abs(o[:, 0] - whole[:, -1]).max()
print(f"last token: {error:.0e} from the prefill's, on {sluice.last_kernel()}")
assert error < 1e-5
