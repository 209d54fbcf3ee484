"""The programs in examples/ranks: several ranks get the number of one, which is that of a network
written without ranks."""

import importlib
import re

import numpy as np
import pytest

import miniml as ml
from miniml import Parameter, nn, ops, optim
from miniml.data import load_digits
from miniml.distributed import loopback

from .launch import ROOT, needs_mpi, ranks

FOLDER = ROOT / "examples" / "ranks"
NAMES = ("pipeline", "sharded_state", "spread_embedding", "tensor_parallel")
STEPS, MOST = 8, {"pipeline": 0.25, "sharded_state": 0.2, "spread_embedding": 0.7,
                  "tensor_parallel": 0.2}  # fmt: skip


def on_ranks(name, size, steps):
    program = importlib.import_module(f"examples.ranks.{name}")
    with ml.context(providers=("miniml",)):
        return loopback(lambda group: program.main(group, steps), size)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_ranks_learn_what_one_learns(name, size):
    np.testing.assert_allclose(on_ranks(name, size, STEPS), on_ranks(name, 1, STEPS)[0], rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_learns(name):
    (found,) = on_ranks(name, 1, 60)
    assert found < MOST[name]


def draw(*shape, scale):
    return Parameter(np.random.default_rng(0).normal(size=shape, scale=scale).astype("f"))


def losses(forward, weights, steps=STEPS):
    """The last loss of a network that is written without ranks."""
    digits, entropy = load_digits(), nn.CrossEntropyLoss()
    step = ml.train_step(forward, entropy, optim.SGD(weights, lr=0.1, momentum=0.9))
    for i in range(steps):
        rows = slice(96 * i, 96 * i + 96)
        last = step(digits.images.reshape(-1, 64)[rows], digits.labels[rows])
    return last.item()


def test_the_numbers_are_those_of_networks_without_ranks():
    with ml.context(providers=("miniml",)):
        layers = draw(4, 64, 64, scale=0.15)

        def deep(x):
            for i in range(4):
                x = ops.tanh(x @ layers[i])
            return x[:, :10] * 5.0

        np.testing.assert_allclose(on_ranks("pipeline", 2, STEPS), losses(deep, [layers]), 1e-4)
        both = np.random.default_rng(0)
        first, second = (Parameter(both.normal(size=s, scale=0.1).astype("f"))
                         for s in ((64, 48), (48, 10)))  # fmt: skip
        b, c = Parameter(np.zeros(48, "f")), Parameter(np.zeros(10, "f"))
        plain = losses(lambda x: ops.relu(x @ first + b) @ second + c, [first, b, second, c])
        np.testing.assert_allclose(on_ranks("tensor_parallel", 2, STEPS), plain, rtol=1e-4)


def test_every_program_is_short_and_listed():
    programs = {p.stem: p.read_text("utf-8") for p in FOLDER.glob("[a-z]*.py")}
    assert sorted(programs) == sorted(NAMES)
    assert all(text.count("\n") <= 60 for text in programs.values())
    for page in ("examples/README.md", "docs/distributed.md"):
        listed = re.findall(r"\]\((?:\.\./examples/)?ranks/(\w+)\.py\)", (ROOT / page).read_text())
        assert sorted(listed) == sorted(programs)


@needs_mpi
@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_processes_get_the_same_number(name, tmp_path):
    quick = "import miniml as ml; ml.set_context(providers=('miniml',))\n"
    ended = ranks(2, quick + (FOLDER / f"{name}.py").read_text("utf-8"), tmp_path)
    assert ended.status == 0, ended.err
    found = {float(x) for x in re.findall(r"loss (\S+)", ended.out)}
    assert len(found) == 1
    assert np.isclose(found.pop(), on_ranks(name, 2, 60)[0], rtol=0.02)
