# SPDX-License-Identifier: Apache-2.0
"""Measures context parallelism over real GPUs and NCCL against one GPU: outputs, final states and
gradients of scalar and key-wise gates and simple GLA; fixed leaves bit by bit; a graph's replay; heads
that forget; a layer by sequences, by heads and compiled; a mismatch that all ranks refuse. For torchrun, one
process a GPU (scripts/test_two_gpus.sh), or on CPUs with gloo where there is none: that tries the script."""

import copy
import gc
import sys

import sluice
import torch
import torch.distributed as dist
from distributed_cases import one_rank, own_rank, part_of
from sluice.distributed import ContextParallel, Fragments, TensorParallel
from sluice.nn import GatedDeltaNet

LENGTHS = [3000, 1, 640, 2551]
LIMIT = 0.01  # of bfloat16 on tensor cores, twice: cut and uncut


def inputs(kind, T, N, device):
    generator = torch.Generator(device).manual_seed(5)
    H, HV, D = 4, 8, 128

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device=device)

    x = {name: normal(1, T, H, D).bfloat16() for name in "qk"}
    x["v"] = normal(1, T, HV, D).bfloat16()
    options = {"qk_norm": "l2"}
    gates = (1, T, HV, D) if kind == "key-wise" else (1, T, HV)
    rates = torch.where(torch.arange(HV, device=device) % 2 == 0, 0.001, 0.3)
    rates = rates.view(1, 1, HV, 1) if kind == "key-wise" else rates.view(1, 1, HV)
    x["gate"] = (-rates * torch.rand(*gates, generator=generator, device=device)).bfloat16()
    if kind == "linear":
        x["q"], x["k"] = (torch.nn.functional.normalize(t.float(), dim=-1).bfloat16() for t in (x["q"], x["k"]))
        options = {"rule": "linear_attention"}
    else:
        x["beta"] = torch.randn(1, T, HV, generator=generator, device=device)
        options["beta_space"] = "logit"
    x["initial_state"] = 0.3 * normal(N, HV, D, D)
    return x, options


def error(found, expected):
    found, expected = found.detach().float(), expected.detach().float()
    return float((found - expected).norm() / expected.norm().clamp_min(1e-20))


def compare(kind, layout, rank, device):
    """The worst error of a call and its gradients."""
    T, N = sum(LENGTHS), len(LENGTHS)
    x, options = inputs(kind, T, N, device)
    d_o = torch.randn(1, T, 8, 128, generator=torch.Generator(device).manual_seed(6), device=device).bfloat16()
    whole = one_rank(x, options, LENGTHS, d_o)
    context = ContextParallel(None, getattr(Fragments, layout)(LENGTHS, dist.get_world_size()))
    found = own_rank(context, x, options, d_o)
    return {name: error(found[name], t) for name, t in part_of(whole, context.fragments, rank).items()}


def fixed_leaves(rank, device):
    """Bits of two ranks and of one."""
    lengths, leaf = [4096, 1024], 512
    x, options = inputs("scalar", sum(lengths), 2, device)
    one = sluice.distributed.SimulatedRanks(Fragments.contiguous(lengths, 1), split="length", split_value=leaf)
    o, final = one.forward(x, output_final_state=True, **options)
    for layout in ("contiguous", "zigzag"):
        fragments = getattr(Fragments, layout)(lengths, dist.get_world_size(), multiple=leaf)
        context = ContextParallel(None, fragments, split="length", split_value=leaf)
        own = part_of(x, fragments, rank)
        with torch.no_grad():
            found, states = context.chunk_forward(**own, output_final_state=True, **options)
        if not (torch.equal(found, fragments.take(o, rank)) and torch.equal(states, final)):
            return f"{layout}: bits differ"
    return "equal"


def graph(rank, device):
    """A captured call, replayed with other inputs, gives the bits of a call."""
    fragments = Fragments.contiguous([4096], dist.get_world_size())
    context = ContextParallel(None, fragments)
    x, options = inputs("scalar", 4096, 1, device)
    own = part_of(x, fragments, rank)
    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                context.chunk_forward(**own, **options)
        torch.cuda.current_stream().wait_stream(stream)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            o, _ = context.chunk_forward(**own, **options)
        own["v"].copy_(own["v"].roll(1, 1))
        captured.replay()
        expected, _ = context.chunk_forward(**own, **options)
        return "equal" if torch.equal(o, expected) else "bits differ"


def promise(rank, device):
    """Heads that forget send no matrix: the same bits, fewer bytes."""
    ranks = dist.get_world_size()
    fragments = Fragments.contiguous([2048 * ranks], ranks)
    x, options = inputs("scalar", 2048 * ranks, 1, device)
    own = part_of(x, fragments, rank)
    found, sent = [], []
    for transitions in (None, 4):
        context = ContextParallel(None, fragments, transitions=transitions)
        with torch.no_grad():
            found += [context.chunk_forward(**own, **options)[0] for _ in range(2)]
        sent.append(context.sent_bytes)
    if context.remembered != 4 or not sent[1] < sent[0]:
        return f"{context.remembered} heads remember, {sent} bytes"
    return "equal" if all(torch.equal(found[0], o) for o in found) else "bits differ"


def compare_layers(rank, device):
    """The worst errors of layers cut by sequences, by heads, and compiled."""
    lengths = [700, 1, 323]
    torch.manual_seed(7)
    whole = GatedDeltaNet(256, 4, 8, device=device, dtype=torch.bfloat16)
    x, d_out = (torch.randn(1, sum(lengths), 256, device=device).bfloat16() for _ in range(2))
    offsets = torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)
    given = x.clone().requires_grad_()
    expected = whole(given, offsets)
    expected.backward(d_out)
    gradients = {name: p.grad for name, p in whole.named_parameters()}
    fragments = Fragments.zigzag(lengths, dist.get_world_size())
    cut = copy.deepcopy(whole)
    cut.context_parallel = ContextParallel(None, fragments)
    parallel = TensorParallel()
    heads = parallel.gated_delta_net(256, 4, 8, device=device, dtype=torch.bfloat16)
    heads.load_state_dict(parallel.take(heads, whole.state_dict()))
    errors = {}
    compiled = torch.compile(cut, fullgraph=True)
    for name, layer, run in (("cut", cut, cut), ("compiled", cut, compiled), ("heads", heads, heads)):
        layer.zero_grad()
        by_rows = layer is cut
        own = (fragments.take(x, rank) if by_rows else x).clone().requires_grad_()
        out = run(own) if by_rows else run(own, offsets)
        out.backward(fragments.take(d_out, rank) if by_rows else d_out)
        errors[name] = error(out, fragments.take(expected, rank) if by_rows else expected)
        errors[f"{name} dx"] = error(own.grad, fragments.take(given.grad, rank) if by_rows else given.grad)
        wanted = gradients if by_rows else parallel.take(heads, gradients)
        for parameter, p in layer.named_parameters():
            found = p.grad.float()
            if by_rows:
                dist.all_reduce(found)
            errors[f"{name} {parameter}"] = error(found, wanted[parameter])
    return errors


def mismatch(rank, device):
    lengths = [512] if rank == 0 else [256, 256]
    fragments = Fragments.contiguous(lengths, dist.get_world_size())
    x, options = inputs("scalar", 512, len(lengths), device)
    own = part_of(x, fragments, rank)
    try:
        ContextParallel(None, fragments).chunk_forward(**own, **options)
    except sluice.InvalidArgument as refused:
        return str(refused)
    return "accepted"


def main():
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", dist.get_node_local_rank()) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    rank = dist.get_rank()
    failed = False
    for kind in ("scalar", "key-wise", "linear"):
        for layout in ("contiguous", "zigzag", "balanced"):
            errors = compare(kind, layout, rank, device)
            failed |= not all(e <= LIMIT for e in errors.values())
            print(rank, kind, layout, {n: f"{e:.1e}" for n, e in errors.items()}, flush=True)
    checks = {"fixed leaves": fixed_leaves, "graph": graph, "heads that forget": promise}
    if not gpu:
        del checks["graph"]
    for name, check in checks.items():
        found = check(rank, device)
        failed |= found != "equal"
        print(rank, name, found, flush=True)
    errors = compare_layers(rank, device)
    failed |= not all(e <= LIMIT for e in errors.values())
    print(rank, "layers", {n: f"{e:.1e}" for n, e in errors.items()}, flush=True)
    found = mismatch(rank, device)
    failed |= "fragments" not in found and "initial" not in found
    print(rank, "mismatch:", found, flush=True)
    gc.collect()  # what holds the group goes first: gloo's threads must end before Python does
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
