"""Containers: Sequential, CellList, ParameterList, CellDict; and the copy that recomputes.

`functional_call` makes a network a function of its parameters, by path, for `ml.vmap`, `grad` or
`jvp` of them; `stack_weights` those of several networks of one kind, which are then an ensemble
that is computed at once. Then layers whose weights are normalized before each call.
"""

from __future__ import annotations

import copy
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from itertools import count
from operator import index as as_index
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, overload

from .. import ops
from ..core.abstract import is_float, typed
from ..core.errors import (
    ArityError,
    AttributeRefusedError,
    GraphError,
    MinimlError,
    OutOfRangeError,
    ShapeError,
)
from ..core.options import count as counted
from ..core.options import number
from ..core.parameter import Parameter
from ..core.primitive import Primitive
from ..core.tensor import Tensor
from ..core.trace import current_trace, use_trace
from ..grad.transforms import recomputed
from ..graph.tracing import SubstitutingTrace, as_tensor
from .cell import Cell
from .images import Transposed
from .linear import Dense

__all__ = [
    "CellDict", "CellList", "ParameterList", "Sequential", "SpectralNorm", "WeightNorm",
    "functional_call", "stack_weights",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
Item = TypeVar("Item")
Slice = TypeVar("Slice")


class _Ordered(Generic[Item, Slice]):
    """Parts of a cell by position, cells or parameters: attributes named "0", "1", ...

    A slice is a container of the library's class, as a subclass may take other arguments.
    """

    _kind: ClassVar[Any] = Cell

    def append(self, part: Item) -> Self:
        """Add one at the end; returns the container."""
        free = next(n for n in map(str, count(len(self))) if n not in vars(self))
        setattr(self, free, self._part(part))
        return self

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[Item]:
        return (v for v in self.__dict__.values() if isinstance(v, self._kind))

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Slice: ...
    def __getitem__(self, index: int | slice) -> Item | Slice:
        if isinstance(index, slice):
            return self._of(list(self)[index])
        found: Item = getattr(self, self._name(index))
        return found

    def __setitem__(self, index: int, part: Item) -> None:
        setattr(self, self._name(index), self._part(part))

    def __delitem__(self, index: int | slice) -> None:
        """Remove some; the rest are numbered "0", "1", ... again, and other names stay."""
        names, numbers = self._names(), map(str, count())
        gone = names[index] if isinstance(index, slice) else [self._name(index)]
        kept = [(name, vars(self)[name]) for name in names if name not in gone]
        for name in names:
            delattr(self, name)
        for name, part in kept:
            setattr(self, next(numbers) if name.isdigit() else name, part)

    def _names(self) -> list[str]:
        return [name for name, value in vars(self).items() if isinstance(value, self._kind)]

    def _name(self, index: int) -> str:
        """The name of the part at an index; OutOfRangeError where there is none."""
        names, owner, kind = self._names(), type(self).__name__, self._kind.__name__.lower()
        try:
            return names[as_index(index)]
        except IndexError:
            text = f"{owner} of {len(names)} {kind}s has none at {index}"
            raise OutOfRangeError(text) from None
        except TypeError:
            raise ArityError(f"{owner} got the index {index!r}; expected an int") from None

    def _part(self, given: Any) -> Any:
        """The part that is kept of what is given."""
        return _held(self, given)

    def _of(self, parts: list[Item]) -> Slice:
        """A container of other parts."""
        raise NotImplementedError


class Sequential(_Ordered[Cell, "Sequential"], Cell):
    """Cells in sequence, each applied to the output of the one before, of the shape that it gives.

    The cells are the arguments; `net[i]`, `net[i] = cell`, `del net[i]`, `len(net)`, iteration and
    `append` work as on a list; `net[1:]` is a Sequential of the same cells.
    """

    def __init__(self, *cells: Cell):
        for cell in cells:
            self.append(cell)

    def construct(self, x: Any) -> Any:
        for cell in self:
            x = cell(x)
        return x

    def _of(self, cells: list[Cell]) -> Sequential:
        return Sequential(*cells)


class CellList(_Ordered[Cell, "CellList"], Cell):
    """A list of cells whose parameters are found: "layers.0.weight". It is not called itself.

    AttributeRefusedError for what is no list of cells."""

    def __init__(self, cells: Iterable[Cell] = ()):
        for cell in listed("CellList", cells, "cells, as in [cell]"):
            self.append(cell)

    def construct(self, *args: Any, **named: Any) -> NoReturn:
        """Refuse the call: its cells are called one by one."""
        _refuse_call(self, 0)

    def _of(self, cells: list[Cell]) -> CellList:
        return CellList(cells)


def listed(who: str, given: Any, what: str) -> list[Any]:
    """The given values; AttributeRefusedError for what is no list or other iterable of `what`."""
    if not isinstance(given, Iterable):
        raise AttributeRefusedError(f"{who} got {type(given).__name__}; expected a list of {what}")
    return list(given)


class ParameterList(_Ordered[Parameter, "ParameterList"], Cell):
    """A list of parameters that are found: "scales.0". It is not called itself.

    The parameters are Parameters or arrays of floats; `list[i]`, `len`, iteration and `append` work
    as on a list. A call is a MinimlError.
    """

    _kind = Parameter

    def __init__(self, parameters: Iterable[Any] = ()):
        for parameter in listed("ParameterList", parameters, "Parameters or arrays of floats"):
            self.append(parameter)

    def construct(self, *args: Any, **named: Any) -> NoReturn:
        """Refuse the call: its parameters are used one by one."""
        raise MinimlError("ParameterList is not called itself; use its parameters, as weights[0]")

    def append(self, part: Any) -> Self:
        """Add a parameter at the end; returns the list."""
        return super().append(part)

    def _part(self, given: Any) -> Parameter:
        return given if isinstance(given, Parameter) else Parameter(given)

    def _of(self, parts: list[Parameter]) -> ParameterList:
        return ParameterList(parts)


class CellDict(Cell):
    """A dict of cells by name whose parameters are found: "heads.left.weight". It is not called
    itself.

    The names are those of attributes, so none has a dot or is that of a method or attribute of a
    cell: AttributeRefusedError.
    """

    def __init__(self, cells: Mapping[str, Cell] | None = None):
        if cells is not None and not isinstance(cells, Mapping):
            raise AttributeRefusedError(
                f"CellDict got {type(cells).__name__}; expected a dict of cells, as in "
                "{'left': cell}"
            )
        for name, cell in (cells or {}).items():
            self[name] = cell

    def __setitem__(self, name: str, cell: Cell) -> None:
        self._check_name(name)
        setattr(self, name, _held(self, cell))

    def _check_name(self, name: object) -> None:
        word = isinstance(name, str) and name and "." not in name
        if word and (name in self or not hasattr(self, str(name))):
            return
        why = ", which every cell has" if word else ""
        raise AttributeRefusedError(
            f"CellDict got the name {name!r}{why}; a name is a word without dots, such as 'left', "
            "and no method of a cell"
        )

    def construct(self, *args: Any, **named: Any) -> NoReturn:
        """Refuse the call: its cells are called one by one."""
        _refuse_call(self, next(iter(self), "left"))

    def __getitem__(self, name: str) -> Cell:
        if name not in self._cells:
            raise KeyError(f"CellDict has no {name!r}; it has {', '.join(self) or 'no cells'}")
        return self._cells[name]

    def __delitem__(self, name: str) -> None:
        self[name]  # KeyError for a name that is not there
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self._cells

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def keys(self) -> KeysView[str]:
        """The names, in the order in which they were added."""
        return self._cells.keys()

    def values(self) -> ValuesView[Cell]:
        """The cells."""
        return self._cells.values()

    def items(self) -> ItemsView[str, Cell]:
        """Pairs of a name and its cell."""
        return self._cells.items()

    @property
    def _cells(self) -> dict[str, Cell]:
        return {name: v for name, v in vars(self).items() if isinstance(v, Cell)}


def _held(container: object, cell: object) -> Cell:
    """The cell; AttributeRefusedError for anything else, and for one that holds the container."""
    if not isinstance(cell, Cell):
        raise AttributeRefusedError(
            f"{type(container).__name__} holds cells; got {cell!r} of type {type(cell).__name__}"
            + _instead(cell)
        )
    if id(container) in map(id, cell.cells()):
        raise AttributeRefusedError(
            f"{type(container).__name__} cannot hold itself, nor a cell that holds it"
        )
    return cell


def _instead(given: object) -> str:
    """A hint at what to give instead of something that is not a cell."""
    if isinstance(given, type):
        return f"; make one: {given.__name__}(...)"
    if isinstance(given, (list, tuple)):
        return "; give its cells one by one, as *cells"
    if isinstance(given, Mapping):
        return "; give its cells, *cells.values(), or one attribute for each in a Cell of your own"
    kind = ", an operation" if isinstance(given, Primitive) else ""
    return f"{kind}; use a layer, such as nn.ReLU(), or a Cell of your own"


def _refuse_call(cell: Cell, key: object) -> NoReturn:
    kind = type(cell).__name__
    raise MinimlError(f"{kind} is not called itself; call one of its cells, as cells[{key!r}](x)")


def recompute(fn: F) -> F:
    """`fn` with activation checkpointing: the same values with less memory, as a gradient keeps
    only its inputs and runs it a second time when it needs its intermediate values.

    Of a Cell it gives another one with the same parameters and the same children, to use in a
    network: `nn.Sequential(ml.recompute(block), ...)`; names in checkpoints stay. A function may
    read parameters and, as a closure, other tensors; gradients reach these too. The second run
    reads parameters as they were in the first, draws the same random numbers and assigns nothing,
    so gradients have the same bits, up to the order in which those of a tensor that is used several
    times are added. What the function assigns is a constant to them. It must do the same both
    times.

    >>> from miniml import ops
    >>> from miniml.grad import grad
    >>> grad(recompute(lambda x: ops.sin(ops.sin(x))))(0.0)
    Tensor(1., shape=(), dtype=float32)
    """
    if not isinstance(fn, Cell):
        return recomputed(fn)
    made: Any = copy.copy(fn)
    made.__dict__["_recomputed"] = True
    return made  # type: ignore[no-any-return]


# --- Calls with other weights ---------------------------------------------------------------------


def functional_call(net: Cell, params: Mapping[str, Any], /, *args: Any, **named: Any) -> Any:
    """net(*args, **named) with these values in place of its parameters, which stay as they are.

    params: tensors or arrays by path, as in `net.parameters_dict()` or `stack_weights`; parameters
    that it leaves out have their own values. Gradients, tangents and batches pass through the
    values. AttributeRefusedError for a path that the network lacks, ShapeError for a value that
    does not fit, GraphError where the network assigns a parameter whose value was given, as batch
    normalization does in training: nothing could keep it.

    >>> import numpy as np
    >>> from miniml import nn
    >>> from miniml.grad import grad
    >>> net, x = nn.Dense(2, 1, bias=False), np.array([[1.0, 2.0]], np.float32)
    >>> given = {"weight": np.array([[3.0], [4.0]], np.float32)}
    >>> functional_call(net, given, x).tolist()
    [[11.0]]
    >>> grad(lambda p: ops.sum(functional_call(net, p, x)))(given)["weight"].tolist()
    [[1.0], [2.0]]
    """
    who = "functional_call"
    own = _cell(who, net)._by_path()
    if not isinstance(params, Mapping):
        raise AttributeRefusedError(
            f"{who} got {type(params).__name__} for params; give a dict of tensors by path, as "
            "net.parameters_dict() or nn.stack_weights(nets)"
        )
    unknown = [repr(name) for name in params if name not in own]
    if unknown:
        raise AttributeRefusedError(
            f"{who} got params {', '.join(unknown)}, which {type(net).__name__} lacks; its "
            f"parameters are {', '.join(own) or 'none'}"
        )
    values = {id(own[n]): _fitting(own[n], n, value) for n, value in params.items()}
    with use_trace(SubstitutingTrace(values, _assigned)):
        return net(*args, **named)


def _cell(who: str, net: Any) -> Cell:
    if isinstance(net, Cell):
        return net
    raise AttributeRefusedError(f"{who} got {net!r} of type {type(net).__name__}; give a Cell")


def _fitting(parameter: Parameter, name: str, value: Any) -> Tensor:
    """The value as a tensor of the enclosing trace; ShapeError where it does not fit."""
    known = current_trace().stand_in(value) if isinstance(value, Parameter) else as_tensor(value)
    fits = is_float(known.dtype) or known.dtype == parameter.dtype
    if known.shape == parameter.shape and fits:
        return known
    more = ""
    if known.shape[1:] == parameter.shape:
        more = "; values of several networks go in by ml.vmap, which takes their axis away"
    raise ShapeError(
        f"functional_call got {typed(known)} for {name}, which is {typed(parameter)}{more}"
    )


def _assigned(parameter: Parameter) -> GraphError:
    return GraphError(
        f"functional_call got a value for Parameter {parameter.name!r}, which the network assigns; "
        "leave it out of params, or call net.set_train(False) where these are running statistics"
    )


def stack_weights(nets: Sequence[Cell]) -> dict[str, Tensor]:
    """The parameters of networks of one kind by path, each stacked along a new first axis.

    With `functional_call` under `ml.vmap` they are an ensemble, whose networks are computed at
    once. ShapeError for networks whose parameters differ in path, shape or dtype;
    AttributeRefusedError for what is no list of Cells.

    >>> import miniml as ml
    >>> import numpy as np
    >>> from miniml import nn
    >>> nets = [nn.Dense(4, 2) for _ in range(3)]
    >>> member = lambda weights, x: functional_call(nets[0], weights, x)
    >>> ml.vmap(member, in_axes=(0, None))(stack_weights(nets), np.ones((5, 4), np.float32)).shape
    (3, 5, 2)
    """
    who = "stack_weights"
    given: Any = nets
    if isinstance(given, Cell) or not isinstance(given, Sequence) or not given:
        got = "no networks" if isinstance(given, (list, tuple)) else type(given).__name__
        raise AttributeRefusedError(f"{who} got {got}; give a list of Cells of one kind")
    every = [_cell(who, net).parameters_dict() for net in nets]
    first = {name: typed(p) for name, p in every[0].items()}
    for i, own in enumerate(every):
        found = {name: typed(p) for name, p in own.items()}
        differ = [n for n in {**first, **found} if first.get(n) != found.get(n)]
        if differ:
            n = differ[0]
            raise ShapeError(
                f"{who} got networks of two kinds: {n} is {first.get(n, 'missing')} in the first "
                f"and {found.get(n, 'missing')} in number {i}; an ensemble is of networks with "
                "the same parameters"
            )
    return {name: ops.stack([own[name] for own in every]) for name in first}


# --- Layers with normalized weights ---------------------------------------------------------------


class WeightNorm(Cell):
    """A layer whose weight is scale * weight / |weight|, the norm that of each output, so that
    length and direction learn apart.

    layer: a cell with a parameter `weight`, which gives the direction; the norms are over all axes
    but that of outputs, the second of a Dense or ConvTranspose and the first of others. scale
    starts with the norms, so nothing changes at first. Source: Salimans, Kingma 2016, "Weight
    normalization", as PyTorch's weight_norm, whose weight_g is the scale and weight_v the weight.
    """

    def __init__(self, layer: Cell):
        self.layer, self._axis = _with_weight("WeightNorm", layer)
        self.scale = Parameter(self._norms().asnumpy())

    def _norms(self) -> Tensor:
        weight: Any = self.layer.weight
        rest = tuple(i for i in range(weight.ndim) if i != self._axis)
        return ops.sqrt(ops.sum(ops.mul(weight, weight), rest, keepdims=True))

    def construct(self, *inputs: Any) -> Any:
        weight = ops.mul(self.layer.weight, ops.div(self.scale, self._norms()))
        return functional_call(self.layer, {"weight": weight}, *inputs)


class SpectralNorm(Cell):
    """A layer whose weight is divided by its largest singular value, that of the matrix (outputs,
    all else), as for critics of a GAN.

    The value is u^T W v, with vectors u and v, Parameters without gradient, that each call in
    training improves by `iterations` steps of the power method; the gradient takes them as
    constants. layer: as in `WeightNorm`. Source: Miyato et al. 2018, "Spectral normalization for
    generative adversarial networks".
    """

    u: Parameter
    v: Parameter

    def __init__(self, layer: Cell, iterations: int = 1, eps: float = 1e-12):
        self.layer, self._axis = _with_weight("SpectralNorm", layer)
        self.iterations = counted("SpectralNorm", "iterations", iterations)
        self.eps = number("SpectralNorm", "eps", eps, 0)
        matrix = self._matrix()
        for name, size in zip(("u", "v"), matrix.shape, strict=True):
            start = ops.normal((size,)).astype(matrix.dtype)
            setattr(self, name, Parameter(self._unit(start).asnumpy(), requires_grad=False))
        u, v = self._improved(matrix, self.u, self.v, 15)
        self.u.set_data(u.asnumpy())
        self.v.set_data(v.asnumpy())

    def _matrix(self) -> Tensor:
        weight: Any = self.layer.weight
        first = ops.moveaxis(weight, self._axis, 0)
        return ops.reshape(first, (first.shape[0], -1))

    def _unit(self, x: Any) -> Any:
        return ops.div(x, ops.maximum(ops.sqrt(ops.sum(ops.mul(x, x))), self.eps))

    def _improved(self, matrix: Any, u: Any, v: Any, iterations: int) -> tuple[Any, Any]:
        for _ in range(iterations):
            v = self._unit(ops.matmul(u, matrix))
            u = self._unit(ops.matmul(matrix, v))
        return u, v

    def construct(self, *inputs: Any) -> Any:
        matrix = self._matrix()
        u: Any = self.u
        v: Any = self.v
        if self.training:
            u, v = self._improved(ops.stop_gradient(matrix), u, v, self.iterations)
            ops.assign(self.u, u)
            ops.assign(self.v, v)
        u, v = ops.stop_gradient(u), ops.stop_gradient(v)
        weight = ops.div(self.layer.weight, ops.sum(ops.mul(u, ops.matmul(matrix, v))))
        return functional_call(self.layer, {"weight": weight}, *inputs)


def _with_weight(who: str, layer: Any) -> tuple[Any, int]:
    """The layer, and the axis of the outputs in its weight; refused where it has none."""
    weight = vars(layer).get("weight") if isinstance(layer, Cell) else None
    if not isinstance(weight, Parameter) or weight.ndim < 2:
        raise AttributeRefusedError(
            f"{who} got {layer!r}; expected a layer with a weight of two axes or more, such as "
            "nn.Dense(4, 2)"
        )
    return layer, 1 if isinstance(layer, (Dense, Transposed)) else 0
