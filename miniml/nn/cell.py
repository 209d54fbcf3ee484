"""Cell: a network or a part of one, with parameters, child cells and a training flag.

After the class itself: the checks of its attributes, the entry point that traces call, keys of
mutable attributes, freezing by patterns, moving to a device or dtype, and hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from html import escape
from inspect import signature
from reprlib import recursive_repr
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from ..core.abstract import ALL, Abstract, DType, as_dtype, float32, float64, is_float
from ..core.errors import (
    AttributeRefusedError,
    BpropError,
    DeclarationError,
    DTypeError,
    MinimlError,
    PerformanceWarning,
    warn_user,
)
from ..core.hints import Constructed, elsewhere, hide_frames, shown, unknown
from ..core.parameter import Parameter
from ..core.primitive import Same, key
from ..core.scope import Epoch, Layer, epoch, layers
from ..core.settings import current, device_name
from ..core.tensor import Array, Tensor
from ..core.trace import Guarded, computes_at_once, current_trace, partition
from ..grad.reverse import name_of
from ..grad.transforms import _returned, checked, recomputed
from ..graph.tracing import by_position
from .state import load, note_layer

if TYPE_CHECKING:
    from ..viz.summary import Summary


class Cell(Constructed, Guarded):
    """Base of networks and layers: subclasses assign attributes and define `construct`.

    Parameters and Cells that are assigned as attributes are found by those names, down the tree:
    "conv1.weight", or "0.weight" in a Sequential. Calling a cell runs `construct` with the same
    arguments and keywords, compiled in GRAPH_MODE. `training` is True until `set_train(False)`. To
    a type checker a call gives a Tensor, of any shape, which unpacks into Tensors and can be
    indexed; where construct returns another tree, `typing.cast` says which. MinimlError for a class
    without one.

    A method `bprop(self, *inputs, out, dout)`, which takes what construct takes, its result and
    the cotangent of that, is the cell's gradient: a tuple with one per input, None for none, as for
    `grad.custom_bprop`. It reaches the inputs only; parameters inside get none.

    A Parameter or a Cell can be replaced only by another one, or None: `net.weight = array` is
    refused, as the array would neither learn nor be saved; `net.weight.set_data(array)` sets the
    values, and `del net.weight` frees the name.

    A compiled program depends on the attributes of all cells it was traced through: it is made
    anew when one is assigned, `set_train` changes one, or what a list, dict or set holds changes.
    (An array is read once: assign another one.) So `construct` should assign none; state that
    changes from call to call is a Parameter, updated with `ops.assign`.
    """

    training: bool
    _structure: int  # the number of changes of anything but the mode
    _watched: tuple[str, ...]  # names of attributes that may change without an assignment
    _entry: Entry
    _hooks: tuple[Hook, ...]
    _frozen: tuple[str, ...] = ()  # names of own parameters that `freeze` froze
    _recomputed: ClassVar[bool] = False
    _shown: ClassVar[tuple[str, ...] | None] = None  # the first arguments in describe()

    if not TYPE_CHECKING:  # checkers would think that every cell takes any arguments

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            """Set up the cell here, so that a subclass need not call super().__init__()."""
            cell = super().__new__(cls, *args, **kwargs)
            cell.__dict__.update(training=True, _structure=0, _watched=(), _hooks=())
            cell.__dict__["_entry"] = Entry(cell)
            return cell

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name, value in vars(cls).items():
            if holds([value], (Cell, Parameter)):
                raise AttributeRefusedError(
                    f"{cls.__name__}.{name} holds cells or parameters in the class, where they "
                    f"would not be found; write self.{name} = ... in __init__"
                )

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """The output, a tree of tensors, in terms of `ops`, child cells and parameters.

        MinimlError where a class defines none."""
        forward = hasattr(type(self), "forward")
        say = "forward is called construct here" if forward else "say what it computes"
        raise MinimlError(
            f"{type(self).__name__} defines no construct; {say}: def construct(self, x): ..."
        )

    def __call__(self, *args: Any, **named: Any) -> Tensor:
        try:
            entry = self._entry
            callee = current_trace().callee(entry)
            # A method takes a frame less than an object that is called.
            return (entry.run if callee is entry else callee)(*args, **named)  # type: ignore[no-any-return]
        except Exception as error:
            note_layer(error, self)
            hide_frames(error)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse_taken(type(self).__name__, name, value)
        _refuse_hidden(self, name, value)
        _check_replaced(type(self).__name__, name, self.__dict__.get(name), value)
        if self.__dict__.get(name, self) is not value:
            super().__setattr__(name, value)
            self._changed(name)

    if not TYPE_CHECKING:  # it would hide misspelt names from the checker

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that raised: show its error
                return object.__getattribute__(self, name)
            raise unknown(type(self).__name__, name, self)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._changed(name)

    def _changed(self, name: str) -> None:
        """Invalidate the programs that depend on this cell. Those of another mode stay cached."""
        if name != "training":
            others = tuple(n for n in self._watched if n != name)
            watched = changes_silently(self.__dict__.get(name))
            self.__dict__["_watched"] = (*others, name) if watched else others
            self.__dict__["_structure"] = self._structure + 1
        epoch.bump("cells")

    @property
    def silent(self) -> bool:  # type: ignore[override]
        """True with a list, dict or set among the attributes, which may change in place."""
        return bool(self._watched)

    @property
    def born(self) -> int:  # type: ignore[override]
        """The tick of `epoch` at which it was made."""
        return self._entry.born

    @property
    def signature(self) -> tuple[object, ...]:
        """The mode, the structure, which parameters learn, and what lists, dicts and sets hold."""
        learns = tuple([v._learns for v in self.__dict__.values() if isinstance(v, Parameter)])
        held = tuple(contents(self.__dict__.get(name)) for name in self._watched)
        return self._structure, int(self.training), learns, held

    def outgrown(self, signature: object) -> bool:
        """True for the signature of an older structure: modes and contents can recur."""
        return isinstance(signature, tuple) and signature[0] != self._structure

    def cells(self) -> Iterator[Cell]:
        """This cell and all below it, parents first, each once."""
        yield from (cell for _, cell in self._walk("", set()))

    def _walk(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Cell]]:
        waiting: list[tuple[str, Cell]] = [(prefix, self)]
        while waiting:
            prefix, cell = waiting.pop()
            if id(cell) in seen:
                continue
            seen.add(id(cell))
            yield prefix, cell
            for name in cell._watched:
                _refuse_hidden(cell, name, cell.__dict__.get(name))
            children = [(f"{prefix}{n}.", v) for n, v in vars(cell).items() if isinstance(v, Cell)]
            waiting += reversed(children)

    def parameters_dict(self) -> dict[str, Parameter]:
        """Every parameter by its path from this cell, such as "conv1.weight", each once.

        The parameters take these paths as their names, which error messages and checkpoints use.
        """
        found = self._by_path()
        for path, parameter in found.items():
            parameter.name = path
        return found

    def _by_path(self) -> dict[str, Parameter]:
        """Every parameter by its path, with the name that it has."""
        first: dict[int, tuple[str, Parameter]] = {}
        for prefix, _, name, parameter in _held(self):
            first.setdefault(id(parameter), (prefix + name, parameter))
        return dict(first.values())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """The pairs of `parameters_dict`, each parameter once."""
        yield from self.parameters_dict().items()

    def state_dict(self) -> dict[str, Array]:
        """A copy of every parameter's data, as a NumPy array, by its path."""
        return {name: p.asnumpy() for name, p in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give the parameters the values of a `state_dict`, cast to their dtypes.

        CheckpointError lists all that is missing, unexpected or of another shape; nothing has
        changed then. What PyTorch saved, `nn.load_torch_state` reads.
        """
        load("load_state_dict", self, state)

    def _name_parameters(self, prefix: str) -> None:
        """Name the parameters that have no name yet, for the text of graphs."""
        for name, value in self.__dict__.items():
            if isinstance(value, Parameter) and value.name == Parameter.UNNAMED:
                value.name = prefix + name

    def get_parameters(self) -> list[Parameter]:
        """Every parameter, running statistics included, in the order of `parameters_dict`."""
        return list(self.parameters_dict().values())

    def trainable_params(self) -> list[Parameter]:
        """The parameters with `requires_grad`: what an optimizer takes."""
        return [p for p in self.parameters_dict().values() if p.requires_grad]

    def set_train(self, mode: bool = True) -> Self:
        """Set `training` here and below: Dropout and BatchNorm depend on it. Returns the cell."""
        for cell in self.cells():
            cell.training = bool(mode)
        return self

    def apply(self, fn: Callable[[Cell], object]) -> Self:
        """Call fn(cell) for every cell, children before those that hold them; returns the cell."""
        for cell in reversed(list(self.cells())):
            fn(cell)
        return self

    def freeze(self, *patterns: str) -> Self:
        """Keep the parameters that match (without patterns, all) from training; returns the cell.

        patterns: paths of parameters or of layers, with * and ? for any characters, as in
        freeze("body", "*.bias"). They lose `requires_grad`, so make the optimizer afterwards.
        AttributeRefusedError for a pattern that nothing matches.
        """
        learning = [entry for entry in _matching(self, patterns) if entry[2].requires_grad]
        for cell, name, parameter in learning:  # a shared one is recorded under all its names
            parameter.requires_grad = False
            cell._note_frozen((*cell._frozen, name))
        return self

    def unfreeze(self, *patterns: str) -> Self:
        """Undo `freeze` for the parameters that match (without patterns, all); returns the cell.

        What never learnt, such as running statistics, stays as it is.
        """
        for cell, name, parameter in _matching(self, patterns):
            if name in cell._frozen:
                parameter.requires_grad = True
                cell._note_frozen(tuple(n for n in cell._frozen if n != name))
        return self

    def _note_frozen(self, names: tuple[str, ...]) -> None:
        self.__dict__["_frozen"] = names
        self._changed("_frozen")

    def to(self, target: str | DType) -> Self:
        """Bring all parameters to a device, or floats to a dtype, as "cuda" or ml.float16; returns
        the cell.

        A parameter that is elsewhere or of another dtype is replaced by a new one with the same
        data: make the optimizer afterwards.
        """
        of_dtype = not isinstance(target, str) or target in {dtype.name for dtype in ALL}
        device = None if of_dtype else device_name(str(target))
        dtype = None if device else _float_dtype(target)
        moved: dict[int, Parameter] = {}
        for cell in self.cells():
            for name, old in list(vars(cell).items()):
                if isinstance(old, Parameter) and _differs(old, device, dtype):
                    if id(old) not in moved:
                        data = old.asnumpy().astype(dtype) if dtype else old
                        where = device or old.device
                        moved[id(old)] = Parameter(data, old.name, old.requires_grad, where)
                    setattr(cell, name, moved[id(old)])
        return self

    def register_forward_pre_hook(self, fn: Callable[..., Any]) -> Handle:
        """Call fn(cell, inputs) before construct; inputs: a tuple of the positional arguments.

        Its result, if not None, replaces them: a tuple, or the one input. This and the
        other two: hooks run in the order of registration until `handle.remove()`. Where the cell
        is compiled they are traced with it, on values that are not known yet, and it is compiled
        anew when one comes or goes. Copies of a cell have none. Returns the handle.
        """
        return hook(self, "forward pre-hook", fn)

    def register_forward_hook(self, fn: Callable[..., Any]) -> Handle:
        """Call fn(cell, inputs, output) after construct. Its result, if not None, replaces the
        output, and has its structure, shapes and dtypes. Returns a handle, as the one above."""
        return hook(self, "forward hook", fn)

    def register_backward_hook(self, fn: Callable[..., Any]) -> Handle:
        """Call fn(cell, grad_inputs, grad_output) when a gradient has passed through the cell.

        grad_inputs: one entry per positional argument, None where no gradient passes. The result of
        fn, if not None, replaces them: a tuple of the same shapes and dtypes.
        grad_output: has the output's structure. Returns a handle, as the two above.
        """
        return hook(self, "backward hook", fn)

    def summary(self, *examples: Any) -> Summary:
        """The layers by path: what each gives, its parameters, bytes and FLOPs; nothing runs.

        examples: the arguments of a call, with arrays, `ArraySpec(shape, dtype)` or shapes (tuples
        of ints, of float32) where it takes tensors. Without them there are parameters only.

        >>> from miniml import nn
        >>> print(nn.Sequential(nn.Dense(784, 10), nn.ReLU()).summary((32, 784)))
        layer     class       output           output bytes  parameters  their bytes  FLOPs
        -----------------------------------------------------------------------------------
                  Sequential  float32[32, 10]       1.28 kB                               0
        0         Dense       float32[32, 10]       1.28 kB       7,850      31.4 kB  502 k
        1         ReLU        float32[32, 10]       1.28 kB                             320
        -----------------------------------------------------------------------------------
        together                                                  7,850      31.4 kB  502 k
        trainable 7,850, others 0
        """
        found: Summary = elsewhere(__name__, "summary")(self, examples)
        return found

    def describe(self) -> str:
        """This layer in one line, without its children; errors and `repr` use it.

        A layer of the library with the arguments of its constructor that are not defaults, other
        cells with the plain values among their attributes, as in Scaled(factor=2.0).
        """
        if self._shown is not None:
            return f"{type(self).__name__}({', '.join(_arguments(self, self._shown))})"
        own = {k: v for k, v in vars(self).items() if k != "training" and not k.startswith("_")}
        plain = [
            f"{k}={shown(v)}" for k, v in own.items() if isinstance(v, (bool, int, float, str))
        ]
        return f"{type(self).__name__}({', '.join(plain)})"

    @recursive_repr()
    def __repr__(self) -> str:
        children = [(n, v) for n, v in self.__dict__.items() if isinstance(v, Cell)]
        if not children:
            return self.describe()
        shown = (f"({name}): {child!r}".replace("\n", "\n  ") for name, child in children)
        return self.describe()[:-1] + "\n  " + "\n  ".join(shown) + "\n)"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>{self.summary()._repr_html_()}"

    def __getstate__(self) -> dict[str, Any]:
        """The state of copies and pickles: no hooks, as their handles belong to the original."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_entry", "_hooks")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _arguments(cell: Cell, first: tuple[str, ...]) -> Iterator[str]:
    """The arguments that make a cell, as far as they are attributes: the first ones, by name if it
    ends in "=", and the others where they differ from their defaults. A bool is True of a parameter
    that there is; the values of another parameter are a list."""
    for name in first:
        yield f"{name if name[-1] == '=' else ''}{getattr(cell, name.rstrip('='))!r}"
    kind: Any = type(cell)
    for name, default in _defaults(kind).items():
        if name in vars(cell) and not {name, f"{name}="} & {*first}:
            value = vars(cell)[name]
            if isinstance(default, bool):
                value = value is not None and value is not False
            elif isinstance(value, Parameter):
                value = value._host("repr").tolist()
            if value != default:
                yield f"{name}={value!r}"


@lru_cache(512)
def _defaults(kind: Any) -> dict[str, Any]:
    """The defaults of the arguments of a class, and of those that its bases take beside them; None
    where there is none."""
    inits = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    taken = [p for init in inits for p in signature(init).parameters.values()]
    return dict.fromkeys(p.name for p in taken) | {
        p.name: p.default for p in reversed(taken) if p.default is not p.empty
    }


# --- Checks of attributes -------------------------------------------------------------------------


def _refuse_taken(owner: str, name: str, value: Any) -> None:
    """AttributeRefusedError for the name of a method, and for a mode that is no bool."""
    if name in _METHODS:
        raise AttributeRefusedError(
            f"{owner}.{name} is a method of a Cell, which the {type(value).__name__} would hide; "
            f"choose another name, as self.own_{name}"
        )
    if name == "training" and not isinstance(value, (bool, np.bool_)):
        raise AttributeRefusedError(
            f"{owner}.training got {shown(value)}; it is True or False, and net.set_train(False) "
            "sets it for all layers; choose another name for anything else"
        )


_METHODS = {name for name, value in vars(Cell).items() if callable(value) and name[0] != "_"}
_METHODS -= {"construct"}  # a cell defines its own


def _refuse_hidden(owner: Cell, name: str, value: Any) -> None:
    """AttributeRefusedError for a container of cells or parameters, which would not be found."""
    if holds(value, (Cell, Parameter)):
        raise AttributeRefusedError(
            f"{type(owner).__name__}.{name} is a {type(value).__name__} that holds cells or "
            "parameters, where they would not be found; use nn.CellList(...) or "
            "nn.Sequential(...), or one attribute for each"
        )


def _check_replaced(owner: str, name: str, old: Any, value: Any) -> None:
    """Refuse a value that would silently remove a parameter or a child cell from the network."""
    for kind, instead in _INSTEAD.items():
        if isinstance(old, kind) and value is not None and not isinstance(value, kind):
            raise AttributeRefusedError(
                f"{owner}.{name} is a {kind.__name__}, which {shown(value)} cannot replace: it "
                f"would neither be trained nor saved; {instead.format(name)}, or delete it first"
            )


_INSTEAD = {
    Parameter: "use .{0}.set_data(value), inside construct ops.assign(self.{0}, value), give a "
    "Parameter",
    Cell: "give a Cell",
}


# --- Entry point of traces ------------------------------------------------------------------------


class Entry:
    """The callable that a trace sees for a cell: one per cell, so that each has one program cache.

    called: the cell, or one around it, has been called op by op, so that dtypes were checked.
    """

    def __init__(self, cell: Any):
        self.cell, self.born = cell, epoch.tick()
        self.called = self.warned = False
        self._names: tuple[Epoch | None, dict[int, str]] = (None, {})  # of inner layers

    def run(self, *args: Any, **named: Any) -> Any:
        """Call the cell. For a plain one `construct` is called from here, as cells nest only as
        deep as Python's stack divided by the frames that each takes."""
        cell, at_once = self.cell, computes_at_once()
        alone = False
        if not (at_once and self.called):
            alone = at_once or layers.get() is None
            self._prepare()
        plain = not (cell._hooks or cell._recomputed or hasattr(type(cell), "bprop"))
        construct = cell.construct if plain else self._with_hooks
        if at_once and not _watched():
            out = construct(*args, **named)
        else:
            with layers.use(self._layer):
                out = construct(*args, **named)
        if alone and not self.warned:
            self.warned = warn_widened(cell, args, out)
        return out

    __call__ = run

    def _prepare(self) -> None:
        """Guard the program on all cells below, and name their parameters."""
        for prefix, inner in self.cell._walk("", set()):  # construct may read any of them
            inner._entry.called = True
            current_trace().guard(inner, inner.signature)
            inner._name_parameters(prefix)

    def _with_hooks(self, *args: Any, **named: Any) -> Any:
        if self.cell._hooks:
            return run_hooked(self.cell, self._with_gradient, args, named)
        return self._with_gradient(args, named)

    def _with_gradient(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        cell = self.cell
        bprop = getattr(type(cell), "bprop", None)
        if bprop is None:
            construct = recomputed(cell.construct) if cell._recomputed else cell.construct
            return construct(*args, **named)
        # A custom gradient, too, keeps only the inputs.
        given = by_position(self.__name__, cell.construct, args, named)
        bound = MethodType(bprop, cell)
        return current_trace().call_with_bprop(self.__name__, cell.construct, bound, given)

    def _layer(self) -> Layer:
        """The cell by its path from the outermost one that is being called."""
        outer = layers.get()
        network = outer.network if outer is not None and outer.network is not None else self.cell
        return Layer(network._entry.names().get(id(self.cell), ""), network)

    def names(self) -> dict[int, str]:
        """The name of each layer inside this cell, by the layer's identity: the cell's own, if
        there is none."""
        named_at, names = self._names
        if named_at is not epoch.now:
            (_, whole), *below = self.cell._walk("", set())
            names = {id(c): f"layer {path[:-1]} ({type(c).__name__})" for path, c in below}
            names = names or {id(whole): type(whole).__name__}
            self._names = epoch.now, names
        return names

    @property
    def __name__(self) -> str:
        return type(self.cell).__name__


def _watched() -> bool:
    """True where a setting or a watcher needs the names of layers at each call."""
    settings = current()
    return settings.check_nan or bool(settings.watchers)


def warn_widened(cell: Any, inputs: Sequence[Any], out: Any) -> bool:
    """Warn of a float64 input beside float32 parameters that made the result float64, too.

    That is correct, but slow, and seldom intended.
    """
    wide = [x for x in inputs if isinstance(x, (Tensor, np.ndarray)) and x.dtype == float64]
    if not wide or not isinstance(out, Tensor) or out.dtype != float64:
        return False
    value_of = current_trace().stand_in  # gradcheck substitutes float64 values
    if not any(value_of(p).dtype == float32 for p in cell.trainable_params()):
        return False
    warn_user(
        PerformanceWarning(
            f"{type(cell).__name__} got {Abstract(wide[0].shape, float64)} beside float32 "
            "parameters, so it computes in float64, about half as fast; convert the data "
            "once, where it is loaded: x.astype(np.float32)"
        )
    )
    return True


# --- Mutable attributes ---------------------------------------------------------------------------


def changes_silently(value: Any) -> bool:
    """True for containers whose content may change without an assignment."""
    if isinstance(value, tuple):
        return any(map(changes_silently, value))
    return isinstance(value, (list, dict, set))


def contents(value: Any) -> object:
    """A key for what a value holds: containers and numbers by value, all else by identity.

    1, 1.0 and True differ, as everywhere; so do dicts in another order.
    """
    if isinstance(value, dict):
        return type(value), tuple((contents(k), contents(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(map(contents, value))
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(contents, value))
    return key(value) if isinstance(value, _PLAIN) else Same(value)


_PLAIN = (bool, int, float, str, bytes, type(None))


def holds(value: Any, kinds: tuple[type, ...]) -> bool:
    """True where a container holds an object of these kinds, however deep."""
    if not isinstance(value, (list, tuple, dict, set, frozenset)):
        return False
    inside = value.values() if isinstance(value, dict) else value
    return any(isinstance(v, kinds) or holds(v, kinds) for v in inside)


# --- Freezing -------------------------------------------------------------------------------------


def _matching(network: Any, patterns: tuple[str, ...]) -> list[tuple[Any, str, Parameter]]:
    """The parameters at paths that match any of the patterns, with the cells that hold them;
    AttributeRefusedError for a pattern that matches none."""
    held = {prefix + name: (cell, name, p) for prefix, cell, name, p in _held(network)}
    for pattern in patterns:
        if not _matched(held, pattern):
            raise AttributeRefusedError(
                f"{type(network).__name__} has no parameter or layer {pattern!r}; its parameters "
                f"are {', '.join(held)}; a pattern is a path, as '0.weight', '0' or '*.bias'"
            )
    chosen = {path for pattern in patterns or ("*",) for path in _matched(held, pattern)}
    return [entry for path, entry in held.items() if path in chosen]


def _matched(paths: Iterable[str], pattern: str) -> list[str]:
    return [p for p in paths if fnmatchcase(p, str(pattern)) or fnmatchcase(p, f"{pattern}.*")]


def _held(network: Any) -> Iterator[tuple[str, Any, str, Parameter]]:
    for prefix, cell in network._walk("", set()):
        for name, value in vars(cell).items():
            if isinstance(value, Parameter):
                yield prefix, cell, name, value


# --- Device and dtype -----------------------------------------------------------------------------


def _differs(old: Parameter, device: str | None, dtype: DType | None) -> bool:
    return old.device != device if device else is_float(old.dtype) and old.dtype != dtype


def _float_dtype(target: object) -> DType:
    dtype = as_dtype(target)
    if is_float(dtype):
        return dtype
    raise DTypeError(
        f"net.to got {dtype.name}; parameters are floats: give ml.float32 or another float"
    )


# --- Hooks: functions that are called before and after construct, and for the gradient ------------


class Hook(NamedTuple):
    """One registration: equal to no other, though the function may be."""

    kind: str
    fn: Callable[..., Any]
    token: object

    def on(self, cell: Any) -> str:
        """The name of the hook in errors."""
        return f"the {self.kind} {name_of(self.fn)} of {cell.describe()}"


class Handle:
    """A registered hook of a cell; `remove()` unregisters it, and does nothing a second time."""

    def __init__(self, cell: Any, registered: Hook):
        self._cell, self._hook = cell, registered

    def remove(self) -> None:
        """Unregister the hook."""
        if self._hook in self._cell._hooks:
            self._cell._hooks = tuple(h for h in self._cell._hooks if h != self._hook)


def hook(cell: Any, kind: str, fn: Callable[..., Any]) -> Handle:
    """Register a hook of that kind."""
    if not callable(fn):
        raise DeclarationError(f"{cell.describe()} got {fn!r} for a {kind}; give a function")
    registered = Hook(kind, fn, object())
    cell._hooks = (*cell._hooks, registered)
    return Handle(cell, registered)


Run = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def run_hooked(cell: Any, run: Run, args: tuple[Any, ...], by_name: dict[str, Any]) -> Any:
    """`run(args, by_name)` of a cell, with its hooks before and after it."""
    kinds: dict[str, list[Hook]] = {}
    for one in cell._hooks:
        kinds.setdefault(one.kind, []).append(one)
    args, by_name = _in_order(cell, args, by_name)
    replaced_by = ""
    for one in kinds.get("forward pre-hook", ()):
        found = _returned(one.on(cell), one.fn, cell, args)
        if found is not None:
            args, replaced_by = found if isinstance(found, tuple) else (found,), one.on(cell)
    backward = [_Backward(cell, one) for one in kinds.get("backward hook", ())]
    for watch in backward:
        args = watch.enter(args)
    try:
        out = run(args, by_name)
    except Exception as error:
        if replaced_by:
            error.add_note(f"with inputs from {replaced_by}")
        raise
    for one in kinds.get("forward hook", ()):
        found = _returned(one.on(cell), one.fn, cell, args, out)
        if found is not None:
            out = checked(one.on(cell), MinimlError, found, out)
    for watch in reversed(backward):
        out = watch.leave(out)
    return out


def _in_order(
    cell: Any, args: tuple[Any, ...], by_name: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs by position, which hooks see, as far as the signature allows; others by name."""
    if not by_name:
        return args, by_name
    try:
        given = signature(cell.construct).bind(*args, **by_name)
    except TypeError:  # the call raises a better error
        return args, by_name
    return given.args, given.kwargs


class _Backward:
    """A backward hook in one call of the cell: a backward pass reaches the output first and the
    inputs last, unless no gradient passes to them."""

    def __init__(self, cell: Any, registered: Hook):
        self.cell, self.fn, self.who = cell, registered.fn, registered.on(cell)
        self.dout: Any = None
        self.reaches_inputs = False

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inputs = partition(args, _is_tensor, none_is_leaf=True)
        given = self.inputs.taken()
        passed = current_trace().call_with_bprop(self.who, _same, self._entered, given)
        # Where a gradient is recorded, the tensors returned are not those given.
        self.reaches_inputs = any(p is not g for p, g in zip(passed, given, strict=True))
        return self.inputs.filled(passed)  # type: ignore[no-any-return]

    def leave(self, out: Any) -> Any:
        self.outputs = partition(out, _is_tensor, none_is_leaf=True)
        given = self.outputs.taken()
        return self.outputs.filled(
            current_trace().call_with_bprop(self.who, _same, self._left, given)
        )

    def _left(self, *values: Any) -> tuple[Any, ...]:
        douts: Sequence[Any] = values[-1]
        self.dout = _only(self.outputs, douts)
        if not self.reaches_inputs:
            self._call([None] * len(self.inputs.positions))
        return tuple(douts)

    def _entered(self, *values: Any) -> tuple[Any, ...]:
        return self._call(values[-1])

    def _call(self, douts: Sequence[Any]) -> tuple[Any, ...]:
        gradients = _only(self.inputs, douts)
        found = _returned(self.who, self.fn, self.cell, gradients, self.dout)
        if found is None:
            return tuple(douts)
        changed = checked(self.who, BpropError, found, gradients)
        leaves = self.inputs.spec.flatten_up_to(changed)
        return tuple(leaves[i] for i in self.inputs.positions)


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)


def _same(*values: Any) -> tuple[Any, ...]:
    return values


def _only(tree: Any, values: Sequence[Any]) -> Any:
    """The tree with these values at its tensors, and None elsewhere."""
    return tree._replace(leaves=[None] * len(tree.leaves)).filled(values)
