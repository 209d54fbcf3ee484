# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 06. Two networks that write about miniml
#
# At the end you will have an LSTM that has read this project's own documentation character by
# character, and a small transformer that has read it in pieces of words, and both go on with a
# sentence of it in sentences of their own. How good they are is measured in bits per character,
# against counting letters and their neighbours. Each learns for a minute or so on one core.

# %%
import ast
import functools
import itertools
import math
import re
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import miniml as ml
from miniml import nn, ops, optim
from miniml.data import DataLoader
from miniml.train import Callback, Model

plt.rcParams.update({"figure.dpi": 90, "figure.constrained_layout.use": True})
ROOT = next(folder for folder in (Path(), Path("..")) if (folder / "docs").is_dir())

# %% [markdown]
# ## The text
#
# README, guides and docstrings, a line for each paragraph: of their sentences those that are words,
# without code, numbers and tables, for what a small network is to write is what it should read.
# Every twentieth paragraph is held out.


# %%
def prose(page):
    """The paragraphs of a page in Markdown: no code, no tables; of a link its words."""
    page = re.sub(r"^```.*?^```$|^<!--.*?-->$|^\|.*?$", "", page, flags=re.MULTILINE | re.DOTALL)
    return re.split(r"\n\s*\n", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", page))


def docstrings(module):
    """The paragraphs of all docstrings in a module's text, examples left out."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for node in ast.walk(ast.parse(module)) if isinstance(node, documented)]
    found = [ast.get_docstring(node) or "" for node in nodes]
    return [part for text in found for part in text.split("\n\n") if ">>>" not in part]


def sentences(paragraph):
    """Its sentences that are words and little else, without the marks of Markdown."""
    plain = re.sub(r"^(#+|[-*]|\d+\.) +|\*\*|`", "", " ".join(paragraph.split()))
    found = [s.strip() for s in re.split(r"(?<=[.:?!]) +(?=[A-Z])", plain)]
    whole = [s for s in found if len(s) > 20 and s[0].isupper() and s[-1] in ".:"]
    return " ".join(s for s in whole if len(re.findall(r"[^a-zA-Z ,.;:'-]", s)) <= len(s) / 50)


# %%
pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
modules = sorted(Path(ml.__file__).parent.rglob("*.py"))
paragraphs = [part for page in pages for part in prose(page.read_text("utf-8"))]
paragraphs += [part for module in modules for part in docstrings(module.read_text("utf-8"))]
paragraphs = [text for text in dict.fromkeys(map(sentences, paragraphs)) if text]
rare = {symbol for symbol, n in Counter("".join(paragraphs)).items() if n < 20}
paragraphs = ["".join(symbol for symbol in text if symbol not in rare) for text in paragraphs]

held_out = "\n".join(paragraphs[::20])
learnt = "\n".join(part for i, part in enumerate(paragraphs) if i % 20)
symbols = sorted(set(learnt + held_out))
print(f"{len(learnt):,} characters to learn from, {len(held_out):,} held out, {len(symbols)} kinds")


# %% [markdown]
# ## What counting can do
#
# A model gives a probability to each character, knowing those before it. Its *bits per character*
# are the mean of $-\log_2$ of the probability of the one that follows: 6.1 for a guess among
# 68, 0 for a prophet.
#
# The simplest model knows how frequent each letter is. The next one counts which letters follow a
# letter, then which follow a pair, and so on. Contexts that are rare or new are mixed with what is
# known of the shorter ones.

# %%
MOST = 6
p = np.full(len(held_out), 1 / len(symbols))
counted = []
for k in range(MOST + 1):
    grams = Counter(learnt[i : i + k + 1] for i in range(len(learnt) - k))
    contexts = Counter(learnt[i : i + k] for i in range(len(learnt) - k))
    seen = [held_out[max(i - k, 0) : i] for i in range(len(held_out))]
    of_gram = np.array([grams[before + c] for before, c in zip(seen, held_out, strict=True)])
    p = (of_gram + p) / (np.array([contexts[before] for before in seen]) + 1)
    counted.append(-np.log2(p).mean())

LETTERS, BIGRAMS = counted[:2]
for k, bits in enumerate(counted):
    print(f"{k} letters before: {bits:.2f} bits per character")

# %% [markdown]
# ## What the networks get
#
# Windows of 65 tokens: the first 64 are read, the last 64 are to be predicted. They are a view of
# the text, one window every few tokens; a DataLoader copies only the rows of a batch.

# %%
LENGTH, HALF = 64, 32


def windows(numbers, every):
    """(inputs, targets), both (rows, LENGTH); a row begins at every so many tokens."""
    cut = np.lib.stride_tricks.sliding_window_view(numbers, LENGTH + 1)[::every]
    return cut[:, :-1], cut[:, 1:]


def surprise(logits, targets):
    """The mean of -log2 of the probabilities that logits (..., tokens) give to the targets."""
    rows = ops.reshape(logits, (-1, logits.shape[-1]))
    return nn.CrossEntropyLoss()(rows, ops.reshape(targets, (-1,))) / math.log(2)


# %% [markdown]
# In the held-out text only the second half of a window counts, so that 32 tokens at least are known
# before each.


# %%
class Curve(Callback):
    """Keeps the loss of each step."""

    def __init__(self):
        self.losses = []

    def on_steps(self, run, losses):
        self.losses += losses


def learn(net, encode, every, epochs, rate):
    """Losses by step, and bits per character of the held-out text."""
    data, curve = DataLoader(*windows(encode(learnt), every), size=8, seed=0), Curve()
    schedule = optim.warmup(100, optim.cosine(rate, epochs * len(data)))
    optimizer = optim.AdamW(net.trainable_params(), lr=schedule, betas=(0.9, 0.99))
    Model(net, surprise, optimizer, clip=1.0).fit(
        data, epochs=epochs, callbacks=[curve], show=False
    )
    tokens = encode(held_out)
    known, targets = windows(tokens, HALF)
    scores = Model(net, surprise).predict(known)
    net.set_train(False)
    bits = surprise(scores[:, HALF:], targets[:, HALF:]).item() * len(tokens) / len(held_out)
    print(f"{sum(p.size for p in net.get_parameters()):,} weights, {bits:.2f} bits per character")
    return curve.losses, bits


# %% [markdown]
# ## An LSTM
#
# It reads characters, each in ten windows. One step takes a character and the state; `ops.scan`
# repeats it, and is compiled once for any number of steps. All products with the inputs are one
# product before the loop, all scores one product after it. (`nn.LSTM` is such a scan, with
# PyTorch's weights; `docs/sequences.md` has more on loops over time.)


# %%
class LSTM(nn.Cell):
    def __init__(self, n):
        self.n = n
        self.look_up = nn.Embedding(len(symbols), 64)
        self.from_x, self.from_h = nn.Dense(64, 4 * n), nn.Dense(n, 4 * n)
        keep = np.repeat(np.float32([0, 1, 0, 0]), n)  # a gate f that is open: a state that lasts
        self.from_h.bias.set_data(self.from_h.bias.asnumpy() + keep)
        self.head = nn.Dense(n, len(symbols))

    def step(self, state, row):
        h, c = state
        i, f, g, o = ops.split(row + self.from_h(h), 4, axis=1)
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        return (h, c), h

    def read(self, tokens):
        """The h of each step (time, batch, n), and the last state."""
        rows = self.from_x(self.look_up(ops.transpose(tokens, (1, 0))))
        zeros = ops.zeros((tokens.shape[0], self.n))
        return ops.scan(self.step, (zeros, zeros), rows)

    def construct(self, tokens):
        hs, _ = self.read(tokens)
        return ops.transpose(self.head(hs), (1, 0, 2))


number = {symbol: i for i, symbol in enumerate(symbols)}


def characters(text):
    """The numbers of the characters."""
    return np.array([number[symbol] for symbol in text], np.int32)


ml.manual_seed(0)
lstm = LSTM(192)
lstm_losses, lstm_bits = learn(lstm, characters, every=6, epochs=1, rate=3e-3)
assert lstm_bits < 1.75

# %% [markdown]
# ## Pieces of words
#
# Who reads 64 characters has forgotten how the sentence began. So the transformer reads pieces: the
# two that stand side by side most often in a word are joined to one, four hundred times, and common
# words are then a piece each. Every text can be written with them, since characters are pieces too,
# and bits per character are still what is measured.


# %%
WORD = r"\n| ?[A-Za-z]+| ?[^A-Za-z\s]| "


def joined(parts, pair):
    """The parts of a word, with this pair as one wherever it stands."""
    found = []
    for part in parts:
        if found and (found[-1], part) == pair:
            found[-1] += part
        else:
            found.append(part)
    return found


def frequent_pairs(text, count):
    """The pairs that were joined, in order."""
    words, pairs = Counter(re.findall(WORD, text)), []
    parts = {word: list(word) for word in words}
    for _ in range(count):
        beside = Counter()
        for word, own in parts.items():
            for pair in itertools.pairwise(own):
                beside[pair] += words[word]
        pairs.append(max(beside, key=beside.get))
        for word in (word for word in words if "".join(pairs[-1]) in word):
            parts[word] = joined(parts[word], pairs[-1])
    return pairs


PAIRS = frequent_pairs(learnt, 400)


@functools.cache
def pieces_of(word):
    """The pieces of a word."""
    return functools.reduce(joined, PAIRS, list(word))


pieces = [*symbols, *map("".join, PAIRS)]
place = {piece: i for i, piece in enumerate(pieces)}


def in_pieces(text):
    """The numbers of the pieces of a text."""
    return np.array(
        [place[p] for word in re.findall(WORD, text) for p in pieces_of(word)], np.int32
    )


example = held_out[: held_out.index(".") + 1]
print("|".join(pieces[i] for i in in_pieces(example)))
print(f"{len(held_out) / len(in_pieces(held_out)):.1f} characters a piece")

# %% [markdown]
# ## A transformer
#
# It has no state: each piece looks at those before it, through layers of attention. A learnt vector
# for each position says which is where.


# %%
class Transformer(nn.Cell):
    def __init__(self, d, depth):
        self.look_up, self.place = nn.Embedding(len(pieces), d), nn.Embedding(LENGTH, d)
        self.layers = nn.CellList(
            nn.TransformerEncoderLayer(d, heads=4, hidden=4 * d, dropout=0.05, norm_first=True)
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(d), nn.Dense(d, len(pieces))

    def construct(self, tokens):
        x = self.look_up(tokens) + self.place(np.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, is_causal=True)
        return self.head(self.norm(x))


ml.manual_seed(0)
transformer = Transformer(96, depth=2)
transformer_losses, transformer_bits = learn(transformer, in_pieces, every=8, epochs=2, rate=3e-3)
assert transformer_bits < 1.7

# %% [markdown]
# ## Bits per character
#
# Counting ends at four letters: longer contexts are too rare to say much. The networks have found
# something else to go by.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
left.plot(range(MOST + 1), counted, "ko-", ms=4, label="counting")
left.axhline(lstm_bits, color="C0", label="LSTM")
left.axhline(transformer_bits, color="C1", ls="--", label="transformer")
left.set(xlabel="letters before", ylabel="bits per character, held out", ylim=(1.3, 5))
length = len(learnt) / len(in_pieces(learnt))  # of a piece
for name, losses, each in (("LSTM", lstm_losses, 1), ("transformer", transformer_losses, length)):
    smooth = np.convolve(losses, np.ones(100) / 100, "valid") / each
    right.plot(8 * np.arange(len(smooth)), smooth, label=name)
right.set(xlabel="windows read", ylabel="bits per character, learning", ylim=(1.3, 5))
left.legend()
right.legend()
plt.show()

assert max(lstm_bits, transformer_bits) < min(counted) < BIGRAMS < LETTERS

# %% [markdown]
# ## Writing
#
# A token is drawn from the probabilities, and read as the next one. A temperature below 1 makes
# likely tokens likelier. To draw, random numbers with a Gumbel distribution are added to the
# scores, and the largest wins. Both networks write in a scan: a text is one call of one program.


# %%
def draw(logits, temperature):
    """Numbers of tokens (batch,), with the probabilities softmax(logits / temperature)."""
    gumbel = -ops.log(-ops.log(ops.uniform(logits.shape)))
    return ops.cast(ops.argmax(logits / temperature + gumbel, -1), ml.int32)


@ml.jit
def lstm_writes(tokens, temperature, count):
    hs, state = lstm.read(tokens)

    def step(carry, _):
        state, token = carry
        state, h = lstm.step(state, lstm.from_x(lstm.look_up(token)))
        token = draw(lstm.head(h), temperature)
        return (state, token), token

    first = draw(lstm.head(hs[-1]), temperature)
    written, _ = ops.scan(step, (state, first), length=count - 1)
    return ops.concat([first[None], written])


@ml.jit
def transformer_writes(tokens, temperature, count):
    def step(window, _):
        token = draw(transformer(window)[:, -1], temperature)
        return ops.concat([window[:, 1:], token[:, None]], axis=1), token

    written, _ = ops.scan(step, tokens, length=count)
    return written


# %% [markdown]
# Both go on with the beginning of the same held-out paragraph, which stands in brackets.

# %%
paragraph = max(held_out.splitlines(), key=len)


def show(write, encode, tokens, temperature, count):
    """Two texts of so many tokens, printed and returned."""
    numbers = encode(paragraph)[:LENGTH]
    written = write(np.stack([numbers] * 2), ml.Tensor(temperature), count).asnumpy().T
    texts = ["".join(tokens[i] for i in row) for row in written]
    for text in texts:
        print(f"[{''.join(tokens[i] for i in numbers)}]{text}", end="\n\n")
    return " ".join(texts)


ml.manual_seed(0)
print("LSTM, temperature 0.5\n")
cold = show(lstm_writes, characters, symbols, 0.5, 300)
print("LSTM, temperature 1\n")
warm = show(lstm_writes, characters, symbols, 1.0, 300)

# %%
print("Transformer, temperature 0.5\n")
cold += show(transformer_writes, in_pieces, pieces, 0.5, 120)
print("Transformer, temperature 1\n")
warm += show(transformer_writes, in_pieces, pieces, 1.0, 120)

# %% [markdown]
# Is it readable? Most of the words are words of the documentation: more of them, the lower the
# temperature.


# %%
def words(text):
    return re.findall(r"[a-z]+", text.lower())


known = set(words(learnt))


def known_words(text):
    """The share of the words in a text that have been read."""
    return np.mean([word in known for word in words(text)])


print(f"{known_words(cold):.0%} at temperature 0.5, {known_words(warm):.0%} at 1")
assert known_words(cold) > 0.9
assert known_words(cold) > known_words(warm) > 0.6
