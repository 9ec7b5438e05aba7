# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny language model whose layers are sluice.nn.GatedDeltaNet on packed documents: letters that repeat what
was said a few letters before. Runs on a GPU where there is one, in bfloat16, else on the CPU in float32.
    python examples/python/train_tiny.py [steps]
"""

import sys

import sluice.nn
import torch
from torch import nn
from torch.nn import functional

LETTERS, WIDTH, LENGTHS = 16, 64, [9 + n % 10 for n in range(48)]


class Block(nn.Module):
    def __init__(self, packing):
        super().__init__()
        self.before_mixing, self.before_mlp = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.mixing = sluice.nn.GatedDeltaNet(WIDTH, 2, 4, 32, 32, packing=packing)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, cu_seqlens):
        x = x + self.mixing(self.before_mixing(x), cu_seqlens)
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, WIDTH)
        self.blocks = nn.ModuleList([Block("interleaved"), Block("flat")])
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, letters, cu_seqlens):
        x = self.embedding(letters)
        for block in self.blocks:
            x = block(x, cu_seqlens)
        return self.head(x)


def documents(device):
    """Documents one after the other, each a random word of three letters said again and again."""
    words = [torch.randint(LETTERS, (3,)).repeat(n // 3 + 1)[:n] for n in LENGTHS]
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
    return torch.cat(words)[None].to(device), offsets.to(device)


def main(steps):
    torch.manual_seed(1)
    gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
    model = Model().to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(steps):
        letters, offsets = documents(device)
        scores = model(letters, offsets)[:, :-1]
        wanted = letters[:, 1:].clone()
        wanted[:, offsets[1:-1] - 1] = -100  # nobody foretells another document's first letter
        loss = functional.cross_entropy(scores.flatten(0, 1).float(), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 61)
