"""Weights of networks as dictionaries: given to a call, stacked for ensembles, PyTorch's loaded.

`functional_call` makes a network a function of its parameters, by path, for `ml.vmap`, `grad` or
`jvp` of them; `stack_weights` those of several networks of one kind, which are then an ensemble
that is computed at once; `load_torch_state` takes those of PyTorch's layers, and `torch_state`
gives them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from .. import ops
from ..core.abstract import is_float, typed
from ..core.errors import AttributeRefusedError, CheckpointError, GraphError, ShapeError
from ..core.files import PathLike, opened, readable, short
from ..core.options import count, number
from ..core.parameter import Parameter
from ..core.tensor import Array, Tensor
from ..core.trace import current_trace, use_trace
from ..graph.tracing import SubstitutingTrace, as_tensor
from .cell import Cell
from .images import Transposed
from .linear import Dense
from .state import COUNTER, load, paths

__all__ = [
    "SpectralNorm", "WeightNorm", "functional_call", "load_torch_state", "stack_weights",
    "torch_state",
]  # fmt: skip


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
        self.iterations = count("SpectralNorm", "iterations", iterations)
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
        size = ops.sum(ops.mul(u, ops.matmul(matrix, v)))
        weight = ops.div(self.layer.weight, size)
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


# --- Weights of PyTorch's layers ------------------------------------------------------------------


_CALLS = (
    "the calls are nn.load_torch_state(cell, {name: array}) and nn.load_torch_state(cell, path)"
)
_TRANSPOSED = ((Dense, "weight"),)  # (in, out) here, (out, in) in PyTorch


def load_torch_state(cell: Cell, state: Mapping[str, Any] | PathLike) -> None:
    """Give the parameters of `cell` the values that a PyTorch layer holds.

    state: the state_dict of the same layer, or of a Sequential of the same layers: a dict of arrays
    or of CPU tensors, or the path of a safetensors file. Its names are those of
    `cell.parameters_dict()`, and its shapes PyTorch's: the weight of a Dense, (in, out) here, is
    (out, in) in PyTorch; all others agree. Floats are cast to the parameter's dtype. A batch norm's
    num_batches_tracked is not needed. Shared weights may be given under one of their names, or
    equal under all.

    CheckpointError lists every entry that is missing, unexpected, of another shape or not of
    floats; nothing has changed then.
    """
    if not isinstance(cell, Cell):
        raise CheckpointError(f"load_torch_state got {type(cell).__name__} for a cell; {_CALLS}")
    load("load_torch_state", cell, _entries(state), _transposed_in(cell))


def torch_state(cell: Cell) -> dict[str, Array]:
    """The weights of `cell` as the state_dict of the same PyTorch layers: copies by name, so that
    `load_torch_state(cell, torch_state(cell))` changes nothing.

    The weight of a Dense is of shape (out, in) there; a batch norm also has num_batches_tracked, 0.
    Weights that layers share stand under each of their names. In PyTorch,
    `module.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})`;
    arrays of bfloat16, which NumPy does not know, go as `array.astype(np.float32)`. CheckpointError
    for what is no Cell.

    >>> from miniml import nn
    >>> {name: array.shape for name, array in torch_state(nn.Dense(2, 3)).items()}
    {'weight': (3, 2), 'bias': (3,)}
    """
    if not isinstance(cell, Cell):
        raise CheckpointError(f"torch_state got {type(cell).__name__}; give a Cell")
    transposed, state = _transposed_in(cell), dict[str, Array]()
    for name, parameter in paths(cell):
        array = parameter.asnumpy()
        state[name] = np.ascontiguousarray(array.T) if transposed(name) else array
        if name.endswith("running_var"):
            state[name.removesuffix("running_var") + COUNTER] = np.array(0)
    return state


def _transposed_in(cell: Cell) -> Callable[[str], bool]:
    """True for the name of a parameter of a cell that is the transpose of PyTorch's."""

    def transposed(name: str) -> bool:
        *path, attribute = name.split(".")
        owner = reduce(getattr, path, cell)
        return any(isinstance(owner, kind) and attribute == n for kind, n in _TRANSPOSED)

    return transposed


def _entries(state: Any) -> Mapping[Any, Any]:
    if isinstance(state, Mapping):
        return state
    if not isinstance(state, (str, os.PathLike)):
        raise CheckpointError(f"load_torch_state got {type(state).__name__} for a state; {_CALLS}")
    if str(state).endswith((".pt", ".pth", ".bin")):
        raise CheckpointError(
            f"load_torch_state got {short(state)}, a pickle, which may run code; let PyTorch read "
            "it: load_torch_state(cell, torch.load(path, weights_only=True))"
        )
    with opened(readable(state, _CALLS, "safetensors.torch.save_file(state_dict, path)")) as file:
        return file.read()
