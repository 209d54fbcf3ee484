"""NumPy's products take one BLAS thread unless the user asks for more."""

import time

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends.cpu import linalg
from miniml.backends.kernel import cpu_threads
from miniml.backends.product import openblas

pytestmark = [
    pytest.mark.skipif(openblas() is None, reason="no OpenBLAS in this NumPy"),
    pytest.mark.skipif(cpu_threads() < 2, reason="one CPU: the BLAS has one thread"),
]


@pytest.fixture(autouse=True)
def two_threads():
    blas = openblas()
    before = blas.threads()
    blas.set_threads(2)
    yield
    assert blas.threads() == 2
    blas.set_threads(before)


def seen(monkeypatch, call):
    """How many threads the BLAS had in each product that `call` made."""
    found = []
    limited = linalg.limited

    def watched(work, product, *arrays):
        def noted(*args, **named):
            found.append(openblas().threads())
            return product(*args, **named)

        return limited(work, noted, *arrays)

    monkeypatch.setattr(linalg, "limited", watched)
    call()
    return found


def ones(*shape):
    return ml.Tensor(np.ones(shape, "f"))


@pytest.mark.parametrize("jit", [True, False])
def test_a_product_is_on_one_thread(monkeypatch, jit):
    fn = ml.jit(ops.matmul) if jit else ops.matmul
    assert seen(monkeypatch, lambda: fn(ones(64, 256), ones(256, 128))) == [1]


@pytest.mark.parametrize(("size", "threads", "expected"), [(256, 2, 2), (256, 1, 1), (128, 2, 1)])
def test_large_products_take_as_many_as_the_user_asks_for(monkeypatch, size, threads, expected):
    with ml.context(threads=threads):
        x = ones(size, size)
        assert seen(monkeypatch, lambda: ops.matmul(x, x)) == [expected]


def test_convolutions_decompositions_and_sums_too(monkeypatch):
    conv = ml.nn.Conv2d(8, 8, 3)
    assert seen(monkeypatch, lambda: ops.eigh(np.eye(64))) == [1]
    assert set(seen(monkeypatch, lambda: conv(ones(4, 8, 16, 16)))) == {1}
    assert seen(monkeypatch, lambda: ops.sum(ones(1000, 1000), 1)) == [1]


def test_an_error_gives_the_threads_back():
    with pytest.raises(ValueError, match="mismatch"):
        linalg.matmul(np.ones((64, 256), "f"), np.ones((255, 64), "f"), np.empty((64, 64), "f"))


def test_no_other_thread_computes():
    x, y, out = np.ones((128, 256), "f"), np.ones((256, 128), "f"), np.empty((128, 128), "f")
    linalg.matmul(x, y, out)
    time.sleep(0.1)  # for threads that still spin after products of other tests
    whole, own = time.process_time(), time.thread_time()
    for _ in range(100):
        linalg.matmul(x, y, out)
    assert time.process_time() - whole < 1.2 * (time.thread_time() - own) + 0.002


def test_explain_says_so():
    found = ml.explain(ops.matmul, ones(64, 256), ones(256, 128)).rows[0].why
    assert found.endswith("one BLAS thread, unless threads= asks for more")
