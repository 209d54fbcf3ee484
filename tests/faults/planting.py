"""Snake with one piece replaced, filed while a test runs."""

from contextlib import contextmanager

import numpy as np

from miniml import Primitive, kernel, ops
from miniml.backends import registry
from miniml.core.primitive import primitives
from miniml.grad import bprop_getters


def snake(x, *, alpha, out):
    np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)


def get_bprop_snake(self):
    return lambda x, out, dout: (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)


def same(self, x):
    return x


@contextmanager
def plant(
    fn=snake,
    bprop=get_bprop_snake,
    infer_shape=same,
    infer_dtype=same,
    others=(),
    letters=("f->f", "d->d"),
    body=(),
    **options,
):
    """An instance of the primitive; `others` are (function, letters, options) of more kernels."""
    members = {
        "__annotations__": {"alpha": float}, "alpha": 0.5, "__doc__": "x + sin(alpha x)^2 / alpha.",
        "__module__": __name__, "__qualname__": "Planted",
        "infer_shape": infer_shape, "infer_dtype": infer_dtype, **dict(body),
    }  # fmt: skip
    cls = globals()["Planted"] = type("Planted", (Primitive,), members)
    try:
        kernel("Planted", "cpu", *letters, **options)(fn)
        for function, more, message in others:
            kernel("Planted", "cpu", *more, **message)(function)
        if bprop is not None:
            bprop_getters.register(cls)(bprop)
        yield cls()
    finally:
        del globals()["Planted"]
        bprop_getters.unregister(primitives.pop("Planted"))
        registry.specs.pop("Planted", None)
        for device in ("cpu", "cuda"):
            registry.table.pop(("Planted", device), None)
