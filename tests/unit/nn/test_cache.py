"""Attention with a cache of keys and values: token by token it is the causal attention of all."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn
from miniml.errors import DTypeError, MinimlError, OutOfRangeError, ShapeError

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
MEMORY = np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)
SEEN = np.random.default_rng(2).random((2, 1, 6, 6)) < 0.8


def attention(rotary=False):
    ml.manual_seed(0)
    return nn.MultiHeadAttention(8, 2, rotary=nn.RotaryPositions(4) if rotary else None)


def encoder():
    ml.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(8, 2, 16, norm_first=True) for _ in range(2)]
    return nn.TransformerEncoder(layers, nn.LayerNorm(8)).set_train(False)


def decoder():
    ml.manual_seed(0)
    layers = [nn.TransformerDecoderLayer(8, 2, 16) for _ in range(2)]
    return nn.TransformerDecoder(layers).set_train(False)


CALLS = {
    "attention": (attention, lambda net, x, **o: net(x, x, x, **o)),
    "rotary": (lambda: attention(True), lambda net, x, **o: net(x, x, x, **o)),
    "layer": (lambda: encoder().layers[0], lambda net, x, **o: net(x, **o)),
    "encoder": (encoder, lambda net, x, **o: net(x, **o)),
    "decoder": (decoder, lambda net, x, **o: net(x, MEMORY, **o)),
}


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("parts", [[1] * 6, [4, 1, 1], [6]])
@pytest.mark.parametrize("name", CALLS)
def test_parts_with_a_cache_are_the_whole(name, parts, jit):
    make, call = CALLS[name]
    net = make()
    whole = call(net, X, is_causal=True).asnumpy()
    step = ml.jit(lambda x, cache, start: call(net, x, cache=cache, start=start))
    cache, outs, start = net.cache(2, 9), [], 0
    with ml.context(jit=jit):
        for size in parts:
            out, cache = step(X[:, start : start + size], cache, ml.Tensor(start))
            outs.append(out.asnumpy())
            start += size
    np.testing.assert_allclose(np.concatenate(outs, 1), whole, 1e-4, 1e-5)
    if jit:
        assert len(step.recompilations) == len(set(parts))  # no program for each position


@pytest.mark.parametrize("kind", [bool, np.float32])
def test_a_mask_holds_beside_the_cache(kind):
    net = attention()
    mask = SEEN if kind is bool else np.where(SEEN, 0.3, -np.inf).astype(np.float32)
    whole = net(X, X, X, mask, is_causal=True).asnumpy()
    cache, outs = net.cache(2, 6), []
    for t in range(6):
        x = X[:, t : t + 1]
        out, cache = net(x, x, x, mask[:, :, t : t + 1], cache=cache, start=t)
        outs.append(out.asnumpy())
    np.testing.assert_allclose(np.concatenate(outs, 1), whole, 1e-4, 1e-5)


def test_a_cache_is_where_the_weights_are():
    net = attention().to(ml.float64)
    keys, values = net.cache(3, 5)
    assert (keys.shape, values.shape, keys.dtype) == ((3, 2, 5, 4), (3, 2, 5, 4), ml.float64)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda net: net(X, X, X, cache=net.cache(2, 5)), ShapeError, "and at most 5"),
        (lambda net: net(X, X, X, cache=net.cache(3, 9)), ShapeError, "expected a cache of shape"),
        (lambda net: net(X, X, X, cache=net.cache(2, 9)[0]), DTypeError, r"cache\(n, length\)"),
        (lambda net: net(X, X, X, cache=net.cache(2, 9), start=4), OutOfRangeError, "start 4"),
        (lambda net: net(X, X, X, cache=net.cache(2, 9), start=-1), OutOfRangeError, "start -1"),
        (lambda net: net(X, X, X, cache=net.cache(2, 9), start=0.5), MinimlError, "start=0.5"),
        (lambda net: encoder()(X, cache=net.cache(2, 9)), MinimlError, "a cache"),
        (lambda net: encoder()(X, cache=[net.cache(2, 9)]), DTypeError, "1 caches for 2 layers"),
        (lambda net: nn.TransformerEncoder([net]), MinimlError, "list of nn.TransformerEncoderL"),
    ],
)
def test_what_does_not_fit_a_cache_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(attention())
