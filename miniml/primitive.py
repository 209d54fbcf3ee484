"""Primitive: an operation as a frozen value, made of its name and its attributes."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, dataclass_transform
from weakref import WeakValueDictionary

from . import attributes
from .attributes import Field
from .backends.registry import OpSpec, register_spec
from .errors import (
    AttributeRefusedError,
    DeclarationError,
    DuplicateError,
    ImmutableError,
)
from .signatures import (
    attribute_parameters,
    const_positions,
    fill_in,
    in_order,
    input_parameters,
    like_position,
    promoted_positions,
    with_parameters,
)
from .trace import current_trace

if TYPE_CHECKING:
    from .tensor import Tensor

primitives: dict[str, type[Primitive]] = {}
# Keeps what was made of plain values for the next call with the same ones.
_recent: deque[Primitive] = deque(maxlen=256)
# Further checks of a class when it is defined; each raises DeclarationError.
definition_checks: list[Callable[[type[Primitive]], None]] = []
Promote = bool | Literal["float"] | tuple[str, ...]
_UNRECORDED = (
    "{}.__init__ must call super().__init__(...) or carry @prim_attr_register, so that the "
    "attributes are recorded"
)


class _Constructor:
    """The signature of a class of primitives, for `help` and `inspect.signature`: its
    attributes."""

    def __get__(self, primitive: object, kind: type[Primitive]) -> inspect.Signature:
        if primitive is not None:  # an instance is called with its inputs
            raise AttributeError("__signature__")
        if kind.__init__ is not Primitive.__init__:
            taken = inspect.signature(kind.__init__)
            return taken.replace(parameters=list(taken.parameters.values())[1:])
        return inspect.Signature(attribute_parameters(kind._fields))


@dataclass_transform(frozen_default=True)
class Primitive:
    """Base of all operations. A subclass says what an operation is; others say how it runs.

    Annotated fields are its attributes: `==`, `hash`, `repr`, keys of caches and the keyword
    arguments of its kernels come from them. `infer_shape(*shapes)` and `infer_dtype(*dtypes)` give
    the outputs' shapes and dtypes from the inputs', one dtype standing for all outputs; optional
    `infer_value(*values)` gives the result itself where it is known without a kernel, or None.
    `miniml.ops.rules` has such rules by name. Without infer_dtype the outputs have the dtype of
    the input `like`, else of the first tensor among those that are promoted, or among all.
    `__infer__(*dictionaries)`, in place of all three, gets and returns {"shape": ..., "dtype": ...,
    "value": ...}, with value None for what is not constant.

    Reserved class variables, not attributes:
    name: the global name, by default the class name. inputs: names of the inputs, or "*xs"; by
    default the parameters of infer_shape. outputs: names of the outputs, or "*parts" for a number
    that depends on the instance. like: the input whose shape and dtype the outputs have where no
    rule gives them. const_inputs: inputs that must be known when the call is made. effect: "pure",
    or "state" to keep program order. promote: True casts inputs to their common dtype before
    inference, "float" also casts integers to a float, a tuple of names casts only those inputs to
    a dtype common among themselves. commutative: the order of the inputs does not matter.
    dynamic_outputs: the outputs' shapes depend on values, so the primitive runs only eagerly.
    differentiable: False means that no gradient passes, by definition.

    Calling one gives a Tensor, or a tuple of them where there are several outputs; to a type
    checker this too is a Tensor, which unpacks into Tensors. Inputs may be given by name.
    """

    name: ClassVar[str] = "Primitive"
    inputs: ClassVar[tuple[str, ...] | str] = ()
    outputs: ClassVar[tuple[str, ...] | str] = ("out",)
    const_inputs: ClassVar[tuple[str, ...]] = ()
    like: ClassVar[str] = ""
    effect: ClassVar[Literal["pure", "state"]] = "pure"
    promote: ClassVar[Promote] = False
    commutative: ClassVar[bool] = False
    dynamic_outputs: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True

    __signature__ = _Constructor()
    if TYPE_CHECKING:
        _hash: int
        _key: tuple[object, ...]
    _fields: ClassVar[tuple[Field, ...]] = ()
    _made: ClassVar[WeakValueDictionary[object, Primitive]]  # keyed by the arguments of the class
    _inputs: ClassVar[tuple[str, ...] | None] = None
    _const: ClassVar[tuple[tuple[int, str], ...]] = ()
    _promoted: ClassVar[tuple[int, ...] | None] = None
    _like: ClassVar[int | None] = None
    _single: ClassVar[bool] = True
    _classic: ClassVar[bool] = False
    _checks: ClassVar[bool] = False
    _infers_value: ClassVar[bool] = False
    _by_dictionary: ClassVar[bool] = False
    defined_at: ClassVar[str] = ""

    def __init_subclass__(cls, abstract: bool = False) -> None:
        super().__init_subclass__()
        cls._fields, cls._made = attributes.fields_of(cls), WeakValueDictionary()
        for field in cls._fields:  # defaults live in the fields; instances hold the values
            if field.name in cls.__dict__:
                delattr(cls, field.name)
        if abstract:
            return
        frame = sys._getframe(1)
        cls.defined_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if "name" not in cls.__dict__:
            cls.name = cls.__name__
        inputs = input_parameters(cls)
        several = any(p.kind is p.VAR_POSITIONAL for p in inputs)
        cls._inputs = None if several else tuple(p.name for p in inputs)
        if getattr(cls.__call__, "__code__", None) is Primitive.__call__.__code__:
            cls.__call__ = with_parameters(Primitive.__call__, inputs)  # type: ignore[method-assign]
        cls._const = const_positions(cls)
        cls._promoted = promoted_positions(cls)
        cls._like = like_position(cls, inputs)
        cls._single = isinstance(cls.outputs, tuple) and len(cls.outputs) == 1
        cls._classic = getattr(cls.__init__, "_miniml_classic", False)
        _check_init(cls)
        fill_in(cls)
        cls._by_dictionary = hasattr(cls, "__infer__")
        cls._infers_value = hasattr(cls, "infer_value") or cls._by_dictionary
        _claim_name(cls)
        for check in definition_checks:
            check(cls)
        register_spec(spec_of(cls), redefined=cls.name in primitives)
        primitives[cls.name] = cls

    def __init__(self, *args: Any, **kwargs: Any):
        try:
            given = None if kwargs else attributes.key(args)
            made = self._made.get(given)
        except TypeError:  # such as a list, which is frozen to a tuple
            given = made = None
        if made is not None:
            values = made.attributes
            self.__dict__.update(values, attributes=values, _key=made._key, _hash=made._hash)
            return
        self._finish(attributes.bind_fields(type(self), self._fields, args, kwargs))
        if given is not None and all(map(attributes.is_its_key, args)):
            self._made[given] = self
            _recent.append(self)

    def _finish(self, values: dict[str, Any]) -> None:
        state = self.__dict__
        state.update(values)
        state["attributes"] = values
        items = tuple([(k, attributes.key(v)) for k, v in values.items()])
        state["_key"] = (type(self), items)
        state["_hash"] = hash(state["_key"])

    def __call__(self, *args: Any, **inputs: Any) -> Tensor:
        if inputs:
            args = in_order(self.name, self, args, inputs)
        outs = current_trace().bind(self, args)
        return outs[0] if self._single else outs  # type: ignore[return-value]  # as `unwrap` does

    def unwrap(self, outs: tuple[Any, ...]) -> Any:
        """The tuple of outputs as the caller sees it: bare when the primitive has one output."""
        return outs[0] if self._single else outs

    def add_prim_attr(self, name: str, value: Any) -> Primitive:
        """Record one more attribute; only inside a classic `__init__`."""
        self.__setattr__(name, value)
        self.__dict__["_extra"][name] = self.__dict__[name]
        return self

    def init_prim_io_names(self, inputs: list[str], outputs: list[str]) -> None:
        """Name inputs and outputs; they must agree with infer_shape and with `outputs`.

        Raises DeclarationError when they do not.
        """
        named = self._inputs
        if named is not None and tuple(inputs) != named:
            raise DeclarationError(
                f"{self.name} names its inputs {', '.join(inputs)}; infer_shape names them "
                f"{', '.join(named)}; make them agree"
            )
        if isinstance(self.outputs, tuple) and len(outputs) != len(self.outputs):
            raise DeclarationError(
                f"{self.name} names {len(outputs)} outputs ({', '.join(outputs)}); it has "
                f"{len(self.outputs)}; say outputs = {tuple(outputs)!r} in the class"
            )

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """Names of all inputs, const ones included; None for a variable number."""
        return self._inputs

    def __setattr__(self, name: str, value: Any) -> None:
        if "_key" in self.__dict__:
            raise ImmutableError(
                f"{self.name} is frozen, so {name} cannot be set; make another {self.name}(...)"
            )
        self.__dict__[name] = attributes.freeze(value, type(self).__name__, name)

    def __delattr__(self, name: str) -> None:
        raise ImmutableError(f"{self.name} is frozen, so {name} cannot be deleted")

    def __getattr__(self, name: str) -> Any:
        if name in ("_key", "_hash", "attributes"):
            raise AttributeRefusedError(_UNRECORDED.format(type(self).__name__))
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Primitive) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={attributes.show(v)}" for k, v in self.attributes.items())
        return f"{self.name}({shown})"

    def with_attributes(self, values: dict[str, Any]) -> Primitive:
        """The primitive with exactly these attributes in place of its own, all of which are
        given."""
        return rebuild(type(self), values)

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.attributes)

    def __deepcopy__(self, memo: dict[int, Any]) -> Primitive:
        return self


def rebuild(cls: type[Primitive], values: dict[str, Any]) -> Primitive:
    """The primitive of a class with exactly these attributes, without running its `__init__`."""
    made = cls.__new__(cls)
    made._finish(dict(values))
    return made


def _check_init(cls: type[Primitive]) -> None:
    """DeclarationError for an `__init__` that does not call super's, so that nothing is
    recorded."""
    code = getattr(cls.__dict__.get("__init__"), "__code__", None)
    if cls._classic or code is None or code.co_freevars not in ((), ("__class__",)):
        return
    if "__init__" not in code.co_names:
        raise DeclarationError(
            f"{_UNRECORDED.format(cls.__name__)}; annotated fields, as alpha: float = 1.0, "
            "need no __init__"
        )


def _claim_name(cls: type[Primitive]) -> None:
    other = primitives.get(cls.name)
    if other is None or _identity(other) == _identity(cls):
        return
    raise DuplicateError(
        f"primitive name {cls.name!r} is taken by {other.__module__}.{other.__qualname__}, defined "
        f"at {other.defined_at}; rename the class or set name = '...' in it"
    )


def _identity(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def spec_of(cls: type[Primitive], recorded: tuple[str, ...] | None = None) -> OpSpec:
    """What kernels are told of a class; recorded: its attributes, if an instance was needed to know
    them."""
    inputs = cls._inputs
    tensors = None if inputs is None else tuple(n for n in inputs if n not in cls.const_inputs)
    outputs = cls.outputs if isinstance(cls.outputs, tuple) else None
    if recorded is None and not getattr(cls.__init__, "_miniml_classic", False):
        recorded = tuple(f.name for f in cls._fields)
    return OpSpec(cls.name, tensors, tuple(cls.const_inputs), outputs, recorded)
