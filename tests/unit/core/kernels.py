"""Throwaway primitives and kernels for the tests of the kernel table."""

from miniml import Primitive


def primitive(name="KerOne", inputs=1, outputs=1, **body):
    """A throwaway primitive whose outputs are like its first input."""
    names = ", ".join("xyz"[:inputs])
    one = "x" if outputs == 1 else ", ".join(["x"] * outputs)
    source = f"def infer_shape(self, {names}): return {one}\n"
    source += f"def infer_dtype(self, {names}): return {one}\n"
    exec(source, rules := {})
    rules.pop("__builtins__")
    extra = {} if outputs == 1 else {"outputs": tuple("abc"[:outputs])}
    return type(name, (Primitive,), {"__module__": __name__, **rules, **extra, **body})


def constant(value):
    def fill(*arrays, out):
        out[...] = value

    fill.__qualname__ = f"constant_{value}"
    return fill
