"""A small GPT learns to sort, then writes with a cache of keys and values: how many it sorts right.

A sequence is six digits, then the same in order: 3 1 2 0 1 5 | 0 1 1 2 3 5. When it writes, a step
attends to the keys and values of all tokens before, which are kept and not computed again.
"""

import numpy as np

import miniml as ml
from miniml import nn, ops, optim

N, DIGITS, WIDTH, HEADS, BLOCKS = 6, 8, 48, 4, 2
LENGTH = 2 * N - 1


class Block(nn.Cell):
    """Attention to what was written before, and two dense layers, each added to its input."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.mix = nn.Dense(WIDTH, 3 * WIDTH), nn.Dense(WIDTH, WIDTH)
        self.up, self.down = nn.Dense(WIDTH, 4 * WIDTH), nn.Dense(4 * WIDTH, WIDTH)

    def construct(self, x, cache=None, at=0):
        """x (B, T, WIDTH) from position `at` on; cache: keys and values (B, HEADS, LENGTH, ...)."""
        parts = ops.reshape(self.qkv(self.norm1(x)), (*x.shape[:2], 3, HEADS, WIDTH // HEADS))
        q, k, v = (ops.transpose(parts[:, :, i], (0, 2, 1, 3)) for i in range(3))
        if cache is None:
            seen = ops.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # one token: its row replaces that of zeros in the cache
            here = ops.arange(LENGTH) == at
            k, v = (ops.where(here[:, None], new, old) for new, old in zip((k, v), cache))
            cache = k, v
            seen = ops.scaled_dot_product_attention(q, k, v, mask=ops.arange(LENGTH) <= at)
        x = x + self.mix(ops.reshape(ops.transpose(seen, (0, 2, 1, 3)), x.shape))
        return x + self.down(ops.gelu(self.up(self.norm2(x)))), cache


class GPT(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(DIGITS, WIDTH)
        self.positions = nn.LearnedPositions(LENGTH, WIDTH)
        self.blocks = nn.CellList([Block() for _ in range(BLOCKS)])
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Dense(WIDTH, DIGITS)

    def construct(self, tokens, caches=(None,) * BLOCKS, at=0):
        x, kept = self.positions(self.embed(tokens), at), []
        for block, cache in zip(self.blocks, caches):
            x, cache = block(x, cache, at)
            kept.append(cache)
        return self.out(self.norm(x)), tuple(kept)


def tasks(rng, count):
    given = rng.integers(0, DIGITS, (count, N))
    return np.concatenate([given, np.sort(given)], 1)


def loss(out, tokens):
    """Cross entropy of the sorted half, which begins after the last given digit."""
    scores = ops.reshape(out[0][:, N - 1 :], (-1, DIGITS))
    return ops.cross_entropy(scores, ops.reshape(tokens, (-1,)))


def write(net, given):
    """The sorted half for each row, token by token with a cache, in one compiled step."""
    empty = ops.zeros((len(given), HEADS, LENGTH, WIDTH // HEADS))
    caches = ((empty, empty),) * BLOCKS
    step = ml.jit(net)
    token, written = ml.Tensor(given[:, :1]), []
    for at in range(LENGTH):
        scores, caches = step(token, caches, ml.Tensor(at))
        guess = scores.asnumpy()[:, -1:].argmax(-1)
        token = ml.Tensor(given[:, at + 1 : at + 2] if at + 1 < N else guess)
        written += [guess] if at + 1 >= N else []
    return np.concatenate(written, 1)


def main(picture=None, steps=500):
    ml.manual_seed(0)
    net, rng = GPT(), np.random.default_rng(0)
    optimizer = optim.AdamW(net.trainable_params(), lr=optim.one_cycle(0.003, steps))
    step, losses = ml.train_step(net, loss, optimizer, clip=1.0), []
    for _ in range(steps):
        tokens = tasks(rng, 64)
        losses.append(float(step(tokens[:, :-1], tokens[:, N:])))
    net.set_train(False)
    test = tasks(rng, 500)
    right = (write(net, test[:, :N]) == test[:, N:]).all(1).mean()
    if picture:
        draw(losses, picture)
    return float(right)


def draw(losses, picture):
    from matplotlib.figure import Figure

    axes = Figure(figsize=(4.8, 3.2), layout="constrained").subplots()
    axes.semilogy(losses)
    axes.set(xlabel="step", ylabel="loss of a sorted digit, nats")
    axes.figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    print(f"{main('gpt.png'):.1%} of new sequences are sorted right")
