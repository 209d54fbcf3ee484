"""Calls of operators of torch.library, for opcheck: the operator, its calls, and other ones of it.

In order: operators; calls; their tensors in other layouts, sizes and dtypes; programs that show a
finding. torch is never imported here: where there is an operator, it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import methodcaller
from typing import Any

from ...core.errors import ArityError
from ..calls import go_on
from ..report import Severity


class _Torch:
    """torch, which is imported wherever there is an operator of it to check."""

    def __getattr__(self, name: str) -> Any:
        if "torch" not in sys.modules:  # tools that look at modules ask for `__wrapped__`
            raise AttributeError(name)
        return getattr(sys.modules["torch"], name)


torch: Any = _Torch()


@dataclass(frozen=True)
class Operator:
    """One overload of an operator of torch.library. shown: how a program names it."""

    overload: Any
    shown: str
    home: str

    @property
    def name(self) -> str:
        """As "namespace::name"."""
        return str(self.overload._schema.name)

    @property
    def arguments(self) -> Sequence[Any]:
        """The arguments, as the schema declares them."""
        return tuple(self.overload._schema.arguments)

    def writes(self, i: int) -> bool:
        """True where the schema declares that it writes to argument i."""
        info = self.arguments[i].alias_info if i < len(self.arguments) else None
        return info is not None and bool(info.is_write)

    @property
    def pure(self) -> bool:
        """True where the schema declares no writes."""
        return not any(map(self.writes, range(len(self.arguments))))

    @property
    def random(self) -> bool:
        """True where a tag says that equal calls may differ."""
        return torch.Tag.nondeterministic_seeded in self.overload.tags

    def __call__(self, inputs: Sequence[Any]) -> Any:
        return self.overload(*inputs)


@dataclass(frozen=True)
class Call:
    """One call. what: how it differs from the one that was given, in words."""

    operator: Operator
    inputs: tuple[Any, ...]
    what: str = ""
    given: bool = True

    @property
    def severity(self) -> Severity:
        """Of what raises: an operator may well be for tensors of some ranks alone."""
        return "warning" if "0-d" in self.what else "fault"

    @property
    def tensors(self) -> list[int]:
        """The positions of tensors among the inputs."""
        return [i for i, x in enumerate(self.inputs) if isinstance(x, torch.Tensor)]

    @property
    def floats(self) -> list[int]:
        """The positions of tensors that have gradients."""
        return [i for i in self.tensors if self.inputs[i].is_floating_point()]

    def fresh(self) -> tuple[Any, ...]:
        """The inputs, with memory of their own and the same strides."""
        return tuple([copied(x) if isinstance(x, torch.Tensor) else x for x in self.inputs])

    def changed(self, change: Callable[[Any], Any], what: str, at: Sequence[int]) -> Call:
        """The call with other tensors at these positions."""
        inputs = [change(x) if i in at else x for i, x in enumerate(self.inputs)]
        return Call(self.operator, tuple(inputs), what, given=False)

    def runs(self) -> Any:
        """The outputs as a list, or None where it raises; TimeIsUpError when time is up."""
        go_on()
        try:
            with torch.no_grad():
                return outputs(self.operator(self.fresh()))
        except Exception:
            return None


def is_operator(value: object) -> bool:
    """True for an operator of torch.library: an overload, a packet of them, or what
    `torch.library.custom_op` returns."""
    loaded: Any = sys.modules.get("torch")
    if loaded is None or not hasattr(loaded, "_ops"):
        return False
    known = loaded._ops.OpOverload, loaded._ops.OpOverloadPacket
    return isinstance(value, known) or type(value).__name__ == "CustomOpDef"


def operator_of(value: Any) -> Operator:
    """The operator; of a packet its only overload. ArityError where it has several."""
    home = ""
    if type(value).__name__ == "CustomOpDef":
        home = str(getattr(value._init_fn, "__module__", ""))
        value = value._opoverload
    if isinstance(value, torch._ops.OpOverloadPacket):
        overloads = value.overloads()
        if len(overloads) != 1:
            raise ArityError(
                f"opcheck takes one overload; {value} has {', '.join(overloads)}; give one, as "
                f"{value}.{overloads[0]}"
            )
        value = getattr(value, overloads[0])
    return Operator(value, f"torch.ops.{value}", home)


def samples_of(operator: Operator, inputs: Any) -> list[tuple[Any, ...]]:
    """The calls that were given."""
    samples = inputs if isinstance(inputs, list) else [inputs]
    if not samples or not all(isinstance(one, tuple) for one in samples):
        raise ArityError(
            f"opcheck of {operator.name} takes inputs of its calls; got {inputs!r}; give "
            "inputs=(x, y) for one call, or a list of such tuples"
        )
    for one in samples:
        tensors = [x for x in one if isinstance(x, torch.Tensor)]
        if any(x.device.type != "cpu" or x.is_complex() for x in tensors):
            raise ArityError(f"opcheck of {operator.name} takes real tensors of the CPU")
        lists = [x for x in one if isinstance(x, (list, tuple))]
        if any(isinstance(x, torch.Tensor) for each in lists for x in each):
            raise ArityError(
                f"opcheck of {operator.name} takes tensors as arguments of their own; got a list "
                "of tensors; check an operator of two or three tensors that computes the same"
            )
    return [
        tuple([x.detach() if isinstance(x, torch.Tensor) else x for x in one]) for one in samples
    ]


# --- Tensors in other layouts, sizes and dtypes ---------------------------------------------------


def outputs(out: Any) -> list[Any]:
    """The tensors among what an operator returned."""
    leaves = out if isinstance(out, (tuple, list)) else (out,)
    flat = [y for x in leaves for y in (x if isinstance(x, (tuple, list)) else (x,))]
    return [x for x in flat if isinstance(x, torch.Tensor)]


def copied(x: Any) -> Any:
    """A tensor with memory of its own and the same strides and offset."""
    memory = torch.empty(x.untyped_storage().nbytes() // x.element_size(), dtype=x.dtype)
    whole = torch.as_strided(x, (memory.numel(),), (1,), 0)
    return torch.as_strided(memory.copy_(whole), x.shape, x.stride(), x.storage_offset())


def bits_equal(a: Any, b: Any) -> bool:
    """True for tensors of the same type and numbers; NaN is equal to NaN."""
    same = a.shape == b.shape and a.dtype == b.dtype
    return same and bool(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True))


def near(a: Any, b: Any, rtol: float | None = None) -> bool:
    """True for tensors equal to a few roundings of the largest number among them."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return bits_equal(a, b)
    eps = torch.finfo(a.dtype).eps if rtol is None else rtol
    a, b = a.double(), b.double()
    finite = torch.nan_to_num(b.abs(), nan=0.0, posinf=0.0, neginf=0.0)
    scale = float(finite.max()) if b.numel() else 0.0
    return bool(torch.allclose(a, b, rtol=256 * eps, atol=64 * eps * scale, equal_nan=True))


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.mT.contiguous().mT if x.ndim > 1 else x,
    "sliced": lambda x: _sliced(x) if x.ndim else x,
    "offset": lambda x: torch.cat([x.new_zeros(3), x.reshape(-1)])[3:].reshape(x.shape),
    "expanded": lambda x: _expanded(x, 0),
    "expanded along the last axis": lambda x: _expanded(x, -1),
}


def _sliced(x: Any) -> Any:
    wide = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1] + 1))
    wide[..., 1::2] = x
    return wide[..., 1::2]


def _expanded(x: Any, axis: int) -> Any:
    if not x.ndim or x.shape[axis] < 2 or not x.is_floating_point():
        return x
    return x.narrow(axis, 0, 1).contiguous().expand(x.shape)


def laid_out(call: Call) -> Iterator[Call]:
    """The call with its inputs in other layouts, together and one by one."""
    at = [i for i in call.tensors if not call.operator.writes(i)]
    for what, change in LAYOUTS.items():
        for chosen in [at] if len(at) < 2 else [at, *([i] for i in at)]:
            made = call.changed(change, f"with {_names(call, chosen)} {what}", chosen)
            if any(made.inputs[i] is not call.inputs[i] for i in chosen):
                yield made


def resized(call: Call) -> Iterator[Call]:
    """The call with other extents: each extent becomes another one wherever it stands."""
    shapes = [tuple(call.inputs[i].shape) for i in call.tensors]
    extents = sorted({n for shape in shapes for n in shape})
    maps = [("", {n: n + 3 for n in extents if n > 1}), ("", {n: 2 * n + 1 for n in extents if n})]
    maps += [(f" (extent {n} is 0)", {n: 0}) for n in extents if n]
    maps += [(f" (extent {n} is 1)", {n: 1}) for n in extents if n > 1]
    for what, sizes in maps:
        if sizes:
            made = call.changed(partial(_of_sizes, sizes=sizes), "", call.tensors)
            yield Call(made.operator, made.inputs, f"of {_shapes(made)}{what}", given=False)
    if shapes and shapes[0] and _by_element(call, shapes):
        yield call.changed(lambda x: x.reshape(-1)[:1].reshape(()), "of 0-d tensors", call.tensors)


def _by_element(call: Call, shapes: Sequence[Any]) -> bool:
    """True for an operator that seems to work element by element, and so on tensors of any rank."""
    outs = call.runs()
    return bool(outs) and len({*shapes, *(tuple(x.shape) for x in outs or ())}) == 1


def _of_sizes(x: Any, sizes: dict[int, int]) -> Any:
    shape = [sizes.get(n, n) for n in x.shape]
    flat, count = x.reshape(-1), prod(shape)
    if not flat.numel():
        return x.new_zeros(shape)
    return flat.repeat(count // flat.numel() + 1)[:count].reshape(shape)


def _shapes(call: Call) -> str:
    return " and ".join(str(tuple(call.inputs[i].shape)) for i in call.tensors)


def _names(call: Call, at: Sequence[int]) -> str:
    return ", ".join(name_at(call, i) for i in at)


def name_at(call: Call, i: int) -> str:
    arguments = call.operator.arguments
    return str(arguments[i].name) if i < len(arguments) else f"input {i}"


def shown_type(x: Any) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{tuple(x.shape)}"


def variants(call: Call) -> Iterator[Call]:
    """The call itself, and then in other layouts, sizes and dtypes."""
    yield call
    yield from laid_out(call)
    yield from resized(call)
    yield from retyped(call)


def retyped(call: Call) -> Iterator[Call]:
    """The call with its floats in other dtypes."""
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        if any(call.inputs[i].dtype != dtype for i in call.floats):
            what = f"of {str(dtype).removeprefix('torch.')}"
            yield call.changed(methodcaller("to", dtype), what, call.floats)


def put(call: Call, i: int, place: tuple[int, ...], value: float) -> Call:
    def change(x: Any) -> Any:
        x = copied(x)
        x[place] = value
        return x

    return call.changed(change, f"with {value} in {name_at(call, i)}", [i])


# --- Programs -------------------------------------------------------------------------------------


_LONG = 400


def called(call: Call) -> str:
    shapes = ", ".join(
        shown_type(x) if isinstance(x, torch.Tensor) else repr(x) for x in call.inputs
    )
    what = f" {call.what}" if call.what else ""
    return f"{call.operator.name}({shapes}){what}"


def program(name: str, call: Call) -> str:
    """The text of a program that runs one check on one call, as it was given."""
    operator = call.operator
    where = f"# from the module {operator.home}" if operator.home else "# as it was defined"
    lines = [
        "import torch", "from miniml.testing import opcheck", "",
        f"# define {operator.name} here, {where[2:]}",
    ]  # fmt: skip
    given = []
    for i, x in enumerate(call.inputs):
        if isinstance(x, torch.Tensor):
            lines.append(f"x{i} = {_literal(x)}")
            given.append(f"x{i}")
        else:
            given.append(repr(x))
    each = f"({', '.join(given)},)"
    lines.append(f"opcheck({operator.shown}, inputs={each}, checks=({name!r},))")
    return "\n".join(lines)


def _literal(x: Any) -> str:
    """An expression that gives the tensor; long ones are numbers of the same type and shape."""
    if x.numel() > _LONG:
        return f"torch.rand({tuple(x.shape)}).to({x.dtype})  # as it was given"
    text = repr(x.tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")
    made = f"torch.tensor({text}, dtype={x.dtype}).reshape({tuple(x.shape)})"
    plain = x.is_contiguous() and not x.storage_offset()
    return made if plain else f"{made}  # strides {tuple(x.stride())}"
