# SPDX-License-Identifier: Apache-2.0
"""Measures chunk_backward on a GPU at the sizes of training: gradients of heads of long sequences against float64, and
that calls of all multiprocessors give the same bits again and again. Outputs and the workspace are NaN before a call,
and what lies around outputs stays so. Run by scripts/test_python_cuda.sh."""

import re

import pytest
from cuda_checks import torch

pytestmark = pytest.mark.cuda

import backward_model as model
import sluice
from sluice import ops

D = 128
GUARD = 4096  # numbers before and behind an output that nobody may write
OUTPUTS = ("dq", "dk", "dv", "dgate", "dbeta", "d_initial_state")
SIZES = [(8192, 16, 32), (8192, 16, 16), (32768, 16, 32), (32768, 16, 16)]
# NUM: of the yardstick's error of a whole tensor; in one head or 64 tokens of one, twice the yardstick's worst. Errors
# of dg hang together for as long as a head remembers, so few of them are independent: of one yardstick and another
# they differ by 30 %, in a head by a factor of 2. The yardstick is therefore the largest of several.
WHOLE, PART = 1.25, 2.0
FACTORS = (1.0, 1.1, 1.3, 1.7)
CALLS = 20


def draw(tokens, H, HV, dtype, layout="kv", delta=True):
    """Arguments of a call. Heads forget after a few tokens, or after thousands."""
    generator = torch.Generator("cuda").manual_seed(tokens + HV)

    def rows(*shape, of=torch.randn, dtype=torch.float32):
        return of(*shape, device="cuda", generator=generator).to(dtype)

    given = {name: rows(1, tokens, H, D, dtype=dtype) for name in "qk"}
    given["v"] = rows(1, tokens, HV, D, dtype=dtype)
    given["gate"] = -rows(1, tokens, HV, of=torch.rand) * 10.0 ** -(torch.arange(HV, device="cuda") % 4)
    if delta:
        given["beta"] = rows(1, tokens, HV, of=torch.rand)
    given["d_o"] = rows(1, tokens, HV, D, dtype=dtype)
    given["initial_state"], given["d_final_state"] = (rows(1, HV, D, D) for _ in range(2))
    options = dict(qk_norm="l2", state_layout=layout, rule="gated_delta" if delta else "linear_attention")
    return given, options


class Call:
    """A call whose outputs and workspace are its own."""

    def __init__(self, given, options):
        self.given, self.options, self.outputs, self.whole = given, options, {}, {}
        inputs = zip(OUTPUTS, ("q", "k", "v", "gate", "beta", "initial_state"))
        for name, like in ((name, given[like]) for name, like in inputs if like in given):
            self.whole[name] = torch.empty(like.numel() + 2 * GUARD, device="cuda", dtype=like.dtype)
            self.outputs[name] = self.whole[name][GUARD:-GUARD].view(like.shape)
        self.workspace = torch.empty(0, device="cuda", dtype=torch.uint8)
        with pytest.raises(sluice.WorkspaceTooSmall) as refusal:
            self.run(torch.empty(256, device="cuda", dtype=torch.uint8))
        bytes_needed = int(re.search(r"expected >= (\d+)", str(refusal.value)).group(1))
        self.workspace = torch.empty(bytes_needed, device="cuda", dtype=torch.uint8)

    def run(self, workspace):
        ops.chunk_backward(**self.given, **self.options, **self.outputs, workspace=workspace)

    def __call__(self, fill=0xFF):
        """Bits of all outputs."""
        for whole in self.whole.values():
            whole.fill_(float("nan"))
        self.workspace.fill_(fill)
        self.run(self.workspace)
        assert sluice.last_kernel().startswith("cuda.chunk_backward.sm_90")
        for name, whole in self.whole.items():
            assert whole[:GUARD].isnan().all() and whole[-GUARD:].isnan().all(), f"{name}: written around it"
            assert not self.outputs[name].isnan().any(), f"{name}: not all of it was written"
        return {name: x.clone() for name, x in self.outputs.items()}


def heads_of(given, options, found, keys):
    """What the model takes and what was found of some key heads and their value heads, [T,..] each."""
    r = given["v"].shape[2] // given["q"].shape[2]
    values = [r * key + n for key in keys for n in range(r)]
    transposed = options["state_layout"] == "vk"

    def part(x, heads):
        return None if x is None else x[0, :, heads]

    def state(x):
        return (x[0].mT if transposed else x[0])[values]

    taken = [part(given["q"], keys), part(given["k"], keys)]
    taken += [part(given.get(name), values) for name in ("v", "gate", "beta", "d_o")]
    taken += [state(given["initial_state"]), state(given["d_final_state"])]
    of = {"dq": part(found["dq"], keys), "dk": part(found["dk"], keys), "dv": part(found["dv"], values)}
    of |= {"dg": part(found["dgate"], values), "dbeta": part(found.get("dbeta"), values)}
    return taken, {**of, "dinitial": state(found["d_initial_state"])}


def distances(name, found, exact):
    """Of the whole tensor, of the worst head and of the worst 64 tokens of a head: relative to the norms of the whole,
    of the head, and of the head's mean 64 tokens."""
    difference, size = (x.double().square() for x in (found.double() - exact, exact))
    whole = difference.sum() / size.sum()
    if name == "dinitial":
        head = difference.sum((1, 2)) / size.sum((1, 2))
        return whole.sqrt(), head.max().sqrt(), head.max().sqrt()
    difference, size = (x.flatten(2).sum(2) if x.ndim > 2 else x for x in (difference, size))
    windows = torch.cat([difference, difference.new_zeros(-len(difference) % 64, difference.shape[1])])
    windows = windows.unflatten(0, (-1, 64)).sum(1) / (size.sum(0) * 64 / len(size))
    return whole.sqrt(), (difference.sum(0) / size.sum(0)).max().sqrt(), windows.max().sqrt()


def check(tokens, H, HV, dtype, layout="kv", delta=True):
    given, options = draw(tokens, H, HV, dtype, layout, delta)
    found = Call(given, options)()
    taken, found = heads_of(given, options, found, [0, H - 1])
    exact = model.exact(*taken)
    yardsticks = [model.rounded_at(factor, *taken, dtype) for factor in FACTORS]
    lines, good = [], True
    for name, truth in exact.items():
        ours = distances(name, found[name], truth)
        theirs = map(max, zip(*(distances(name, yardstick[name], truth) for yardstick in yardsticks)))
        ratios = [float(a / b) for a, b in zip(ours, theirs)]
        passed = ratios[0] <= WHOLE and max(ratios[1:]) <= PART
        good = good and passed
        lines.append(
            f"{name}: {float(ours[0]):.2e}, of the yardstick's {ratios[0]:.2f}, worst head {ratios[1]:.2f}, "
            f"worst window {ratios[2]:.2f}{'' if passed else '  TOO FAR'}"
        )
    print(f"\n{tokens} {H}/{HV} {dtype} {layout}", *lines, sep="\n")
    assert good, "\n".join(lines)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_of_long_sequences(size, dtype):
    check(*size, dtype)


@pytest.mark.parametrize("layout", ["kv", "vk"])
def test_gradients_of_simple_gla(layout):
    check(8192, 8, 16, torch.bfloat16, layout, delta=False)


def test_gradients_of_states_in_vk_and_a_last_chunk_of_few_tokens():
    check(8192 - 61, 16, 32, torch.bfloat16, "vk")


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_same_bits_again_and_again(size, dtype):
    call = Call(*draw(*size, dtype))
    first = call()
    for n in range(CALLS):
        for name, again in call(fill=0xFF if n % 2 else 0x00).items():
            bits = torch.int16 if again.element_size() == 2 else torch.int32
            different = (again.view(bits) != first[name].view(bits)).sum().item()
            assert different == 0, f"call {n}: {name}: {different} numbers differ"
