# SPDX-License-Identifier: Apache-2.0
"""Trains a toy hybrid, a gated delta layer and a layer of causal attention, over several ranks that
hold parts of each sequence, and on one rank: the losses are equal.

    python context_parallel.py                       # two processes on the CPU
    torchrun --nproc-per-node 2 context_parallel.py  # one process a GPU, where there are two
"""

import gc
import tempfile

import torch
import torch.distributed as dist
from sluice.distributed import ContextParallel, Fragments
from sluice.nn import GatedDeltaNet
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

WORDS, WIDTH, HEADS, D = 17, 32, 2, 16
LENGTHS = [96, 40, 120]  # documents of a packed batch
STEPS = 5


class Hybrid(torch.nn.Module):
    """Embedding, a gated delta layer, attention, output."""

    def __init__(self, context):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.delta = GatedDeltaNet(WIDTH, HEADS, HEADS, D, D, context_parallel=context)
        self.attention = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words, gather):
        """words [1,T]: this rank's. gather: rows of all ranks, in order, and the own ones of such."""
        x = self.embed(words)
        x = x + self.delta(x)
        whole, own = gather
        q, k, v = whole(self.attention(x)).chunk(3, 2)
        document = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS)).to(x.device)
        seen = (document[:, None] == document).tril()
        x = x + own(scaled_dot_product_attention(q, k, v, attn_mask=seen))
        return self.head(x)


class Gather(torch.autograd.Function):
    """All ranks' rows, [1,T,..]; gradients of them are summed over ranks."""

    @staticmethod
    def forward(ctx, rows, fragments, rank):
        ctx.fragments, ctx.rank = fragments, rank
        counts = [fragments.tokens(r) for r in range(len(fragments.ranks))]
        padded = rows.new_zeros(1, max(counts), rows.shape[2])  # a gather has one size
        padded[:, : counts[rank]] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return fragments.put([part[:, :count] for part, count in zip(parts, counts)])

    @staticmethod
    def backward(ctx, d_whole):
        dist.all_reduce(d_whole)
        return ctx.fragments.take(d_whole, ctx.rank), None, None


def train(fragments, device):
    """Losses of some steps, over the ranks that there are."""
    rank = dist.get_rank()
    context = ContextParallel(None, fragments)
    torch.manual_seed(1)
    model = Hybrid(context).to(device)
    words = torch.randint(WORDS, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(2)).to(device)
    follow = words.roll(-1, 1)
    own_words, own_follow = (fragments.take(x, rank) for x in (words, follow))
    gather = (lambda rows: Gather.apply(rows, fragments, rank), lambda whole: fragments.take(whole, rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(STEPS):
        logits = model(own_words, gather)
        loss = cross_entropy(logits.flatten(0, 1), own_follow.flatten(), reduction="sum") / words.numel()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():  # every rank has its part
            dist.all_reduce(parameter.grad)
        optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        losses.append(round(float(whole), 4))
    return losses


def work(rank, ranks, store):
    """One process: all ranks together, then each alone with everything."""
    if store is not None:
        dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    device = torch.device("cuda", rank) if dist.get_backend() == "nccl" else torch.device("cpu")
    for name in ("contiguous", "zigzag"):
        losses = train(getattr(Fragments, name)(LENGTHS, ranks), device)
        if rank == 0:
            print(f"{ranks} ranks, {name}: {losses}", flush=True)
    # The whole batch on the first rank, nothing on the others: what one rank would do.
    whole = Fragments(LENGTHS, [Fragments.contiguous(LENGTHS, 1).ranks[0]] + [[]] * (ranks - 1))
    one = train(whole, device)
    if rank == 0:
        print(f"one rank: {one}")
        print("equal:", all(abs(a - b) <= 2e-4 for a, b in zip(one, losses)))
    gc.collect()  # what holds the group goes before it, so that gloo's threads end before Python does
    dist.destroy_process_group()


if __name__ == "__main__":
    if dist.is_torchelastic_launched():
        gpus = torch.cuda.device_count() > 1
        if gpus:
            torch.cuda.set_device(dist.get_node_local_rank())
        dist.init_process_group("nccl" if gpus else "gloo")
        work(dist.get_rank(), dist.get_world_size(), None)
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (2, f"{folder}/store"), 2)
