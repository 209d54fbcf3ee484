"""What executes a program: with Parameters, as users write it, or as a pure function.

`Stateful` reads parameters where they stand and changes them by `ops.assign`. `Functional` is the
same program as a pure function, with what the parameters hold passed by hand; it can be
differentiated by miniml and, as `Autograd`, by HIPS autograd, which knows nothing of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.builtins import tuple as autograd_tuple
from autograd.core import make_vjp
from autograd.tracer import getval

import miniml as ml
from miniml import ops
from miniml.grad import vjp
from tests.stateful.programs import PARAMETERS, SIZE


class Stateful:
    """The program as it is: parameters are read and assigned."""

    sin, tanh = staticmethod(ops.sin), staticmethod(ops.tanh)

    def __init__(self, parameters: Sequence[ml.Parameter]):
        self.parameters = parameters

    def read(self, k: int) -> Any:
        return self.parameters[k]

    def assign(self, k: int, value: Any) -> Any:
        return ops.assign(self.parameters[k], value)

    def cond(self, of: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        return ops.cond(ops.sum(of) > 0.3, yes, no)

    def vjp(self, fn: Callable[[Any], Any], at: Any) -> tuple[Any, Callable[[Any], Any]]:
        out, pull = vjp(fn, at)
        return out, lambda dout: pull(dout)[0]


class Functional:
    """The same as a pure function: `state` is what the parameters hold, `assign` replaces it."""

    sin, tanh = staticmethod(ops.sin), staticmethod(ops.tanh)

    def __init__(self, state: Sequence[Any]):
        self.state = list(state)

    def read(self, k: int) -> Any:
        return self.state[k]

    def assign(self, k: int, value: Any) -> Any:
        self.state[k] = value
        return value

    def cond(self, of: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        return yes() if float(ops.sum(of)) > 0.3 else no()

    def threaded(self, fn: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
        """fn as a function that gives the state it leaves, too."""
        before = list(self.state)

        def pure(at: Any) -> tuple[Any, ...]:
            self.state = list(before)
            return fn(at), *self.state

        return pure

    def vjp(self, fn: Callable[[Any], Any], at: Any) -> tuple[Any, Callable[[Any], Any]]:
        (out, *self.state), pull = vjp(self.threaded(fn), at)
        return out, lambda dout: pull((dout, *[None] * PARAMETERS))[0]


class Autograd(Functional):
    """The pure function for HIPS autograd."""

    sin, tanh = staticmethod(anp.sin), staticmethod(anp.tanh)

    def cond(self, of: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        while hasattr(of, "_value"):
            of = getval(of)
        return yes() if of.sum() > 0.3 else no()

    def vjp(self, fn: Callable[[Any], Any], at: Any) -> tuple[Any, Callable[[Any], Any]]:
        pure = self.threaded(fn)
        pull, outs = make_vjp(lambda x: autograd_tuple(pure(x)), at)
        out, *self.state = (outs[i] for i in range(1 + PARAMETERS))
        zeros = [np.zeros(SIZE)] * PARAMETERS
        return out, lambda dout: pull(autograd_tuple((dout, *zeros)))
