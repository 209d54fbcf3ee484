"""SciPy's optimizers: a function of trees, or a loss of a network, as one of a flat vector.

In order: `to_scipy`; the problem, by which a vector and a tree are each other; where parameters are
the unknowns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from ..core.abstract import is_float
from ..core.errors import GradientArgumentError, ShapeError
from ..core.parameter import Parameter
from ..core.tensor import Array, Tensor
from ..grad.transforms import Weights, hvp, value_and_grad
from ..nn.cell import Cell
from ..runtime.jit import jit


def to_scipy(fn: Callable[..., Any], template: Any, compiled: bool = True) -> Problem:
    """A scalar function as what `scipy.optimize.minimize` takes: one of a flat float64 vector.

    template: a tree of float tensors or arrays, which fn takes as its only argument; or a Cell, a
    Parameter or a list of Parameters, which fn, without arguments, reads. compiled: run it as
    one program, by `jit`. The result gives (value, gradient) when called, so that it goes with
    jac=True; `start` is the template as a vector, `hessp(x, v)` the product of the Hessian with a
    vector (of a tree only), `tree(x)` a vector as a tree. Values are computed in the dtypes of the
    template. GradientArgumentError: a template without floats, or an fn that returns no scalar.

    >>> from scipy.optimize import minimize
    >>> from miniml import ops
    >>> problem = to_scipy(lambda p: ops.sum((p["a"] - 2.0) ** 2), {"a": np.zeros(3)})
    >>> found = minimize(problem, problem.start, jac=True, method="L-BFGS-B")
    >>> problem.tree(found.x)["a"]
    Tensor([2., 2., 2.], shape=(3,), dtype=float64)
    """
    return Problem(fn, template, compiled)


class Problem:
    """A function of a flat vector, with its gradient; made by `to_scipy`."""

    def __init__(self, fn: Callable[..., Any], template: Any, compiled: bool):
        self.weights = _weights(template)
        tree: Any = template if self.weights is None else list(self.weights)
        leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
        self._spec: Any = spec
        self._leaves = [leaf if isinstance(leaf, Tensor) else Tensor(leaf) for leaf in leaves]
        bad = next((leaf for leaf in self._leaves if not is_float(leaf.dtype)), None)
        if bad is not None or not self._leaves:
            what = f"a leaf of {bad.dtype.name}" if bad is not None else "no leaves"
            raise GradientArgumentError(
                f"to_scipy got a template with {what}; give a tree of floats, a Cell or Parameters"
            )
        run: Any = jit if compiled else _itself
        if self.weights is None:
            self._both = run(value_and_grad(fn))
            self._product = run(lambda x, v: hvp(fn, (x,), (v,)))
        else:
            self._both = run(value_and_grad(fn, None, weights=self.weights))

    @property
    def start(self) -> Array:
        """The template, or the parameters as they are now, as a vector."""
        return np.concatenate([leaf.asnumpy().ravel().astype(np.float64) for leaf in self._leaves])

    def __call__(self, x: Any) -> tuple[float, Array]:
        """The value and the gradient at a vector. Parameters keep these values."""
        if self.weights is None:
            value, gradient = self._both(self.tree(x))
            return float(value), self._vector(gradient)
        self.assign(x)
        value, gradients = self._both()
        return float(value), self._vector(list(gradients))

    def hessp(self, x: Any, v: Any) -> Array:
        """The product of the Hessian at x with a vector v."""
        if self.weights is not None:
            raise GradientArgumentError(
                "to_scipy has no hessp where Parameters are the unknowns; give a function of a tree"
            )
        found = self._product(self.tree(x), self.tree(v))
        return self._vector(found[0] if isinstance(found, tuple) else found)

    def tree(self, x: Any) -> Any:
        """A vector as a tree like the template; ShapeError for another length."""
        leaves: Any = self._parts(x)
        return self._spec.unflatten(leaves)

    def assign(self, x: Any) -> None:
        """Give the parameters the values in a vector."""
        for parameter, value in zip(self.weights or (), self._parts(x), strict=True):
            parameter.set_data(value)

    def _parts(self, x: Any) -> list[Tensor]:
        flat, total = np.asarray(x, np.float64), sum(leaf.size for leaf in self._leaves)
        if flat.shape != (total,):
            raise ShapeError(f"to_scipy got a vector of shape {flat.shape}; it has {total} entries")
        ends = np.cumsum([leaf.size for leaf in self._leaves])
        pieces = np.split(flat, ends[:-1])
        return [
            Tensor(piece.reshape(leaf.shape).astype(leaf.dtype), device=leaf.device)
            for piece, leaf in zip(pieces, self._leaves, strict=True)
        ]

    def _vector(self, tree: Any) -> Array:
        leaves = self._spec.flatten_up_to(tree)
        return np.concatenate([leaf.asnumpy().ravel().astype(np.float64) for leaf in leaves])


def _itself(fn: Any) -> Any:
    return fn


def _weights(template: Any) -> Sequence[Parameter] | None:
    """The Parameters that are the unknowns; None for a tree of values."""
    listed = isinstance(template, (list, tuple)) and template
    several = listed and all(isinstance(p, Parameter) for p in template)
    if isinstance(template, (Cell, Parameter)) or several:
        return Weights.of(template).parameters
    return None
