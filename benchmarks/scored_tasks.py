# SPDX-License-Identifier: Apache-2.0
"""Makes the rows of benchmarks/task_scores.py: tasks of made-up tokens that have one right answer each.

recall   pairs a b of a cycle in any order, then a: the answer follows the cycle, a lookup for every token
latest   variables that are given new values again and again: the value that one of them has at the end
copy     a few letters far apart among noise: the letters in order
reverse  letters, then the same from the last to the first
add      two numbers, lowest digit first: their sum

A row is [tokens] numbers; what is scored of it are the tokens behind the prompt, in "latest" of every query the value.
All of a batch come from one generator of the CPU, so that they are the same on every device.
"""

import torch

# Numbers of the vocabulary: marks, digits, variables, letters, noise, then symbols up to its end.
RECALL, LATEST, COPY, REVERSE, ADD, EQUALS, QUERY, PLUS, PAIR = range(9)
DIGIT, VARIABLE, LETTER, NOISE, SYMBOL = 9, 19, 35, 67, 83
DIGITS, VARIABLES, LETTERS, NOISES = 10, 16, 32, 16


def draw(generator, first, count, *shape):
    return torch.randint(first, first + count, shape, generator=generator)


def orders(generator, rows, count):
    """Rows of the numbers below `count`, each in an order of its own."""
    return torch.rand(rows, count, generator=generator).argsort(1)


def marks(rows, mark, count=1):
    return torch.full((rows, count), mark)


def join(parts):
    """(ids, which of them are scored) of [(ids, scored)]."""
    ids = torch.cat([part for part, _ in parts], 1)
    return ids, torch.cat([torch.full_like(part, scored, dtype=torch.bool) for part, scored in parts], 1)


def recall(rows, tokens, answers, generator, symbols):
    """As many pairs as have room and symbols, of a cycle through all of them. A mark before each tells which of two
    neighbours is the first."""
    count = min((tokens - answers - 3) // 3, symbols)
    cycle = SYMBOL + orders(generator, rows, symbols)[:, :count]
    order = orders(generator, rows, count)
    pairs = torch.stack([torch.full_like(cycle, PAIR), cycle, cycle.roll(-1, 1)], 2)
    pairs = pairs.gather(1, order[..., None].expand(-1, -1, 3))
    start = torch.randint(count, (rows, 1), generator=generator)
    path = cycle.gather(1, (start + torch.arange(answers + 1)) % count)
    lead = marks(rows, RECALL, tokens - 3 * count - 2 - answers)
    return join([(lead, False), (pairs.flatten(1), False), (marks(rows, EQUALS), False), (path[:, :1], False),
                 (path[:, 1:], True)])


def latest(rows, tokens, answers, generator, symbols):
    """Values have two letters; `answers` / 2 queries, each with its answer."""
    queries = answers // 2
    count = (tokens - 1 - 4 * queries) // 3
    names = draw(generator, VARIABLE, VARIABLES, rows, count)
    values = draw(generator, LETTER, LETTERS, rows, count, 2)
    asked = names.gather(1, torch.randint(count, (rows, queries), generator=generator))
    last = ((asked[..., None] == names[:, None]) * torch.arange(count)).argmax(2)
    found = values.gather(1, last[..., None].expand(-1, -1, 2))
    body = torch.cat([names[..., None], values], 2).flatten(1)
    lead = marks(rows, LATEST, tokens - 3 * count - 4 * queries)
    ids, _ = join([(lead, False), (body, False)])
    ends = torch.cat([torch.full_like(asked, QUERY)[..., None], asked[..., None], found], 2).flatten(1)
    scored = torch.zeros(rows, tokens, dtype=torch.bool)
    scored[:, ids.shape[1]:] = torch.tensor([False, False, True, True]).repeat(queries)
    return torch.cat([ids, ends], 1), scored


def copy(rows, tokens, answers, generator, symbols):
    """`answers` letters among noise."""
    count = tokens - 2 - answers
    places = orders(generator, rows, count)[:, :answers].sort(1)[0]
    letters = draw(generator, LETTER, LETTERS, rows, answers)
    body = draw(generator, NOISE, NOISES, rows, count).scatter(1, places, letters)
    return join([(marks(rows, COPY), False), (body, False), (marks(rows, EQUALS), False), (letters, True)])


def reverse(rows, tokens, answers, generator, symbols):
    """tokens = 2 * answers + 2."""
    letters = draw(generator, LETTER, LETTERS, rows, answers)
    return join([(marks(rows, REVERSE), False), (letters, False), (marks(rows, EQUALS), False),
                 (letters.flip(1), True)])


def add(rows, tokens, answers, generator, symbols):
    """Numbers of answers - 1 digits; tokens = 3 * answers + 1."""
    a, b = (torch.randint(DIGITS, (rows, answers - 1), generator=generator) for _ in range(2))
    carry, digits = torch.zeros(rows, dtype=torch.long), []
    for n in range(answers - 1):
        both = a[:, n] + b[:, n] + carry
        digits.append(both % 10)
        carry = both // 10
    total = torch.stack([*digits, carry], 1)
    return join([(marks(rows, ADD), False), (DIGIT + a, False), (marks(rows, PLUS), False), (DIGIT + b, False),
                 (marks(rows, EQUALS), False), (DIGIT + total, True)])


# Task: (what makes it, tokens of an example with this many answers where their number fixes it).
TASKS = {"recall": (recall, None), "latest": (latest, None), "copy": (copy, None),
         "reverse": (reverse, lambda answers: 2 * answers + 2), "add": (add, lambda answers: 3 * answers + 1)}
# Tokens of an answer that is evaluated, and the least and most of an example that is trained on.
ANSWERS = {"recall": 8, "latest": 2, "copy": 8, "reverse": 12, "add": 5}
TRAINED = {"recall": (8, 64), "latest": (2, 64), "copy": (4, 12), "reverse": (4, 14), "add": (5, 5)}


def evaluated(task, rows, tokens, generator, symbols):
    """(prompts [rows, ..], answers [rows, ..]); `tokens` of both together, None where the answer's length fixes it."""
    make, fixed = TASKS[task]
    answers = ANSWERS[task]
    ids, _ = make(rows, fixed(answers) if fixed else tokens, answers, generator, symbols)
    return ids[:, :-answers], ids[:, -answers:]


def trained(task, rows, tokens, generator, symbols):
    """(ids [rows, tokens], which are scored): one example, or as many of a short task as have room, then filler."""
    make, fixed = TASKS[task]
    least, most = TRAINED[task]
    answers = int(torch.randint(least, most + 1, (1,), generator=generator))
    answers = min(answers, max(least, tokens // 4))
    answers -= answers % 2 if task == "latest" else 0
    length = fixed(answers) if fixed else tokens
    many = tokens // length
    ids, scored = (part.reshape(rows, many * length)
                   for part in make(rows * many, length, answers, generator, symbols))
    missing = tokens - ids.shape[1]
    return torch.nn.functional.pad(ids, (0, missing)), torch.nn.functional.pad(scored, (0, missing))


def batch(tasks, rows, tokens, generator, symbols):
    """(ids, targets [rows, tokens], the number of each row's task). The target of a place is the next token
    where that is scored, -100 elsewhere."""
    first = int(torch.randint(len(tasks), (1,), generator=generator))  # of few rows another task has the most each time
    owners = sorted((first + row) % len(tasks) for row in range(rows))
    ids, scored = [], []
    for n in sorted(set(owners)):
        made = trained(tasks[n], owners.count(n), tokens, generator, symbols)
        ids.append(made[0])
        scored.append(made[1])
    ids, scored = torch.cat(ids), torch.cat(scored)
    targets = torch.nn.functional.pad(ids[:, 1:].masked_fill(~scored[:, 1:], -100), (0, 1), value=-100)
    return ids, targets, torch.tensor(owners)
