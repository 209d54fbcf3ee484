"""Arrays of others: memory that a tensor of ours and one of another framework share.

In order: packages that may be missing; parameters around arrays; functions of other frameworks as
primitives; the weights of PyTorch's layers as those of ours, and back.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, reduce
from itertools import chain
from itertools import count as numbers
from typing import Any

import numpy as np
import optree

from .. import ops
from ..backends.registry import kernel
from ..core.abstract import Abstract, Kind, canonical, is_float
from ..core.errors import CheckpointError, MinimlError, ShapeError
from ..core.files import PathLike, opened, readable, short
from ..core.parameter import Parameter, share
from ..core.primitive import Primitive, orders, primitives
from ..core.tensor import Array, Tensor
from ..core.trace import Partition
from ..graph.ir import static_key
from ..nn.cell import Cell
from ..nn.linear import Dense
from ..nn.state import COUNTER, load, paths
from .custom import numpy_kernel
from .operator import ABSENT

_PIP = {"torch": "torch", "jax": "jax", "sklearn": "scikit-learn"}


def package(name: str, who: str) -> Any:
    """The module of a package; MinimlError where it is not installed. who: what needs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pip = _PIP.get(name, name)
        raise MinimlError(
            f"{who} needs the package {pip}, which is not installed; pip install {pip}"
        ) from None


def shared_parameter(array: Any, name: str, requires_grad: bool = True) -> Parameter:
    """A Parameter whose buffer is this array, of the CPU or of a GPU: writes of either side are
    seen by both.

    MinimlError for an array that cannot be written to.
    """
    host = isinstance(array, np.ndarray)
    if host and not array.flags.writeable:
        raise MinimlError(f"Parameter {name!r} needs memory that it may write to; give a copy")
    made = object.__new__(Parameter)
    made._data = array
    device = "cpu" if host else array.device.name
    made._kind = Kind.of(Parameter, array.shape, canonical(array.dtype), device)
    made.name, made.requires_grad = name, requires_grad
    made._seal()
    share(made)
    return made


def memory_of(parameter: Parameter) -> Any:
    """The buffer of a Parameter, of the CPU or of a GPU, to which its writes go; MinimlError for
    one on the simulator of a GPU."""
    if parameter.device not in SHARED:
        raise MinimlError(
            f"Parameter {parameter.name!r} is on {parameter.device}, whose memory nobody else "
            "knows: bring the network to the CPU with net.to('cpu')"
        )
    share(parameter)
    return parameter._buffer


SHARED = "cpu", "cuda"  # devices whose memory other frameworks share


# --- Functions of others as primitives ------------------------------------------------------------


Types = tuple[Abstract, ...]


class Adopted:
    """A function of trees of another framework's arrays, as one of trees of tensors: subclasses say
    what is a tensor. by: the function that made it, from_torch or from_jax.
    """

    def __init__(self, by: Callable[..., Any], fn: Callable[..., Any], name: str = ""):
        self.by, self.fn = by, fn
        name = name or getattr(fn, "__name__", type(fn).__name__)
        self.__name__ = name if name.isidentifier() else f"{by.__name__[5:]}_function"
        self._made: dict[Any, tuple[Foreign, Any]] = {}

    def ours(self, leaf: Any) -> Any:
        """An argument: a tensor for an array, anything else as it is."""
        raise NotImplementedError

    def outputs(self, out: Any) -> tuple[list[Any], Any]:
        """The arrays that the function returned, and their structure."""
        raise NotImplementedError

    def foreign(self, flat: Callable[..., Any], types: Sequence[Abstract], device: str) -> Foreign:
        """The function for arguments of one structure, given as one of arrays of these types."""
        raise NotImplementedError

    def __call__(self, *args: Any, **named: Any) -> Any:
        tree: Any = (args, named)
        leaves, spec = optree.tree_flatten(tree, none_is_leaf=True)
        given = list(map(self.ours, leaves))
        parts = Partition(given, spec, [i for i, x in enumerate(given) if isinstance(x, Tensor)])
        tensors = parts.taken()
        fixed = tuple([static_key(value, self.__name__) for value in parts.left()])
        device = "cuda" if any(t.device == "cuda" for t in tensors) else "cpu"
        call = spec, orders(tree), tuple(parts.positions), fixed, device
        found = self._made.get(call)
        if found is None:
            types = [Abstract(t.shape, t.dtype) for t in tensors]
            found = self._made[call] = self._flattened(parts.emptied(), types, device)
        foreign, result = found
        outs: Any = foreign.primitive(*tensors)
        return result.unflatten((outs,) if foreign.outputs == 1 else outs)

    def _flattened(
        self, parts: Partition, types: Sequence[Abstract], device: str
    ) -> tuple[Foreign, Any]:
        """The function for arguments of this structure, and the structure of its result."""
        result: list[Any] = []

        def flat(*xs: Any) -> list[Any]:
            args, named = parts.filled(xs)
            outs, spec = self.outputs(self.fn(*args, **named))
            result.append(spec)
            if spec != result[0]:
                raise MinimlError(
                    f"{self.__name__} returned {spec}; for arguments of the same structure it was "
                    f"{result[0]}, which must depend neither on types nor on values"
                )
            del result[1:]
            return outs

        return self.foreign(flat, types, device), result[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return self.by, (self.fn,)

    def __repr__(self) -> str:
        return f"{self.by.__name__}({self.__name__})"


class Foreign:
    """A pure function of flat arrays that another framework computes: subclasses say how.

    name: of the primitive. count: how many arrays it takes; outputs: how many it gives. on_gpu:
    `run` takes and gives arrays of a GPU too.
    """

    on_gpu = False

    def __init__(self, name: str, count: int, outputs: int):
        self.name, self.count, self.outputs = name, count, outputs

    def run(self, *arrays: Any) -> Sequence[Any]:
        """The outputs."""
        raise NotImplementedError

    def types(self, inputs: Types) -> Types:
        """The types of the outputs; nothing is computed."""
        raise NotImplementedError

    def pulled(self) -> Foreign:
        """The pull-back (*inputs, *cotangents of all outputs), which gives a gradient for each
        input, and an empty array for one that is not a float."""
        raise NotImplementedError

    @cached_property
    def primitive(self) -> Primitive:
        """The primitive whose kernel is this function, and whose bprop is the pull-back's."""
        numbered = (f"{self.name}_{i}" for i in numbers(2))
        name = next(n for n in chain((self.name,), numbered) if n not in primitives)

        def infer(_: Any, *xs: Any) -> Any:
            given = tuple([Abstract(tuple(x["shape"]), x["dtype"]) for x in xs])
            types = self._types(given)
            found = [{"shape": t.shape, "dtype": t.dtype, "value": None} for t in types]
            return found[0] if self.outputs == 1 else tuple(found)

        def bprop(_: Any, *values: Any) -> tuple[Any, ...]:
            xs, (_, dout) = values[: self.count], values[self.count :]
            douts = (dout,) if self.outputs == 1 else dout
            types = self._types(tuple([Abstract(tuple(x.shape), x.dtype) for x in xs]))
            filled = [
                ops.zeros(t.shape, t.dtype) if d is None else d
                for d, t in zip(douts, types, strict=True)
            ]
            found: Any = self._pulled.primitive(*xs, *filled)
            each = (found,) if self.count == 1 else found
            return tuple([g if is_float(x.dtype) else None for g, x in zip(each, xs, strict=True)])

        one = self.outputs == 1
        body = {
            "__module__": __name__,
            "__doc__": f"{self.name}, which another framework computes.",
            "inputs": tuple([f"x{i}" for i in range(self.count)]),
            "outputs": ("out",) if one else tuple([f"out{i}" for i in range(self.outputs)]),
            "__infer__": infer,
            "bprop": bprop,
        }
        made: type[Primitive] = type(name, (Primitive,), body)

        def run(*arrays: Array) -> Any:
            found = self.run(*arrays)
            return found[0] if one else tuple(found)

        anything = f"{'.' * self.count}->{'.' * self.outputs}"
        kernel(name, "cpu", anything)(numpy_kernel(name, run, one))
        if self.on_gpu:
            kernel(name, "cuda", anything)(self._run_there)
        return made()

    def _run_there(self, *arrays: Any, out: Any) -> None:
        """The kernel of a GPU: what the other framework gives is copied to where it belongs."""
        targets = (out,) if self.outputs == 1 else out
        for found, target in zip(self.run(*arrays), targets, strict=True):
            if (found.shape, found.dtype) != (target.shape, target.dtype):
                raise ShapeError(
                    f"{self.name} returned {found.dtype.name}{list(found.shape)}; on zeros it was "
                    f"{target.dtype.name}{list(target.shape)}; shapes must not depend on values"
                )
            target.device.copy_into(target, found)

    @cached_property
    def _pulled(self) -> Foreign:
        return self.pulled()

    @cached_property
    def _types(self) -> Callable[[Types], Types]:
        return lru_cache(256)(self.types)


def gradient_types(inputs: Types, count: int) -> Types:
    """The types of the gradients by the first `count` inputs."""
    return tuple([t if is_float(t.dtype) else ABSENT for t in inputs[:count]])


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
