"""Parameter, the one kind of tensor that can be updated.

The class; the undo log, in which writes keep the old values to be read or restored; the snapshot
that a recorded read stands for, copied when the parameter is written to; and the streams of random
numbers, whose state is a Parameter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar
from weakref import ref

import numpy as np

from ..backends.selection import get_device
from . import hints
from .abstract import Kind, uint64
from .access import Access, at_once
from .errors import DTypeError, GraphError, ShapeError
from .options import integer
from .scope import Block, Scoped, epoch
from .settings import current
from .tensor import Array, Tensor, host_array
from .trace import computes_at_once, current_trace, is_tracing


class Parameter(Tensor):
    """A Tensor with a name and a buffer that `assign`, `set_data` and optimizers update in place.

    Shape, dtype and buffer never change. requires_grad: False keeps it out of
    `trainable_params`. The data are copied.
    """

    __slots__ = ("name", "_learns", "_buffer", "_changed", "_reading", "_reads")
    UNNAMED: ClassVar[str] = "parameter"
    _instead_of_writing: ClassVar[str] = (
        "it changes as a whole: p.set_data(ops.scatter(p, index, value)), in construct ops.assign"
    )

    def __init__(
        self, data: Any, name: str = UNNAMED, requires_grad: bool = True, device: str | None = None
    ):
        super().__init__(data, device=device)
        self.name, self._learns = name, requires_grad

    @property
    def requires_grad(self) -> bool:
        """True if `trainable_params` has it; programs of its cell are made anew when it changes."""
        return self._learns

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._learns = value
        epoch.bump("cells")

    def _seal(self) -> None:
        # The Reading that shares the present value, kept alive by its users alone, and its kind.
        self._reading: ref[Reading] | None = None
        known = self._kind.abstract
        self._reads = Kind.of(Reading, known.shape, known.dtype, self._kind.device)
        self._changed: object = _last_write  # None if others may write to the buffer, too
        self._buffer = self._data
        self._data = self._buffer.view()
        self._data.setflags(write=False)

    def _array(self, operation: str) -> Any:
        """The data, if known: while a graph is traced they are not, since it reads them anew at
        each run."""
        if is_tracing() and operation != "repr":
            return current_trace().stand_in(self)._array(operation)
        return self._data

    def set_data(self, value: Any) -> None:
        """Overwrite the data; shape and dtype must be equal, else ShapeError or DTypeError.

        GraphError while a graph is traced, because it would not happen when the graph runs, and
        inside a step that runs op by op, as in the same step compiled.
        """
        if not computes_at_once():
            raise GraphError(
                f"Parameter {self.name!r} refuses set_data while a graph is traced, since it would "
                "happen once and not at each call; use ops.assign"
            )
        write_all("set_data", [(self, self.fitting(value))])

    def fitting(self, value: Any) -> Array:
        """The value as an array of this shape and dtype; ShapeError or DTypeError if it has
        others."""
        array = value._host("set_data") if isinstance(value, Tensor) else host_array(value, None)
        if array.shape != self.shape:
            raise ShapeError(
                f"Parameter {self.name!r} has shape {self.shape}; got {array.shape}; "
                "a parameter's shape never changes"
            )
        if not isinstance(value, (Tensor, np.ndarray)):
            array = array.astype(self.dtype)
        if array.dtype != self.dtype:
            raise DTypeError(
                f"Parameter {self.name!r} has dtype {self.dtype}; got {array.dtype}; cast it first"
            )
        return array

    def writing(self, array: Any) -> Callable[[], object]:
        """The call that overwrites the data, unchecked; see `undo.publish`."""
        if isinstance(self._buffer, np.ndarray):
            return partial(self._buffer.__setitem__, ..., array)
        return partial(get_device(self.device).copy_into, self._buffer, array)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.asnumpy(), self.name, self.requires_grad, self.device)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return type(self)(self.asnumpy(), self.name, self.requires_grad, self.device)

    def __repr__(self) -> str:
        return self._show("Parameter", f", name={self.name!r}")


hints.refuse_calls(__name__, "is a module; the class in it is ml.Parameter(data)")


# --- The undo log ---------------------------------------------------------------------------------


class UndoLog:
    """An undo log: old values of the parameters that were written to."""

    def __init__(self) -> None:
        self._old: dict[int, tuple[Any, Any]] = {}
        self._renewed: object = None

    def note(self, *parameters: Any) -> None:
        """Keep the values that the parameters have now, unless older ones are kept."""
        for parameter in parameters:
            if id(parameter) not in self._old:
                self._old[id(parameter)] = parameter, parameter._data.copy()

    def renew(self) -> None:
        """Keep the values that the noted parameters have now, in the memory of the older ones."""
        present = _last_write
        if self._renewed is present:  # what is kept are the values
            return
        for parameter, old in self.written():
            if isinstance(old, np.ndarray):
                np.copyto(old, parameter._data)
            else:
                self._old[id(parameter)] = parameter, parameter._data.copy()
        self._renewed = present

    def written(self) -> list[tuple[Any, Any]]:
        """The parameters noted, each with its old value."""
        return list(self._old.values())

    def restore(self, who: str = "undoing") -> None:
        """Give every parameter noted its old value, all at once. who: for errors."""
        write_all(who, self.written())


_first = itemgetter(0)
_log: Scoped[UndoLog] = Scoped("miniml_undo_log")
_block = _log.variable.get


def logged() -> Block[UndoLog]:
    """Inside the block every write of a parameter is logged, except those of compiled programs."""
    return _log.use(UndoLog)


def before_write(parameter: Any) -> None:
    """To be called before a parameter's data change: all enclosing blocks log the old value."""
    keep_readings((parameter,))
    block = _log.block() if _block() is not None else None
    while block is not None:
        block.value.note(parameter)
        block = block.outer


_last_write = object()  # another one whenever parameters change


def keep_readings(parameters: Iterable[Any]) -> None:
    """To be called before these parameters change: readings that share their memory get copies."""
    global _last_write
    _last_write = object()
    for parameter in parameters:
        if parameter._changed is not None:
            parameter._changed = _last_write
        if parameter._reading is not None:
            _keep_reading(parameter)


def last_write() -> object:
    """Another object whenever a parameter has been written to."""
    return _last_write


def share(parameter: Any) -> None:
    """Note that others, who do not say when, may write to the parameter's buffer from now on."""
    global _last_write
    _last_write, parameter._changed = object(), None


def _keep_reading(parameter: Any) -> None:
    known = parameter._reading
    reading = None if known is None else known()
    if reading is not None:
        reading.own()
    parameter._reading = None


def publish(values: Sequence[tuple[Any, Any]]) -> None:
    """Give parameters new data, all at once; inside a section that may write them.

    values: parameters with arrays of their device, or of NumPy, of the same shape and dtype.
    """
    for parameter, _ in values:
        before_write(parameter)
    at_once([parameter.writing(array) for parameter, array in values])


def write_all(who: str, values: Sequence[tuple[Any, Any]]) -> None:
    """`publish` as a section of its own: no other sees some parameters new and others old."""
    Access(who, map(_first, values)).run(publish, values)


# --- Copy-on-write snapshots ----------------------------------------------------------------------


_LOOKS = ("repr", "bool", "int", "float", "item()", "index", "format", "asnumpy()", "tolist()")


class Reading(Tensor):
    """The value of a parameter at one moment, as a Tensor.

    It shares the parameter's memory until that is written to, and then gets a copy of its own
    (`undo.before_write`). While it shares memory, a view of it would change with the parameter:
    the eager trace copies such views, as it does for Parameters themselves.
    """

    __slots__ = ("parameter", "shares")

    def __init__(self, parameter: Parameter):
        self._data, self._kind = parameter._data, parameter._reads
        self.parameter, self.shares = parameter, True

    def own(self) -> None:
        """Copy the value into memory of its own, which nothing writes to."""
        if self.shares:
            self._data, self.shares = self._data.copy(), False
            self._seal()

    def _array(self, operation: str) -> Any:
        if operation not in _LOOKS:  # the array may outlive this call
            self.own()
        return self._data


def read(parameter: Parameter) -> Tensor:
    """The value of the parameter now: the same Reading for as long as it is used and the
    parameter is not written to."""
    known = parameter._reading
    reading = None if known is None else known()
    if reading is None:
        reading = Reading(parameter)
        parameter._reading = ref(reading)
    return reading


# --- Random streams -------------------------------------------------------------------------------


class Generator:
    """A stream of Philox 4x32-10 blocks: `state` holds (key, offset) as uint64.

    Drawing advances the offset by the number of blocks used, so equal seeds give equal numbers
    and a stream can be resumed from its state. A forked child continues the stream of its parent:
    reseed it if it is to draw other numbers.
    """

    def __init__(self, seed: int | None = None):
        # On the CPU, whatever the device of the draws: programs copy it there.
        self.state = Parameter(np.zeros(2, np.uint64), "random_state", False, "cpu")
        self._section = Access("a random draw", (self.state,))
        self.manual_seed(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` (any int, taken modulo 2**64) anew; returns the generator."""
        self.state.set_data(
            np.array([integer("manual_seed", "seed", seed, high=math.inf) % 2**64, 0], np.uint64)
        )
        return self

    def __repr__(self) -> str:
        key, offset = self.state.tolist()
        return f"Generator(key={key}, offset={offset})"

    def reserve(self, blocks: int) -> Tensor:
        """The state before a draw of `blocks` blocks, which are taken from the stream; ShapeError
        for more of them than an array can use."""
        if blocks >= 2**63:
            raise ShapeError(
                f"a random draw takes {blocks} blocks; arrays have less than 2**63 bytes"
            )
        kind = Kind.of(Tensor, (2,), uint64, current().device_target)
        return Tensor.of_host(self.taking(blocks)(), kind)

    def taking(self, blocks: int) -> Callable[[], Array]:
        """The call that takes this number of blocks, and gives the state before."""
        return partial(self._section.run, self._take, blocks)

    def _take(self, blocks: int) -> Array:
        state = self.state
        # Whoever looks for readings sees this one.
        before = (state._array("asnumpy()") if is_tracing() else state._data).copy()
        before.setflags(False)
        before_write(state)
        state._buffer[1] = (before.item(1) + blocks) % 2**64
        return before  # type: ignore[no-any-return]

    def give_back(self, before: Array, blocks: int) -> None:
        """Undo a reservation of `blocks` blocks, from which nothing was drawn that anybody has;
        unless something else was taken from the stream since. before: the state before it."""
        self._section.run(self._put_back, before, blocks)

    def _put_back(self, before: Array, blocks: int) -> None:
        key, offset = before.tolist()
        if self.state.tolist() == [key, (offset + blocks) % 2**64]:
            before_write(self.state)
            self.state._buffer[1] = offset


default_generator = Generator(0)
random_state = default_generator.state  # a Parameter: what an exact resume saves and loads


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, from which `ops.uniform`, dropout and initializers draw, and
    return it.

    It starts with seed 0 in every process: unseeded runs are equal, unlike NumPy's and PyTorch's.
    """
    return default_generator.manual_seed(seed)
