"""Cell: a network or a part of one, with parameters, child cells and a training flag."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ClassVar, Self

from .. import epoch
from ..constructor import Constructed, shown
from ..dtype import DType
from ..errors import AttributeRefusedError, MinimlError
from ..hints import unknown
from ..parameter import Parameter
from ..tensor import Array, Tensor
from ..trace import Guarded, current_trace
from ..tracebacks import hide_frames
from .contents import changes_silently, contents, holds
from .entry import Entry
from .freezing import freeze, unfreeze
from .hooks import Handle, Hook, hook
from .moving import move
from .paths import note_layer
from .state import load
from .summary import Summary, summary


class Cell(Constructed, Guarded):
    """Base of networks and layers: subclasses assign attributes and define `construct`.

    Parameters and Cells that are assigned as attributes are found by those names, down the tree:
    "conv1.weight", or "0.weight" in a Sequential. Calling a cell runs `construct` with the same
    arguments and keywords, compiled in GRAPH_MODE. `training` is True until `set_train(False)`.
    To a type checker a call gives a Tensor, which unpacks into Tensors and can be indexed; where
    construct returns another tree, `typing.cast` says which.

    A method `bprop(self, *inputs, out, dout)`, which takes what construct takes, its result and
    the cotangent of that, is the cell's gradient: a tuple with one per input, None for none, as for
    `grad.custom_bprop`. It reaches the inputs only; parameters inside get none.

    Where there is a Parameter or a Cell, only another one, or None, takes its place: `net.weight =
    array` is refused, as the array would neither learn nor be saved; `net.weight.set_data(array)`
    is what does it, and `del net.weight` frees the name.

    A compiled program depends on the attributes of all cells it was traced through: it is made
    anew when one is assigned, `set_train` changes one, or what a list, dict or set holds changes.
    (An array is read once: assign another one.) So `construct` should assign none; what changes
    from call to call is a Parameter, updated with `ops.assign`.
    """

    training: bool
    _structure: int  # how often anything but the mode has changed
    _watched: tuple[str, ...]  # names of attributes that may change without an assignment
    _entry: Entry
    _hooks: tuple[Hook, ...]
    _frozen: tuple[str, ...] = ()  # names of own parameters that `freeze` keeps from learning
    _recomputed: ClassVar[bool] = False
    _shown: ClassVar[str] = ""  # what stands in the brackets of describe(), "{0}" being the cell

    if not TYPE_CHECKING:  # it would tell the checker that every cell takes anything

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            """Set up here, so that a subclass may forget super().__init__()."""
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
        """What the cell computes, in terms of `ops`, child cells and parameters."""
        forward = hasattr(type(self), "forward")
        say = "forward is called construct here" if forward else "say what it computes"
        raise MinimlError(
            f"{type(self).__name__} defines no construct; {say}: def construct(self, x): ..."
        )

    def __call__(self, *args: Any, **named: Any) -> Tensor:
        try:
            return current_trace().call(self._entry, args, named)  # type: ignore[no-any-return]
        except Exception as error:
            note_layer(error, self)
            hide_frames(error)
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse_hidden(self, name, value)
        _check_replaced(type(self).__name__, name, self.__dict__.get(name), value)
        if self.__dict__.get(name, self) is not value:
            super().__setattr__(name, value)
            self._changed(name)

    if not TYPE_CHECKING:  # it would hide misspelt names from the checker

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property that lacks something: say what
                return object.__getattribute__(self, name)
            raise unknown(type(self).__name__, name, self)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._changed(name)

    def _changed(self, name: str) -> None:
        """Programs that depend on this cell are made anew; back in a mode, it knows theirs."""
        if name != "training":
            others = tuple(n for n in self._watched if n != name)
            watched = changes_silently(self.__dict__.get(name))
            self.__dict__["_watched"] = (*others, name) if watched else others
            self.__dict__["_structure"] = self._structure + 1
        epoch.bump("cells")

    @property
    def silent(self) -> bool:  # type: ignore[override]
        """True with a list, dict or set among the attributes, which may change by themselves."""
        return bool(self._watched)

    @property
    def born(self) -> int:  # type: ignore[override]
        """When it was made, in ticks of `epoch`."""
        return self._entry.born

    @property
    def signature(self) -> tuple[object, ...]:
        """The mode, the structure, and what lists, dicts and sets among the attributes hold."""
        held = tuple(contents(self.__dict__.get(name)) for name in self._watched)
        return self._structure, int(self.training), held

    def outgrown(self, signature: object) -> bool:
        """True for that of an older structure: mode and contents may come back, it does not."""
        return isinstance(signature, tuple) and signature[0] != self._structure

    def cells(self) -> Iterator[Cell]:
        """This cell and all below it, parents first, each once."""
        yield from (cell for _, cell in self._walk("", set()))

    def _walk(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Cell]]:
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name in self._watched:
            _refuse_hidden(self, name, self.__dict__.get(name))
        for name, value in self.__dict__.items():
            if isinstance(value, Cell):
                yield from value._walk(f"{prefix}{name}.", seen)

    def parameters_dict(self) -> dict[str, Parameter]:
        """Every parameter by its path from this cell, such as "conv1.weight", each once.

        The parameters take these paths as their names, which error messages and checkpoints use.
        """
        found: dict[str, Parameter] = {}
        seen: set[int] = set()
        for prefix, cell in self._walk("", set()):
            for name, value in cell.__dict__.items():
                if isinstance(value, Parameter) and id(value) not in seen:
                    seen.add(id(value))
                    value.name = prefix + name
                    found[value.name] = value
        return found

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
        """Name those that nobody has named yet, for the text of graphs."""
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
        freeze(self, patterns)
        return self

    def unfreeze(self, *patterns: str) -> Self:
        """Undo `freeze` for the parameters that match (without patterns, all); returns the cell.

        What never learnt, such as running statistics, stays as it is.
        """
        unfreeze(self, patterns)
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
        move(self, target)
        return self

    def register_forward_pre_hook(self, fn: Callable[..., Any]) -> Handle:
        """Call fn(cell, inputs) before construct; inputs: a tuple of the positional arguments.

        What it returns, if not None, takes their place: a tuple, or the one input. This and the
        other two: hooks run in the order of registration until `handle.remove()`. Where the cell
        is compiled they are traced with it, on values that are not known yet, and it is compiled
        anew when one comes or goes. Copies of a cell have none.
        """
        return hook(self, "forward pre-hook", fn)

    def register_forward_hook(self, fn: Callable[..., Any]) -> Handle:
        """Call fn(cell, inputs, output) after construct. What it returns, if not None, takes the
        output's place, and has its structure, shapes and dtypes."""
        return hook(self, "forward hook", fn)

    def register_backward_hook(self, fn: Callable[..., Any]) -> Handle:
        """Call fn(cell, grad_inputs, grad_output) when a gradient has passed through the cell.

        grad_inputs: one entry per positional argument, None where no gradient passes. What fn
        returns, if not None, takes their place: a tuple of the same shapes and dtypes.
        grad_output: has the output's structure.
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
        return summary(self, examples)

    def describe(self) -> str:
        """This layer in one line, without its children; errors and `repr` use it.

        By default with the plain values among its attributes, as in Scaled(factor=2.0).
        """
        if self._shown:
            return f"{type(self).__name__}({self._shown.format(self)})"
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
        """Copies and pickles have no hooks: their handles are with the one who registered them."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_entry", "_hooks")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def differing(cell: Cell, defaults: dict[str, Any], **shown: Any) -> str:
    """The cell in one line, with the attributes that do not have these defaults."""
    shown |= {k: getattr(cell, k) for k, v in defaults.items() if getattr(cell, k) != v}
    return f"{type(cell).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


_INSTEAD = {
    Parameter: "use .{0}.set_data(value), inside construct ops.assign(self.{0}, value), give a "
    "Parameter",
    Cell: "give a Cell",
}


def _check_replaced(owner: str, name: str, old: Any, value: Any) -> None:
    """Refuse what would take a parameter or a child cell out of the network unseen."""
    for kind, instead in _INSTEAD.items():
        if isinstance(old, kind) and value is not None and not isinstance(value, kind):
            raise AttributeRefusedError(
                f"{owner}.{name} is a {kind.__name__}, which {shown(value)} cannot replace: it "
                f"would neither be trained nor saved; {instead.format(name)}, or delete it first"
            )


def _refuse_hidden(owner: Cell, name: str, value: Any) -> None:
    """AttributeRefusedError for a container of cells or parameters, which nobody would find."""
    if holds(value, (Cell, Parameter)):
        raise AttributeRefusedError(
            f"{type(owner).__name__}.{name} is a {type(value).__name__} that holds cells or "
            "parameters, where they would not be found; use nn.CellList(...) or "
            "nn.Sequential(...), or one attribute for each"
        )
