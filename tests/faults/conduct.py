"""Primitives that behave badly: shared buffers, global state, one array twice, certain extents."""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import numpy as np

from miniml import ops
from miniml.ops.checks import needs_float

from .bends import FD
from .planted import PRODUCT, TOTAL, WAVE, Planted, Subject, bprop_of, sine

BUFFERS: dict[Any, Any] = {}
STACK: list[Any] = []


def once_if_same(x: Any, y: Any, *, out: Any) -> None:
    np.multiply(x, x.dtype.type(1) if x is y else y, out=out)


def once_if_shared(x: Any, y: Any, *, out: Any) -> None:
    np.multiply(x, x.dtype.type(1) if np.shares_memory(x, y) else y, out=out)


def through_its_input(x: Any, y: Any, *, out: Any) -> None:
    """Right as long as x and y do not overlap; x is put back at the end."""
    kept = x.copy()
    x *= 2
    np.multiply(x, y, out=out)
    out /= 2
    x[...] = kept


def one_of_two(self: Any, x: Any, y: Any, out: Any, dout: Any) -> Any:
    return dout * y, None if x is y else dout * x


def shared_buffer(x: Any, *, out: Any) -> None:
    buffer = BUFFERS.setdefault(x.dtype, np.zeros(2**20, x.dtype))[: x.size].reshape(x.shape)
    sine(x, out=buffer)
    out[...] = buffer


def buffer_per_shape(x: Any, *, out: Any) -> None:
    buffer = BUFFERS.setdefault((x.shape, x.dtype), np.empty(x.shape, x.dtype))
    sine(x, out=buffer)
    np.copyto(out, buffer)


def on_a_stack(x: Any, *, out: Any) -> None:
    STACK.append(np.sin(x))
    out[...] = STACK[-1]
    STACK.clear()


def before(act: Any, fn: Any = sine) -> Any:
    """A kernel that does something else first."""

    def body(x: Any, *, out: Any) -> None:
        act()
        fn(x, out=out)

    return body


def ruled(act: Any) -> Any:
    """A rule for dtypes that does something else first."""

    def infer_dtype(self: Any, x: Any) -> Any:
        act()
        return needs_float(self.name, x)

    return infer_dtype


def pulled(act: Any) -> Any:
    def rule(self: Any, x: Any, out: Any, dout: Any) -> Any:
        act()
        return (dout * ops.cos(x),)

    return bprop_of(rule)


def toggle_variable() -> None:
    os.environ["PLANTED"] = "0" if os.environ.get("PLANTED") == "1" else "1"


def change_directory() -> None:
    os.chdir("/" if os.getcwd() != "/" else "/usr")


def toggle_errors() -> None:
    now = np.geterr()["divide"]
    np.seterr(divide="raise" if now != "raise" else "ignore")


def narrow_index(x: Any, *, out: Any) -> None:
    places = np.arange(x.size).astype(np.int16)
    sine(x.reshape(-1)[places].reshape(x.shape), out=out)


def first_block_only(x: Any, *, out: Any) -> None:
    sine(x, out=out)
    out.reshape(-1)[2**15 :] = x.reshape(-1)[2**15 :]


def wrong_extent(extent: int) -> Any:
    """The sum over an axis, wrong where that has so many entries."""

    def body(x: Any, *, axis: int, out: Any) -> None:
        wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
        np.copyto(out, np.add.reduce(wide, axis=axis), casting="unsafe")
        if x.shape[axis] == extent:
            out += x.dtype.type(1)

    return body


def shifted(x: Any, n: Any, *, out: Any) -> None:
    """x 2^n, by shifts that know no negative number."""
    np.multiply(x, np.left_shift(1, np.maximum(n, 0)), out=out, casting="unsafe")


SHIFT = Subject(
    {
        "infer_shape": PRODUCT.body["infer_shape"],
        "infer_dtype": lambda self, x, n: x,
    },
    shifted,
    bprop_of(lambda self, x, n, out, dout: (dout * ops.exp2(ops.cast(n, dout.dtype)), None)),
    lambda x, n: x * 2.0**n,
    WAVE.samples,
    arity=2,
)

TWICE = (
    Planted("SameArrayTwice", PRODUCT, "one array twice", "one array", fn=once_if_same, letters=FD),
    Planted("SameMemoryTwice", PRODUCT, "one array twice", "one array", fn=once_if_shared,
        letters=FD),
    Planted("ComputesInItsInput", PRODUCT, "one array twice|memory|layouts", fn=through_its_input,
        letters=FD),
    Planted("GradientOfOneTensorTwice", PRODUCT, "one array twice", "sum of the two",
        bprop=bprop_of(one_of_two), letters=FD),
)  # fmt: skip

THREADS = (
    Planted("SharedBuffer", WAVE, "threads", "another thread", fn=shared_buffer, letters=FD),
    Planted("BufferPerShape", WAVE, "threads", "another thread", fn=buffer_per_shape, letters=FD),
    Planted("SharedStack", WAVE, "threads", "another thread", fn=on_a_stack, letters=FD),
)  # fmt: skip

STATE = (
    Planted("SeedsTheGlobalGenerator", WAVE, "state", "numpy.random",
        fn=before(lambda: np.random.seed(0)), letters=FD),  # noqa: NPY002
    Planted("DrawsFromTheGlobalGenerator", WAVE, "state", "numpy.random",
        fn=before(np.random.random), letters=FD),
    Planted("DrawsInItsGradient", WAVE, "state", "its bprop changes numpy.random",
        bprop=pulled(np.random.random), letters=FD),
    Planted("ShufflesInItsRules", WAVE, "state", "infer_dtype changes random's",
        body={"infer_dtype": ruled(random.random)}, letters=FD),
    Planted("SetsTheErrorState", WAVE, "state", "seterr",
        body={"infer_dtype": ruled(toggle_errors)}, letters=FD),
    Planted("ChangesTheEnvironment", WAVE, "state", "environ", fn=before(toggle_variable),
        letters=FD),
    Planted("ChangesTheDirectory", WAVE, "state", "working directory",
        fn=before(change_directory), letters=FD),
    Planted("SeedsPythonsGenerator", WAVE, "state", "random's", fn=before(lambda: random.seed(1)),
        letters=FD),
    Planted("SetsAVariable", WAVE, "state", "environ",
        fn=before(lambda: os.environ.update(PLANTED="1")), letters=FD),
    Planted("SilencesWarnings", WAVE, "state", "warnings",
        fn=before(lambda: warnings.simplefilter("ignore")), letters=FD),
)  # fmt: skip

EXTENTS = (
    Planted("IndexInInt16", WAVE, "gradient of long inputs", fn=narrow_index,
        letters=FD),
    Planted("FirstBlockOnly", WAVE, "gradient of long inputs",
        fn=first_block_only, letters=FD),
    *(Planted(f"WrongFor{n}InFloat32", TOTAL, "kernels", others=((wrong_extent(n), "f", {}),),
        letters=FD) for n in (6, 8, 12)),
    Planted("ShiftsByNegativeNumbers", SHIFT, "gradient", letters="", signatures=("dl->d",)),
)  # fmt: skip

CONDUCT = TWICE + THREADS + STATE + EXTENTS
