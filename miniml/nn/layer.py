"""Parts that layers share: checks of their inputs, and cells that are one function of `ops`.

Then the activations, each of which applies the function of `ops` named beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, NoReturn, dataclass_transform, get_args

import numpy as np

from .. import ops
from ..core.errors import NONE, ArityError, DTypeError, ShapeError, point_at
from ..core.options import choice, counts, flag, integer, number
from ..core.primitive import with_parameters
from ..core.scope import user_location
from ..core.tensor import Tensor
from ..graph.tracing import as_tensor
from ..ops.images import EXTENTS
from . import init
from .cell import Cell

__all__ = [
    "CELU", "ELU", "GELU", "HardSigmoid", "HardSwish", "HardTanh", "Identity", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid",
    "Softmax", "Softplus", "Softsign", "Tanh",
]  # fmt: skip

# --- Inputs ---------------------------------------------------------------------------------------


def shape_of(cell: Cell, x: Any) -> tuple[int, ...]:
    """The shape of a layer's input: a tensor, an array or nested lists."""
    if isinstance(x, Tensor):
        return x.shape
    if x is None:
        raise DTypeError(f"{cell.describe()} got None where it takes a tensor; {NONE}")
    if isinstance(x, (list, tuple)) and any(isinstance(part, Tensor) for part in x):
        raise ArityError(
            f"{cell.describe()} got a {type(x).__name__} of {len(x)} where it takes one tensor; "
            "pass them one by one, as in net(a, b) or step((a, b), labels), or put them together "
            "with ops.stack"
        )
    if isinstance(x, (Mapping, str, bytes)):
        keys = f" of {', '.join(map(repr, x))}" if isinstance(x, Mapping) else f" {x!r}"
        raise DTypeError(
            f"{cell.describe()} got a {type(x).__name__}{keys} where it takes one tensor; a Cell "
            "whose construct takes the tensors from it, as in self.body(batch['x']), does"
        )
    return np.shape(x)


def shape_of_images(cell: Cell, x: Any, channels: int | None, *ns: int) -> tuple[int, ...]:
    """The shape of x; ShapeError unless it is (N, channels) with n axes behind, for one of `ns`.

    channels: None for any number of them.
    """
    shape = shape_of(cell, x)
    if len(shape) - 2 not in ns or channels not in (None, shape[1]):
        behind = (f", {EXTENTS[n]}" if n else "" for n in ns)
        expected = (f"(N, {channels or 'C'}{axes})" for axes in behind)
        refuse_shape(cell, shape, " or ".join(expected))
    return shape


def on_one_device(cell: Cell, *inputs: Any) -> list[Any]:
    """The inputs, with arrays moved to the device of the first tensor; refused as by `shape_of`
    where one is no tensor."""
    others = [x for x in inputs if not isinstance(x, Tensor)]
    for x in others:
        shape_of(cell, x)
    if len(others) in (0, len(inputs)):
        return list(inputs)
    first = next(x for x in inputs if isinstance(x, Tensor))
    return [beside(first, x) if isinstance(x, np.ndarray) else x for x in inputs]


def beside(parameter: Tensor, value: Any) -> Tensor:
    """The value as a tensor; an array goes to the parameter's device."""
    return value if isinstance(value, Tensor) else Tensor(value, device=parameter.device)


def refuse_shape(cell: Cell, got: tuple[int, ...], expected: str) -> NoReturn:
    """Raise the ShapeError of a layer whose input does not fit, with the user's line."""
    error = ShapeError(f"{cell.describe()} got input of shape {got}; expected {expected}")
    point_at(error, user_location(type(cell).__name__))
    raise error


# --- Cells that are one function ------------------------------------------------------------------


_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
# By the annotation of an option.
CHECKS: dict[Any, Callable[[str, str, Any], Any]] = {
    float: number, int: integer, int | None: integer, bool: flag
}  # fmt: skip


@dataclass_transform()
class FunctionCell(Cell):
    """Base of cells that call one function: a subclass names it, as `of`, and annotates options.

    The constructor takes the options in this order, each a float, an int, a bool, one word of a
    Literal or what CHECKS has a check for, or None where this is the default; `function(*inputs)`
    calls the function with the inputs and the options, and so does a call of the cell.
    """

    _shown = ()
    _options: ClassVar[dict[str, inspect.Parameter]] = {}
    _of: ClassVar[Callable[..., Any]]
    _takes: ClassVar[int]  # inputs

    def __init_subclass__(cls, of: Callable[..., Any] | None = None) -> None:
        super().__init_subclass__()
        if of is not None:
            cls._of = staticmethod(of)
        own = inspect.get_annotations(cls, eval_str=True)
        cls._options = cls._options | {
            name: inspect.Parameter(name, _KIND, default=vars(cls)[name], annotation=kind)
            for name, kind in own.items()
            if not name.startswith("_")
        }
        if of is not None and cls.construct.__code__ is FunctionCell.construct.__code__:
            taken = inspect.signature(of).parameters.values()
            inputs = [p for p in taken if p.name not in cls._options]
            cls._takes = len(inputs)
            cls.construct = with_parameters(FunctionCell.construct, inputs)  # type: ignore[method-assign]
        if cls._options:
            set_up = with_parameters(_set_up, list(cls._options.values()))
            cls.__init__ = set_up  # type: ignore[method-assign]

    def construct(self, *inputs: Any, **named: Any) -> Any:
        if named or len(inputs) != self._takes:
            try:
                inputs = inspect.signature(self.construct).bind(*inputs, **named).args
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}.construct() {error}") from None
        return self.function(*inputs)

    def function(self, *inputs: Any) -> Any:
        """The result of the function for these inputs, with this cell's options."""
        given = on_one_device(self, *inputs)
        if not self._options:
            return self._of(*given)
        return self._of(*given, **{name: getattr(self, name) for name in self._options})


def _set_up(self: FunctionCell, *args: Any, **named: Any) -> None:
    """Set the options of the cell, checked; ArityError for arguments that are no options."""
    layer, options = type(self).__name__, self._options
    try:
        given = inspect.Signature(list(options.values())).bind(*args, **named)
    except TypeError as error:
        raise ArityError(
            f"{layer} takes {', '.join(map(str, options.values()))}: {error}; inputs go to the "
            f"cell that it makes, as in {layer}()(x)"
        ) from None
    given.apply_defaults()
    for name, value in given.arguments.items():
        kind = options[name].annotation
        if value is not None or options[name].default is not None:
            check = CHECKS.get(kind) or partial(choice, known=get_args(kind))
            value = check(layer, name, value)
        setattr(self, name, value)


# --- Activations ----------------------------------------------------------------------------------


class Identity(Cell):
    """x itself, of any shape: a layer that does nothing."""

    def construct(self, x: Any) -> Any:
        return as_tensor(x)


class Activation(FunctionCell):
    """Base of layers that are a function of one tensor."""

    def construct(self, x: Any) -> Any:
        return self.function(x)


class ReLU(Activation, of=ops.relu):
    """max(x, 0)."""


class ReLU6(Activation, of=ops.relu6):
    """min(max(x, 0), 6)."""


class LeakyReLU(Activation, of=ops.leaky_relu):
    """x where x > 0, slope * x elsewhere."""

    slope: float = 0.01


class ELU(Activation, of=ops.elu):
    """x where x > 0, alpha * (exp(x) - 1) elsewhere."""

    alpha: float = 1.0


class CELU(Activation, of=ops.celu):
    """max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))."""

    alpha: float = 1.0


class SELU(Activation, of=ops.selu):
    """s * elu(x, a), of which mean 0 and variance 1 are a fixed point."""


class GELU(Activation, of=ops.gelu):
    """x Phi(x), where Phi is the standard normal distribution function: `ops.gelu`.

    approximate: "none", or "tanh" for x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    Source: Hendrycks, Gimpel 2016, "Gaussian error linear units".
    """

    approximate: Literal["none", "tanh"] = "none"


class SiLU(Activation, of=ops.silu):
    """x * sigmoid(x), also called swish."""


class Mish(Activation, of=ops.mish):
    """x * tanh(log(1 + exp(x)))."""


class Sigmoid(Activation, of=ops.sigmoid):
    """1 / (1 + exp(-x))."""


class LogSigmoid(Activation, of=ops.log_sigmoid):
    """-log(1 + exp(-x))."""


class HardSigmoid(Activation, of=ops.hard_sigmoid):
    """min(max(slope * x + offset, 0), 1)."""

    slope: float = 1 / 6
    offset: float = 0.5


class HardSwish(Activation, of=ops.hard_swish):
    """x * hard_sigmoid(x)."""


class Tanh(Activation, of=ops.tanh):
    """The hyperbolic tangent."""


class HardTanh(Activation, of=ops.hard_tanh):
    """x kept within [min, max]."""

    min: float = -1.0
    max: float = 1.0


class Softplus(Activation, of=ops.softplus):
    """log(1 + exp(x))."""


class Softsign(Activation, of=ops.softsign):
    """x / (1 + |x|)."""


class Softmax(Activation, of=ops.softmax):
    """exp(x) / sum(exp(x)) along `axis`."""

    axis: int = -1


class LogSoftmax(Activation, of=ops.log_softmax):
    """x - log(sum(exp(x))) along `axis`."""

    axis: int = -1


class PReLU(Cell):
    """x where x > 0, weight * x elsewhere, with a learnt weight of shape (num_parameters,).

    One weight serves all; or there is one for each channel of x (N, num_parameters, ...). They
    start with `slope`. Source: He, Zhang, Ren, Sun 2015, "Delving deep into rectifiers".
    """

    _shown = ()

    def __init__(self, num_parameters: int = 1, slope: float = 0.25):
        (num_parameters,) = counts("PReLU", num_parameters=num_parameters)
        self.num_parameters = num_parameters
        self.weight = init.constant((num_parameters,), number("PReLU", "slope", slope))

    def construct(self, x: Any) -> Any:
        shape = shape_of(self, x)
        x = beside(self.weight, x)
        if self.num_parameters == 1:
            return ops.prelu(x, ops.reshape(self.weight, ()))
        if len(shape) < 2 or shape[1] != self.num_parameters:
            refuse_shape(self, shape, f"(N, {self.num_parameters}, ...)")
        return ops.prelu(x, ops.reshape(self.weight, (-1, *(1,) * (len(shape) - 2))))
