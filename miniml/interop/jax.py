"""JAX: primitives, functions and networks as functions of its arrays, and its functions here.

In order: `to_jax`; one operator as a function with a `custom_vjp`; `from_jax`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import optree

from .. import ops
from ..core.abstract import Abstract, canonical, is_float
from ..core.errors import DTypeError, GraphError, MinimlError
from ..core.infer import constant, infer, interleave
from ..core.primitive import Primitive, key
from ..core.settings import current
from ..core.tensor import Array, Tensor, around
from ..grad.batching import vmap
from ..grad.reverse import name_of
from ..nn.cell import Cell
from .foreign import Adopted, Foreign, gradient_types, package
from .operator import Operator, Traced, known, of_floats, of_primitive, owned, refuse_parameters

jax = package("jax", "miniml.interop with JAX")
jnp = jax.numpy
_tree = jax.tree_util


def to_jax(obj: Any) -> Any:
    """A primitive, a function of tensors or a network, as a function of JAX's arrays.

    A Primitive takes its inputs, const ones where it has them; its class also its attributes, by
    keyword. A function takes and gives trees of arrays, and is traced for each structure and types
    of its arguments. A Cell becomes a function of its parameters and its inputs, and `params` of
    the result are the parameters that it has now, by path.

    Each call is a `custom_vjp` around `pure_callback`, and its bprop is again one: gradients of any
    order in reverse mode, `jit`, and `vmap` by the batch facts and rules of the primitives. There
    is no forward mode, as JAX has it for one kind of rule only. DTypeError: a float of 64 bits
    where JAX has them switched off; integers become as narrow as its own. GraphError: a function
    that reads parameters, and a Cell that updates parameters or draws random numbers, as in
    training mode. MinimlError: jax is not installed.

    >>> import jax
    >>> from miniml import ops
    >>> float(jax.grad(jax.grad(to_jax(ops.Exp())))(0.0))
    1.0
    """
    kind = known("to_jax", obj)
    if kind == "primitive":
        return JaxPrimitive(obj)
    return JaxFunction(obj) if kind == "function" else JaxCell(obj)


# --- One operator ---------------------------------------------------------------------------------


class Callback:
    """An operator as a function of JAX's arrays, with its pull-back as its gradient."""

    def __init__(self, operator: Operator):
        self.operator = operator
        call = jax.custom_vjp(self._call)
        call.defvjp(self._forward, self._backward)
        self.function: Callable[..., tuple[Any, ...]] = call

    def __call__(self, *xs: Any) -> tuple[Any, ...]:
        return self.function(*xs)

    @cached_property
    def pulled(self) -> Callback:
        """The pull-back."""
        return Callback(self.operator.pulled)

    def _call(self, *given: Any) -> tuple[Any, ...]:
        xs = list(map(jnp.asarray, given))  # what jax.grad passes on may be a Python number
        types = self.operator.types(tuple(map(type_of, xs)))
        _check_width(self.operator.name, types)
        ranks = tuple([x.ndim for x in xs])
        results = tuple([jax.ShapeDtypeStruct(t.shape, _dtype(t)) for t in types])

        def run(*arrays: Any) -> tuple[Array, ...]:
            return computed(self.operator, ranks, arrays, results)

        found = jax.pure_callback(run, results, *xs, vmap_method="expand_dims")
        return tuple(found)

    def _forward(self, *given: Any) -> Any:
        xs = tuple(map(jnp.asarray, given))
        outs = self.function(*xs)
        return outs, (xs, outs)

    def _backward(self, kept: Any, douts: Any) -> tuple[Any, ...]:
        xs, outs = kept
        if not self.operator.differentiable:
            return tuple(map(_nothing, xs))
        given = [
            jnp.zeros(o.shape, o.dtype) if d.dtype == jax.dtypes.float0 else d
            for o, d in zip(outs, douts, strict=True)
        ]
        found = self.pulled(*xs, *outs, *given)
        return tuple([g if _floats(x) else _nothing(x) for g, x in zip(found, xs, strict=True)])


def _floats(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def _nothing(x: Any) -> Any:
    """The gradient by an array through which none passes."""
    return jnp.zeros(x.shape, x.dtype) if _floats(x) else np.zeros(x.shape, jax.dtypes.float0)


def computed(
    operator: Operator, ranks: Sequence[int], arrays: Sequence[Any], results: Sequence[Any]
) -> tuple[Array, ...]:
    """The outputs of an operator for arrays that vmap may have given more axes in front; where an
    array is the same for all examples of an axis, that has extent 1."""
    tensors = [around(_viewed(a)) for a in arrays]
    extra = arrays[0].ndim - ranks[0] if arrays else 0
    fn = operator.fn if extra else operator.run
    leading = [t.shape[:extra] for t in tensors]
    sizes = [max(s[i] for s in leading) if all(s[i] for s in leading) else 0 for i in range(extra)]
    for axis in reversed(range(extra)):
        mapped = [s[axis] == sizes[axis] for s in leading]
        fn = vmap(fn, tuple([0 if flag else None for flag in mapped]))
    squeezed = [_without(t, s, sizes) for t, s in zip(tensors, leading, strict=True)]
    del tensors
    outs = owned(list(fn(*squeezed)))
    every = tuple(sizes)
    pairs = zip(outs, results, strict=True)
    return tuple([o.reshape((*every, *r.shape)).astype(r.dtype, copy=False) for o, r in pairs])


def _viewed(array: Any) -> Array:
    found = np.asarray(array)
    return found.view() if found is array else found


def _without(tensor: Tensor, leading: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The tensor without the axes in front that its examples share."""
    kept = [n for n, size in zip(leading, sizes, strict=True) if n == size]
    if len(kept) == len(leading):
        return tensor
    return ops.reshape(tensor, (*kept, *tensor.shape[len(leading) :]))


def type_of(x: Any) -> Abstract:
    """The type of an array of JAX, or of what it traces."""
    return Abstract(tuple(x.shape), canonical(np.dtype(x.dtype)))


def _dtype(t: Abstract) -> Any:
    """The dtype of a result in JAX, whose integers, such as indices, may have 32 bits."""
    return t.dtype if is_float(t.dtype) else jax.dtypes.canonicalize_dtype(t.dtype)


def _check_width(name: str, types: Sequence[Abstract]) -> None:
    """DTypeError for a result that JAX would give fewer bits."""
    for t in types:
        if is_float(t.dtype) and jax.dtypes.canonicalize_dtype(t.dtype) != t.dtype:
            raise DTypeError(
                f"{name} gives {t.dtype.name}, which JAX does not have now; call "
                "jax.config.update('jax_enable_x64', True), or cast the result"
            )


# --- Primitives, functions and networks -----------------------------------------------------------


class JaxPrimitive:
    """A primitive, or its class, as a function of JAX's arrays."""

    def __init__(self, obj: Primitive | type[Primitive]):
        self.primitive = obj if isinstance(obj, Primitive) else None
        self.kind: type[Primitive] = type(obj) if isinstance(obj, Primitive) else obj
        self.__name__ = self.kind.name
        self._made: dict[Any, Callback] = {}

    def __call__(self, *args: Any, **attributes: Any) -> Any:
        primitive = self.primitive or self.kind(**attributes)
        consts = {n: constant(primitive, n, args[i]) for i, n in primitive._const}
        taken = {i for i, _ in primitive._const}
        xs = [jnp.asarray(a) for i, a in enumerate(args) if i not in taken]
        call = primitive, key(tuple(consts.items())), len(xs), current().autocast
        callback = self._made.get(call)
        if callback is None:
            types = [type_of(x) for x in xs]
            outs = len(infer(primitive, interleave(primitive, types, consts)))
            operator = of_primitive(primitive, consts, len(xs), outs)
            callback = self._made[call] = Callback(operator)
        return primitive.unwrap(callback(*xs))

    def __reduce__(self) -> tuple[Any, ...]:
        return to_jax, (self.primitive or self.kind,)

    def __repr__(self) -> str:
        return f"to_jax({self.primitive or self.kind.__name__})"


class JaxFunction:
    """A function of trees of tensors, as a function of trees of JAX's arrays."""

    def __init__(self, fn: Callable[..., Any]):
        self.fn, self.__name__ = fn, name_of(fn)
        self._made: dict[Any, tuple[Traced, Callback]] = {}

    def __call__(self, *args: Any, **named: Any) -> Any:
        leaves, traced, callback = self.traced(args, named)
        refuse_parameters("to_jax", self.fn, traced)
        return traced.rebuild(callback(*[leaves[i] for i in traced.positions]))

    def traced(self, args: Any, named: Any, mode: Any = None) -> tuple[Any, Traced, Callback]:
        """The leaves, and the function for arguments of this structure and types."""
        leaves, spec = _tree.tree_flatten((args, named))
        leaves = [jnp.asarray(x) if isinstance(x, _NUMBERS) else x for x in leaves]
        types = [type_of(x) if isinstance(x, jax.Array) else x for x in leaves]
        call = spec, Traced.key(self.__name__, types), mode
        found = self._made.get(call)
        if found is None:
            traced = Traced(self.__name__, self.fn, spec, types)
            found = self._made[call] = traced, Callback(traced.operator)
        return leaves, *found

    def __reduce__(self) -> tuple[Any, ...]:
        return to_jax, (self.fn,)

    def __repr__(self) -> str:
        return f"to_jax({self.__name__})"


_NUMBERS = int, float, np.ndarray, np.generic


class JaxCell:
    """A network as a function (params, *inputs) of JAX's arrays; params: its parameters now."""

    def __init__(self, cell: Cell):
        self.cell, self.__name__ = cell, type(cell).__name__
        self._function = JaxFunction(cell)

    @property
    def params(self) -> dict[str, Any]:
        """The present values of the parameters, by path: a copy."""
        return {name: jnp.asarray(value) for name, value in self.cell.state_dict().items()}

    def __call__(self, params: Any, *args: Any, **named: Any) -> Any:
        mode = tuple([cell.signature for cell in self.cell.cells()])
        leaves, traced, callback = self._function.traced(args, named, mode)
        if traced.updated:
            names = ", ".join(repr(p.name) for p in traced.updated)
            raise GraphError(
                f"to_jax of {self.__name__} updates {names}, and a function of JAX has no effects; "
                "call net.set_train(False)"
            )
        paths = {id(p): path for path, p in self.cell.parameters_dict().items()}
        missing = [p.name for p in traced.state if paths.get(id(p)) not in params]
        if missing:
            raise MinimlError(
                f"to_jax of {self.__name__} got no value for {', '.join(missing)}; pass all of "
                "`.params`"
            )
        state = [jnp.asarray(params[paths[id(p)]]) for p in traced.state]
        return traced.rebuild(callback(*state, *[leaves[i] for i in traced.positions]))

    def __reduce__(self) -> tuple[Any, ...]:
        return to_jax, (self.cell,)

    def __repr__(self) -> str:
        return f"to_jax({self.__name__})"


# --- Functions of JAX here ------------------------------------------------------------------------


def from_jax(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of JAX's arrays as one of miniml's tensors.

    Values, and gradients of any order, pass through JAX, which compiles fn; in a graph it is one
    node without effects, so that it stands in `train_step` and `jit` too. fn takes and gives trees
    of arrays, floats and ints being arrays too. DTypeError: an argument in 64 bits where JAX has
    them switched off. MinimlError: jax is not installed.

    >>> import jax.numpy as jnp
    >>> from miniml.grad import grad
    >>> grad(lambda x: from_jax(jnp.sin)(x).sum())(np.zeros(2, np.float32))
    Tensor([1., 1.], shape=(2,), dtype=float32)
    """
    if not callable(fn):
        raise MinimlError(f"from_jax got {fn!r}; it takes a function of JAX's arrays")
    return Imported(from_jax, fn)


class Imported(Adopted):
    """A function of trees of JAX's arrays, as one of trees of tensors."""

    def ours(self, leaf: Any) -> Any:
        """A number or an array as a tensor; numbers in the dtypes that JAX gives them."""
        if not isinstance(leaf, (*_NUMBERS, jax.Array)) or isinstance(leaf, (bool, Tensor)):
            return leaf
        numeric = isinstance(leaf, (int, float)) and not isinstance(leaf, np.generic)
        return Tensor(np.asarray(jnp.asarray(leaf) if numeric else leaf))

    def outputs(self, out: Any) -> tuple[list[Any], Any]:
        """The arrays that the function returned, numbers among them, and their structure."""
        leaves, spec = optree.tree_flatten(out, none_is_leaf=True)
        return list(map(jnp.asarray, leaves)), spec

    def foreign(self, flat: Callable[..., Any], types: Sequence[Abstract], device: str) -> Foreign:
        """The flat function, traced by JAX."""
        _check_arguments(self.__name__, types)
        shapes = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types]
        return _FromJax(self.__name__, flat, len(types), len(jax.eval_shape(flat, *shapes)))


def _check_arguments(name: str, types: Sequence[Abstract]) -> None:
    for t in types:
        if jax.dtypes.canonicalize_dtype(t.dtype) != t.dtype:
            raise DTypeError(
                f"{name} got {t.dtype.name}, which JAX would make narrower; call "
                "jax.config.update('jax_enable_x64', True), or cast the argument"
            )


class _FromJax(Foreign):
    """A flat function of JAX's arrays, compiled by JAX."""

    def __init__(self, name: str, fn: Callable[..., Any], count: int, outputs: int, pulls: int = 0):
        super().__init__(name, count, outputs)
        self.fn, self.pulls, self.compiled = fn, pulls, jax.jit(fn)

    def run(self, *arrays: Array) -> list[Array]:
        """The outputs, by JAX."""
        return list(map(np.asarray, self.compiled(*arrays)))

    def types(self, inputs: tuple[Abstract, ...]) -> tuple[Abstract, ...]:
        """The types of the outputs, by jax.eval_shape."""
        _check_arguments(self.name, inputs)
        if self.pulls:
            return gradient_types(inputs, self.outputs)
        shapes = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in inputs]
        return tuple(map(type_of, jax.eval_shape(self.fn, *shapes)))

    def pulled(self) -> Foreign:
        """The gradients, by jax.vjp."""
        count = self.count

        def pull(*values: Any) -> list[Any]:
            xs, douts = values[:count], values[count:]
            floats = [i for i, x in enumerate(xs) if _floats(x)]
            fn = of_floats(lambda *given: tuple(filter(_floats, self.fn(*given))), xs, floats)
            _, back = jax.vjp(fn, *[xs[i] for i in floats])
            found = iter(back(tuple(filter(_floats, douts))))
            return [next(found) if _floats(x) else jnp.zeros(0, jnp.float32) for x in xs]

        pulls = self.pulls + 1
        return _FromJax(f"{self.name}_bprop", pull, count + self.outputs, count, pulls)
