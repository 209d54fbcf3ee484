"""Derivatives of more than one number: jacobian, hessian, and hvp, the Hessian times a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree

from .. import ops
from ..dtype import is_float
from ..errors import GradientArgumentError
from ..ops.inference.devices import on_device_of
from ..tensor import Tensor
from ..tracebacks import hides_frames
from .cotangents import flattened, tensor_like
from .linearize import Linearized, checked_function, linearize, name_of
from .transforms import Function, called, grad


def jacobian(fn: Function, argnums: int = 0) -> Function:
    """The function that returns d fn / d argument, of shape out.shape + argument.shape.

    One pull-back per element of the output. Where the output or the argument is a tree, the result
    has the output's structure, with the argument's structure in each place.

    >>> jacobian(lambda x: x * x)(np.array([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """

    def derive(*args: Any, **named: Any) -> Any:
        found = linearize(fn, args, (argnums,), named=named)
        outs = found.out_spec.flatten_up_to(found.out)
        if not all(isinstance(o, Tensor) and is_float(o.dtype) for o in outs):
            raise GradientArgumentError("jacobian needs a function that returns float tensors")
        return found.out_spec.unflatten([_jacobian_of(found, i, o) for i, o in enumerate(outs)])

    derive.__name__ = f"jacobian({name_of(checked_function('jacobian', fn))})"
    return called(derive, fn)


def _jacobian_of(found: Linearized, place: int, out: Tensor) -> Any:
    """The derivative of one leaf of the output, in the structure of the argument."""
    variables, spec = found.wrt[0]
    douts: list[Any] = [None] * len(found.targets)
    rows = []
    for row in np.eye(out.size, dtype=out.dtype).reshape(out.size, *out.shape):
        with on_device_of(out):
            douts[place] = Tensor(row)
        rows.append(spec.flatten_up_to(found.pull(douts)[0][0]))
    blocks = []
    for i, var in enumerate(variables):
        shape = (*out.shape, *var.abstract.shape)
        if rows:
            blocks.append(ops.reshape(ops.stack([row[i] for row in rows]), shape))
        else:
            blocks.append(ops.zeros(shape, var.abstract.dtype))
    return spec.unflatten(blocks)


def hessian(fn: Function, argnums: int = 0) -> Function:
    """The function that returns the second derivatives of a scalar fn: x.shape + x.shape.

    >>> hessian(lambda x: ops.sum(x * x * x))(np.array([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacobian(grad(checked_function("hessian", fn), argnums), argnums)


@hides_frames
def hvp(fn: Function, xs: Any, vs: Any) -> Any:
    """The Hessian of a scalar fn at xs times vs, without forming the Hessian.

    xs, vs: one array or tree each, or tuples of as many as fn has arguments; the result likewise.

    >>> hvp(lambda x: ops.sum(x * x * x), np.array([1.0, 2.0]), np.array([1.0, 0.0])).tolist()
    [6.0, 0.0]
    """
    checked_function("hvp", fn)
    single = not isinstance(xs, tuple)
    points, directions = ((xs,), (vs,)) if single else (xs, tuple(vs))

    def slope(*args: Any) -> Any:
        gradients = grad(fn, tuple(range(len(args))))(*args)
        leaves, spec = optree.tree_flatten(gradients)
        along = flattened(spec, directions, "hvp got vs")
        terms = [ops.sum(g * tensor_like(g, v)) for g, v in zip(leaves, along, strict=True)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    products = grad(slope, tuple(range(len(points))))(*points)
    return products[0] if single else products
