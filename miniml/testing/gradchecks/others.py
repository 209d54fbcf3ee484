"""Functions of other frameworks' arrays as functions of tensors, so that gradcheck takes them.

Told by the arguments: a torch tensor or a JAX array among them says whose function it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import optree

from ...core.errors import DTypeError, MinimlError
from ...core.tensor import Tensor
from ...nn.cell import Cell

Function = Callable[..., Any]


def framework_of(args: Sequence[Any]) -> str:
    """ "torch" or "jax" where an array of it is among the arguments, else "". MinimlError for
    both."""
    leaves = optree.tree_leaves(cast(Any, tuple(args)), none_is_leaf=True)
    found = set()
    for name, kind in (("torch", "Tensor"), ("jax", "Array")):
        loaded = sys.modules.get(name)  # an array of it exists only if it is imported
        if loaded is not None and any(isinstance(x, getattr(loaded, kind)) for x in leaves):
            found.add(name)
    if len(found) > 1:
        raise MinimlError(
            "gradcheck got torch tensors and JAX arrays; a function takes those of one of them"
        )
    return "".join(found)


def adapted(fn: Function, args: Sequence[Any], framework: str) -> tuple[Function, tuple[Any, ...]]:
    """The function, which computes with that framework, as one of tensors, and its arguments.

    A torch.nn.Module becomes a Cell, whose parameters are checked too; of a class of
    torch.autograd.Function, `apply` is checked. What the framework raises is a DTypeError, since in
    float64 it may be so for the dtype alone: the check then goes on in those that were given.
    """
    if framework == "torch":
        from ...interop.pytorch import array_in, torch  # noqa: PLC0415 - optional
        from ...interop.torch_functions import from_torch  # noqa: PLC0415

        if isinstance(fn, type) and issubclass(fn, torch.autograd.Function):
            fn = fn.apply  # type: ignore[attr-defined]
        taken, convert, kind = from_torch(fn), array_in, torch.Tensor
        given = optree.tree_map(
            lambda x: Tensor(convert(x)) if isinstance(x, kind) else x,
            cast(Any, tuple(args)), none_is_leaf=True,
        )  # fmt: skip
    else:
        from ...interop.jax import from_jax, jax  # noqa: PLC0415 - optional

        taken = from_jax(fn)
        given = optree.tree_map(
            lambda x: Tensor(np.asarray(x)) if isinstance(x, jax.Array) else x,
            cast(Any, tuple(args)), none_is_leaf=True,
        )  # fmt: skip
    if not isinstance(taken, Cell):
        taken = refusing(taken, taken.__name__)
    return taken, tuple(cast(Any, given))


@contextmanager
def wide(framework: str) -> Iterator[None]:
    """In the block JAX computes in float64 where it is asked to."""
    if framework == "jax":
        from ...interop.jax import jax  # noqa: PLC0415 - optional

        with jax.enable_x64(True):
            yield
    else:
        yield


def refusing(fn: Function, name: str) -> Function:
    """The function, whose framework's errors are DTypeErrors."""

    def call(*args: Any) -> Any:
        try:
            return fn(*args)
        except MinimlError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            dtypes = sorted({x.dtype.name for x in args if isinstance(x, Tensor)})
            raise DTypeError(
                f"{name} raised {type(error).__name__} for {', '.join(dtypes)}: {error}"
            ) from error

    call.__name__ = name
    return call
