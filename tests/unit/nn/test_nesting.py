"""Cells inside cells: as deep as Python's stack allows, and a sentence beyond."""

import sys
import threading

import numpy as np
import pytest

import miniml as ml
from miniml import nn, optim

X = np.ones((2, 3), np.float32)
FIXED = sys.version_info[:2] == (3, 12)  # a limit on calls from C, which nobody can raise
LEVELS = 200 if FIXED else 235  # PyTorch in Python 3.11: 248 at the same limit, eagerly


def nested(levels):
    net = nn.Dense(3, 3)
    for _ in range(levels):
        net = nn.Sequential(net)
    return net


def in_thread(fn):
    """fn() at the beginning of a stack: that of pytest takes a hundred calls."""
    results = []

    def run():
        try:
            results.append(fn())
        except Exception as error:
            results.append(error)

    threading.stack_size(64 << 20)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    return results[0]


def trained(net):
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))
    return step(X, np.zeros((2, 3), np.float32))


def compiled_by_itself(net):
    with ml.context(mode=ml.GRAPH_MODE):
        return net(X)


WAYS = {
    "eager": lambda net: net(X),
    "jit": lambda net: ml.jit(net)(X),
    "GRAPH_MODE": compiled_by_itself,
    "train_step": trained,
    "gradient": lambda net: ml.grad.grad(lambda x: net(x).sum())(ml.Tensor(X)),
}


@pytest.mark.parametrize("way", WAYS)
def test_cells_nest_as_deep_as_elsewhere(way):
    net = nested(LEVELS)
    inner = net.get_parameters()
    deep = in_thread(lambda: WAYS[way](net).asnumpy())
    single = nn.Dense(3, 3)
    for parameter, other in zip(single.get_parameters(), inner, strict=True):
        parameter.set_data(other)
    if way != "train_step":  # it has changed the parameters
        np.testing.assert_array_equal(deep, WAYS[way](single).asnumpy())
    assert np.isfinite(deep).all()


@pytest.mark.parametrize("way", WAYS)
def test_beyond_that_the_error_says_what_would_do(way):
    net, limit = nested(400), sys.getrecursionlimit()
    error = in_thread(lambda: WAYS[way](net))
    assert isinstance(error, RecursionError)
    said = "a fixed limit" if FIXED else "sys.setrecursionlimit(10_000) before the call"
    assert said in "".join(error.__notes__)
    if FIXED:
        return
    sys.setrecursionlimit(10_000)
    try:
        assert np.isfinite(in_thread(lambda: WAYS[way](net).asnumpy())).all()
    finally:
        sys.setrecursionlimit(limit)
