"""PyTorch: primitives as operators of torch.library, networks as modules: `to_torch`.

In order: `to_torch`; tensors in and out; calls that torch.compile does not look into; one operator
of torch.library; primitives, functions and networks as callables of torch tensors.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import chain, count
from operator import attrgetter, methodcaller
from typing import Any, get_args, get_origin
from weakref import WeakValueDictionary

import numpy as np

from ..backends.selection import get_device
from ..core.abstract import Abstract, bfloat16, is_float
from ..core.errors import ArityError, DTypeError, MinimlError
from ..core.hints import hide_frames
from ..core.infer import constant, infer, interleave
from ..core.parameter import Parameter, default_generator
from ..core.primitive import EMPTY, Primitive, key, resolved
from ..core.scope import own_files
from ..core.settings import context, current
from ..core.tensor import Tensor, around
from ..grad.reverse import name_of
from ..nn.cell import Cell
from . import dlpack
from .foreign import memory_of, package
from .operator import Operator, Traced, casts, known, of_primitive, owned, refuse_parameters

torch = package("torch", "miniml.interop with PyTorch")
_fake_of = torch.empty
_Function: Any = torch.autograd.Function
_Module: Any = torch.nn.Module
_interpreter = torch._C._functorch.peek_interpreter_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_forward_ad = torch.autograd.forward_ad
_compiling, _grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled
_PLAIN = torch.Tensor, torch.nn.Parameter
_NAMESPACE = "miniml"


def to_torch(obj: Any, name: str | None = None) -> Any:
    """A primitive, a function of tensors or a network, as PyTorch calls it.

    A Primitive, or its class, becomes an operator of torch.library, `torch.ops.miniml.NAME`: its
    schema comes from its inputs and attributes, its fake from its rules, its gradient from its
    bprop, which is such an operator again (so gradients of any order), vmap from its batch fact or
    rule. It runs eagerly, under `torch.compile(fullgraph=True)`, `torch.func` in reverse mode, and
    `torch.export`. Of an instance the result takes tensors, and const inputs where the primitive
    has them; of a class also its attributes, by keyword.

    A function takes and gives trees of tensors; it is traced for each structure and types of its
    arguments, and its gradient computes it again. A Cell becomes a torch.nn.Module whose parameters
    are the memory of the Cell's, under the same names in `state_dict`: a step of an optimizer on
    either side is seen by the other. Running statistics and the random stream are buffers.

    name: of the operator, by default that of the primitive or function. Tensors of the CPU are not
    copied, in any strides and dtype that both know, nor are those of the GPU that cupy uses, in
    row-major order; others are refused with DTypeError, as are arguments that are not tensors. A
    Cell takes tensors of the CPU. GraphError: a function that reads parameters or has effects.
    MinimlError: torch is not installed.

    >>> import torch
    >>> from miniml import ops
    >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> to_torch(ops.Exp())(x).sum().backward()
    >>> x.grad
    tensor([1.0000, 2.7183])
    """
    kind = known("to_torch", obj)
    if kind == "cell":
        return CellModule(obj, name)
    if kind == "function":
        return TorchFunction(obj, name)
    return TorchPrimitive(obj, name)


# --- Tensors in and out ---------------------------------------------------------------------------


def tensor_in(x: Any) -> Tensor:
    """The Tensor around the memory of a torch tensor; DTypeError for one that has none here."""
    try:  # as `array_in` does, without the call
        return around(x.detach().numpy() if x.requires_grad else x.numpy())
    except (TypeError, RuntimeError):
        return around(_by_dlpack(x.detach()))


def array_in(x: Any) -> Any:
    """The array on the memory of a torch tensor, NumPy's on the CPU; DTypeError for one that has
    none here."""
    if x.requires_grad:
        x = x.detach()
    try:
        return x.numpy()  # what DLPack would give, in a twentieth of the time
    except (TypeError, RuntimeError):
        return _by_dlpack(x)


def memory_in(x: Any) -> Any:
    """`array_in` where the array is the tensor's own memory; ValueRefusedError for a tensor of a
    GPU that kernels cannot read as it is."""
    return _by_dlpack(x.detach(), copy=False) if x.is_cuda else array_in(x)


def _by_dlpack(x: Any, copy: bool | None = None) -> Any:
    """The array of a tensor that torch does not give to NumPy as it is: on a GPU, in bfloat16,
    conjugated or negated by a flag."""
    if x.layout != torch.strided:
        raise DTypeError(
            f"miniml got a torch tensor of layout {x.layout}; it takes dense tensors of the CPU "
            "and of a GPU: give x.to_dense()"
        )
    if not (x.is_cpu or x.is_cuda):
        raise DTypeError(
            f"miniml got a torch tensor on {x.device}; it takes dense tensors of the CPU "
            "and of a GPU: give x.cpu()"
        )
    if x.dtype not in _BACK and not x.is_complex():
        raise DTypeError(f"miniml does not compute with {x.dtype}; cast it")
    return dlpack.imported(x.resolve_conj().resolve_neg(), copy)


def tensor_out(array: Any) -> Any:
    """The torch tensor around the memory of an array of the CPU or of a GPU, which may be written
    to."""
    try:
        return torch.from_numpy(array)
    except TypeError:
        return torch.from_dlpack(dlpack.Lender(array))


DTYPES: dict[Any, Any] = {
    d: tensor_out(np.zeros(0, d)).dtype
    for d in (*map(np.dtype, "?bhilBHILefd"), bfloat16)
}  # fmt: skip
_BACK = {theirs: ours for ours, theirs in DTYPES.items()}


def type_of(x: Any, shape: tuple[int, ...] | None = None) -> Abstract:
    """The type of a torch tensor, real or fake, or one of another shape with its dtype; DTypeError
    for a dtype that miniml lacks."""
    dtype = _BACK.get(x.dtype)
    if dtype is None:
        raise DTypeError(f"miniml does not compute with {x.dtype}; cast it")
    return Abstract(tuple([int(n) for n in x.shape]) if shape is None else shape, dtype)


# --- Calls that torch.compile does not look into --------------------------------------------------


class Opaque:
    """A function of trees whose calls torch.compile takes as they are: `_called` then gets fake
    tensors, and the operators that it calls are in one graph with what is around them."""

    def __init__(self) -> None:
        self.__number = next(_numbers)
        _opaque[self.__number] = self

    def _called(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    def opaquely(self, *args: Any, **named: Any) -> Any:
        """_called(*args, **named), eagerly or while torch.compile traces."""
        if not _compiling():
            return self._called(*args, **named)
        _mark()
        return _call_opaque(self.__number, *args, **named)


_numbers = count()
_opaque: WeakValueDictionary[int, Opaque] = WeakValueDictionary()


def _call_opaque(number: int, *args: Any, **named: Any) -> Any:
    return _opaque[number]._called(*args, **named)


def _mark() -> bool:
    """Tell torch.compile, which is at work and so imported, of `_call_opaque`."""
    global _call_opaque
    if not hasattr(_call_opaque, "__wrapped__"):
        _call_opaque = torch._dynamo.nonstrict_trace(_call_opaque)
    return True


# They are run while tracing.
_mark._dynamo_marked_constant = casts._dynamo_marked_constant = True  # type: ignore[attr-defined]


# --- One operator of torch.library ----------------------------------------------------------------


_library: Any = torch.library.Library(_NAMESPACE, "FRAGMENT")
_names: set[str] = set()


def _free_name(name: str) -> str:
    """A name in the library that no operator has yet."""
    plain = re.sub(r"\W", "_", name)
    plain = plain if re.match(r"[A-Za-z]", plain) else f"op_{plain}"
    numbered = (f"{plain}_{i}" for i in count(2))
    found = next(n for n in chain((plain,), numbered) if n not in _names)
    _names.add(found)
    return found


class Library:
    """One operator of torch.library: of one Operator, or of all that a class's attributes make.

    operator_of(**attributes): the Operator of a call. example: one of them, which says what all
    have in common. attributes: the keywords of its schema, as text.
    """

    def __init__(
        self,
        name: str,
        example: Operator,
        operator_of: Callable[..., Operator],
        attributes: str = "",
    ):
        self.example, self.operator_of, self.attributes = example, operator_of, attributes
        self.name = _free_name(name)
        self.inputs, self.count = len(example.inputs), example.count
        self._mapped: dict[tuple[bool, ...], Library] = {}
        taken = [n if not keyword.iskeyword(n) else f"{n}_" for n in example.inputs]
        tensors = ", ".join(f"Tensor {n}" for n in taken)
        given = ", *, ".join(filter(None, (tensors, attributes)))
        given = given if tensors or not attributes else f"*, {attributes}"
        results = ", ".join(["Tensor"] * self.count)
        results = results if self.count == 1 else f"({results})"
        _library.define(f"{self.name}({given}) -> {results}")
        full = f"{_NAMESPACE}::{self.name}"
        for home in ("CPU", "CUDA"):
            _library.impl(self.name, self._compute, home)
        torch.library.register_fake(full, self._fake, lib=_library)
        torch.library.register_autograd(
            full, self._backward, setup_context=self._keep, lib=_library
        )
        torch.library.register_vmap(full, self._vmap, lib=_library)
        self.overload: Any = getattr(getattr(torch.ops, _NAMESPACE), self.name).default

    def call(self, operator: Operator, attributes: dict[str, Any], tensors: Sequence[Any]) -> Any:
        """The operator on these tensors: at once where nobody but autograd looks on, else by way of
        torch's dispatcher, which takes some microseconds more."""
        recorded = False
        for x in tensors:
            if type(x) not in _PLAIN or not x.is_cpu:
                return self._dispatched(attributes, tensors)
            recorded = recorded or x.requires_grad
        if _interpreter() is not None and not _dispatch_modes():
            return _Transformed.apply(self, operator, attributes, *tensors)
        if _dispatch_modes() or _function_modes() or _forward_ad._current_level >= 0:
            return self._dispatched(attributes, tensors)
        if len(tensors) != self.inputs:
            raise _arity(self.name, self.example.inputs, tensors)
        if recorded and _grad_enabled():
            return _record((self, operator, attributes), *tensors)
        return computed(operator, tensors)

    def _dispatched(self, attributes: dict[str, Any], tensors: Sequence[Any]) -> Any:
        if len(tensors) != self.inputs:
            raise _arity(self.name, self.example.inputs, tensors)
        for x in tensors:
            if not isinstance(x, torch.Tensor):
                raise DTypeError(
                    f"{self.name} got a {type(x).__name__}; it takes torch tensors, as "
                    "torch.as_tensor(x) makes them"
                )
        return self.overload(*tensors, **attributes)

    def _compute(self, *tensors: Any, **attributes: Any) -> Any:
        there = any(x.is_cuda for x in tensors)
        return (computed_on_gpu if there else computed)(self.operator_of(**attributes), tensors)

    def _fake(self, *tensors: Any, **attributes: Any) -> Any:
        operator = self.operator_of(**attributes)
        if operator.likes is not None:  # whatever the extents, which need not be known
            outs = [
                x.new_empty(x.shape) if x.dtype.is_floating_point else x.new_empty((0,), dtype=_F32)
                for x in map(tensors.__getitem__, operator.likes)
            ]
        else:
            shapes: list[Any]
            if operator.broadcasts:  # the same; the dtypes do not depend on extents
                types = operator.types(tuple([type_of(x, (1,) * x.dim()) for x in tensors]))
                shapes = [torch.broadcast_shapes(*[x.shape for x in tensors])]
            else:
                types = operator.types(tuple(map(type_of, tensors)))
                shapes = [t.shape for t in types]
            there = [x.device for x in tensors if not x.is_cpu]
            outs = [
                _fake_of(shape, dtype=DTYPES[t.dtype], device=there[0] if there else "cpu")
                for shape, t in zip(shapes, types, strict=True)
            ]
        return outs[0] if self.count == 1 else tuple(outs)

    @cached_property
    def pulled(self) -> Library:
        """The operator of the pull-back."""
        return self._derived("bprop", attrgetter("pulled"))

    @cached_property
    def pushed(self) -> Library:
        """The operator of the tangents of the outputs."""
        return self._derived("jvp", attrgetter("pushed"))

    def _derived(self, what: str, of: Callable[[Operator], Operator]) -> Library:
        """The operator that is made of this one in some way."""
        name, example = f"{self.name}_{what}", of(self.example)
        return Library(name, example, lambda **at: of(self.operator_of(**at)), self.attributes)

    def _keep(self, ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any = None) -> None:
        outs = (output,) if self.count == 1 else tuple(output)
        given = keyword_only_inputs or {}
        ctx.call = self, self.operator_of(**given), given
        _save(ctx, self, inputs, outs)

    def _backward(self, ctx: Any, *douts: Any) -> Any:
        return _gradients(ctx, douts)

    def _vmap(self, info: Any, dims: Sequence[int | None], *tensors: Any, **attributes: Any) -> Any:
        inner, front = self.mapped(dims, tensors)
        outs = inner.overload(*front, **attributes)
        return outs, 0 if self.count == 1 else (0,) * self.count

    def mapped(
        self, dims: Sequence[int | None], tensors: Sequence[Any]
    ) -> tuple[Library, list[Any]]:
        """The operator for all examples, and its inputs with their axis in front."""
        flags = tuple([d is not None for d in dims])
        inner = self._mapped.get(flags)
        if inner is None:
            what = f"vmap{''.join(map(str, map(int, flags)))}"
            inner = self._mapped[flags] = self._derived(what, methodcaller("mapped", flags))
        return inner, [
            x if d is None else x.movedim(d, 0) for x, d in zip(tensors, dims, strict=True)
        ]


_F32 = torch.float32


def computed(operator: Operator, tensors: Sequence[Any]) -> Any:
    """The outputs of an operator for tensors of the CPU, or of a GPU, on which they then are."""
    try:
        arrays = owned(list(operator.run(*map(tensor_in, tensors))))
    except Exception as error:
        hide_frames(error)
        raise
    if len(arrays) == 1:
        return tensor_out(arrays[0])  # the common case
    return tuple(map(tensor_out, arrays))


def computed_on_gpu(operator: Operator, tensors: Sequence[Any]) -> Any:
    """`computed` on torch's current stream, in whose order torch and cupy then reuse memory."""
    device: Any = get_device("cuda")
    with device.following(torch.cuda.current_stream().cuda_stream):
        return computed(operator, tensors)


class _Recorded(_Function):  # type: ignore[misc]
    """A call that autograd sees and nothing else of torch does. call: the Library, the Operator and
    the attributes, in one argument, as torch takes time for each."""

    @staticmethod
    def forward(ctx: Any, call: tuple[Library, Operator, Any], *xs: Any) -> Any:
        found = computed(call[1], xs)
        ctx.call = call
        _save(ctx, call[0], xs, (found,) if call[0].count == 1 else found)
        return found

    @staticmethod
    def backward(ctx: Any, *douts: Any) -> Any:
        return (None, *_gradients(ctx, douts))


# Past the look for transforms, of which there are none here: a quarter of the time of a call.
_record = super(_Function, _Recorded).apply


class _Transformed(_Function):  # type: ignore[misc]
    """A call inside a transform of torch.func, which looks for rules here, not in the library."""

    @staticmethod
    def forward(library: Library, operator: Operator, attributes: Any, *xs: Any) -> Any:
        return library.call(operator, attributes, xs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        library, _, _, *xs = inputs
        ctx.call = inputs[:3]
        _save(ctx, library, xs, (output,) if library.count == 1 else output)
        ctx.save_for_forward(*xs)

    @staticmethod
    def backward(ctx: Any, *douts: Any) -> Any:
        return (None, None, None, *_gradients(ctx, douts))

    @staticmethod
    def vmap(
        info: Any, dims: Any, library: Library, operator: Operator, attributes: Any, *xs: Any
    ) -> Any:
        inner, front = library.mapped(dims[3:], xs)
        flags = tuple([d is not None for d in dims[3:]])
        outs = _Transformed.apply(inner, operator.mapped(flags), attributes, *front)
        return outs, 0 if library.count == 1 else (0,) * library.count

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        library, operator, attributes = ctx.call
        xs, pushed = ctx.saved_tensors[: len(tangents) - 3], library.pushed
        given = [torch.zeros_like(x) if t is None else t for x, t in zip(xs, tangents[3:])]
        return pushed.call(operator.pushed, attributes, (*xs, *given))


def _save(ctx: Any, library: Library, xs: Any, outs: tuple[Any, ...]) -> None:
    """Keep what the pull-back takes."""
    ctx.save_for_backward(*xs, *outs)
    follows = library.example.differentiable
    for out in outs:
        if not (follows and out.is_floating_point()):
            fixed = [o for o in outs if not (follows and o.is_floating_point())]
            ctx.mark_non_differentiable(*fixed)
            return


def _gradients(ctx: Any, douts: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients of the inputs of a call, None for those that are not floats."""
    saved, (library, operator, attributes) = ctx.saved_tensors, ctx.call
    count = library.count
    xs, outs = saved[:-count], saved[-count:]
    given = [torch.zeros_like(o) if d is None else d for o, d in zip(outs, douts, strict=True)]
    pulled = library.pulled
    found = pulled.call(operator.pulled, attributes, (*xs, *outs, *given))
    each = (found,) if pulled.count == 1 else found
    return tuple([g if x.dtype.is_floating_point else None for g, x in zip(each, xs, strict=True)])


def _arity(name: str, inputs: Sequence[str], given: Sequence[Any]) -> ArityError:
    return ArityError(f"{name} takes {len(inputs)} tensors ({', '.join(inputs)}); got {len(given)}")


# --- Primitives -----------------------------------------------------------------------------------


class TorchPrimitive(Opaque):
    """A primitive, or its class, as a function of torch tensors."""

    def __init__(self, obj: Primitive | type[Primitive], name: str | None):
        super().__init__()
        instance = isinstance(obj, Primitive)
        self.kind: type[Primitive] = type(obj) if isinstance(obj, Primitive) else obj
        self.primitive = obj if isinstance(obj, Primitive) else None
        self.name = name or self.kind.name
        self.__name__ = self.name
        self._made: dict[Any, Library] = {}
        self._operator: Operator | None = None
        self._library: Library | None = None
        self._attributes: dict[str, Any] = {}
        schema = _schema(self.kind)
        if schema is not None and not self.kind._const:
            self._library = _of_class(self.kind, self.name, schema, None)
            if instance:
                self._attributes = dict(self.primitive.attributes)  # type: ignore[union-attr]
                self._operator = self._library.operator_of(**self._attributes)

    @property
    def overload(self) -> Any:
        """The operator in torch.ops; MinimlError where each call makes its own."""
        if self._library is None:
            raise MinimlError(
                f"{self.name} has inputs or attributes that no schema of torch can say, so there "
                "is an operator for each of their values; call it"
            )
        return self._library.overload

    def __call__(self, *args: Any, **attributes: Any) -> Any:
        library = self._library
        several = (self.primitive is None) is not (self._operator is None)
        if several or library is None or casts():
            return self.opaquely(*args, **attributes)
        if _compiling():
            return library.overload(*args, **self._attributes, **attributes)
        if self._operator is not None and not attributes:
            return library.call(self._operator, self._attributes, args)
        return self._called(*args, **attributes)

    def _called(self, *args: Any, **attributes: Any) -> Any:
        if self.primitive is not None and attributes:
            raise ArityError(
                f"{self.name} takes tensors; got {', '.join(attributes)}, which are attributes of "
                f"the class: to_torch({self.kind.__name__}) takes them"
            )
        primitive = self.primitive or self.kind(**attributes)
        if self._library is None:
            return self._baked(primitive, args)
        library, given = self._library, dict(primitive.attributes)
        if casts():
            library = _of_class(self.kind, self.name, library.attributes, current().autocast)
        return library.call(library.operator_of(**given), given, args)

    def _baked(self, primitive: Primitive, args: tuple[Any, ...]) -> Any:
        """A call whose const inputs and attributes belong to the operator."""
        names = primitive.input_names
        if names is not None and len(args) != len(names):
            raise _arity(self.name, names, args)
        consts = {n: constant(primitive, n, args[i]) for i, n in primitive._const}
        taken = {i for i, _ in primitive._const}
        tensors = [a for i, a in enumerate(args) if i not in taken]
        call = primitive, key(tuple(consts.items())), len(tensors), current().autocast
        library = self._made.get(call)
        if library is None:
            outs = _outputs_of(primitive, consts, tensors)
            operator = of_primitive(primitive, consts, len(tensors), outs)
            library = self._made[call] = Library(self.name, operator, lambda: operator)
        return library.call(library.example, {}, tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        return to_torch, (self.primitive or self.kind, self.name)

    def __repr__(self) -> str:
        return f"to_torch({self.primitive or self.kind.__name__})"


def _outputs_of(primitive: Primitive, consts: dict[str, Any], tensors: Sequence[Any]) -> int:
    if isinstance(primitive.outputs, tuple):
        return len(primitive.outputs)
    return len(infer(primitive, interleave(primitive, [*map(type_of, tensors)], consts)))


_SCHEMA = {bool: "bool", int: "int", float: "float", str: "str"}


def _schema(kind: type[Primitive]) -> str | None:
    """The attributes of a class as keywords of a schema of torch; None if it cannot say them, or
    how many inputs and outputs there are."""
    if kind._classic or kind._inputs is None or not isinstance(kind.outputs, tuple):
        return None
    found = []
    for field in kind._fields:
        spelt = _spelt(resolved(field.annotation, field.names))
        if spelt is None:
            return None
        default = "" if field.default is EMPTY else f"={_default(field.default)}"
        found.append(f"{spelt} {field.name}{default}")
    return ", ".join(found)


def _spelt(annotation: Any) -> str | None:
    """The type of a schema for that of an attribute, or None."""
    if annotation in _SCHEMA:
        return _SCHEMA[annotation]
    inner = get_args(annotation)
    if get_origin(annotation) is tuple and len(inner) == 2 and inner[1] is ...:
        return f"{_SCHEMA[inner[0]]}[]" if inner[0] in (int, float) else None
    return None


def _default(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(map(repr, value)) + "]"
    return repr(value)


_of_classes: dict[tuple[type[Primitive], str, Any], Library] = {}


def _of_class(kind: type[Primitive], name: str, schema: str, low: Any) -> Library:
    """The operator of all instances of a class under this autocast, made once."""
    found = _of_classes.get((kind, name, low))
    if found is not None:
        return found
    names, outs = kind._inputs or (), len(kind.outputs)

    @lru_cache(256)
    def made(primitive: Primitive) -> Operator:
        with context(autocast=low or False):
            return of_primitive(primitive, {}, len(names), outs)

    def operator_of(**attributes: Any) -> Operator:
        return made(kind(**attributes))

    example = object.__new__(kind)
    example._finish({f.name: f.default for f in kind._fields if f.default is not EMPTY})
    shown = of_primitive(example, {}, len(names), outs)
    full = name if low is None else f"{name}_{low.name}"
    found = _of_classes[kind, name, low] = Library(full, shown, operator_of, schema)
    return found


# --- Functions and networks -----------------------------------------------------------------------


_pytree = torch.utils._pytree


class TorchFunction(Opaque):
    """A function of trees of tensors, as a function of trees of torch tensors."""

    def __init__(self, fn: Callable[..., Any], name: str | None):
        super().__init__()
        self.fn, self.name = fn, name or name_of(fn)
        self.__name__ = self.name
        self._made: dict[Any, tuple[Traced, Library]] = {}

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.opaquely(*args, **named)

    def _called(self, *args: Any, **named: Any) -> Any:
        leaves, spec = _pytree.tree_flatten((args, named))
        traced, library = self.traced(leaves, spec)
        refuse_parameters("to_torch", self.fn, traced)
        tensors = [leaves[i] for i in traced.positions]
        found = library.call(traced.operator, {}, tensors)
        return traced.rebuild((found,) if library.count == 1 else found)

    def traced(self, leaves: Sequence[Any], spec: Any, mode: Any = None) -> tuple[Traced, Library]:
        """The function for arguments of this structure and types. mode: what else it depends on."""
        types = [type_of(x) if isinstance(x, torch.Tensor) else x for x in leaves]
        call = spec, mode, Traced.key(self.name, types)
        found = self._made.get(call)
        if found is None:
            traced = Traced(self.name, self.fn, _Spec(spec), types)
            operator = traced.operator
            library = Library(self.name, operator, lambda: operator)
            found = self._made[call] = traced, library
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return to_torch, (self.fn, self.name)

    def __repr__(self) -> str:
        return f"to_torch({self.name})"


class _Spec:
    """A tree of torch's, under the name that ours have."""

    def __init__(self, spec: Any):
        self.spec = spec

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The tree with these leaves."""
        return _pytree.tree_unflatten(leaves, self.spec)


class _Layer(_Module):  # type: ignore[misc]
    """A Cell below the one that was given: its parameters, buffers and mode."""

    def __init__(self, cell: Cell):
        super().__init__()
        self.__cell = cell  # mangled, as layers are attributes by the names that the user gave
        self.training = cell.training

    def train(self, mode: bool = True) -> Any:
        """Set the mode here and below, of the Cells too."""
        super().train(mode)
        for cell in self.__cell.cells():
            if cell.training is not mode:
                cell.training = mode
        return self

    def extra_repr(self) -> str:
        """The Cell, for print."""
        return str(self.__cell.describe())


# What calls a module's `forward`: lines of users are further out.
own_files.update({m.__file__: True for m in (torch.nn.modules.module, torch.nn.modules.container)})


class CellModule(_Layer, Opaque):
    """A network as a module of torch, with which it shares memory.

    A network may call a layer or parameter `cell`, `type` or `half`: what is held here is mangled,
    and what a module has already is not looked at.
    """

    def __init__(self, cell: Cell, name: str | None):
        _Layer.__init__(self, cell)
        Opaque.__init__(self)
        self.__cell = cell
        self.__function = TorchFunction(cell, name or type(cell).__name__)
        self.__where: dict[int, tuple[Any, str]] = {}
        layers: dict[str, Any] = {"": self}
        for prefix, inner in cell._walk("", set()):
            path = prefix.removesuffix(".")
            if path:
                above, _, last = path.rpartition(".")
                layers[path] = _Layer(inner)
                layers[above]._modules[last] = layers[path]
        for path, parameter in cell.parameters_dict().items():
            above, _, last = path.rpartition(".")
            _share(layers[above], last, parameter)
            self.__where[id(parameter)] = layers[above], last
        self.__layers, self.__held = list(layers.values()), cell.get_parameters()
        stream = tensor_out(memory_of(default_generator.state))
        self.register_buffer("random_state", stream, persistent=False)
        self.__where[id(default_generator.state)] = self, "random_state"

    def forward(self, *args: Any, **named: Any) -> Any:
        """The network's output; what it updates, such as running statistics, is written."""
        held = [_held(*self.__where[id(p)]) for p in (*self.__held, default_generator.state)]
        modes = [layer.training for layer in self.__layers]
        out, updates = self.opaquely(modes, held, *args, **named)
        with torch.no_grad():
            for i, value in updates.items():
                held[int(i)].copy_(value)
        return out

    def _called(self, modes: Any, held: Sequence[Any], *args: Any, **named: Any) -> Any:
        leaves, spec = _pytree.tree_flatten((args, named))
        mode = tuple([c.signature for c in self.__cell.cells()])
        types = tuple([h.dtype for h in held])
        traced, library = self.__function.traced(leaves, spec, (mode, types))
        every = {id(p): i for i, p in enumerate((*self.__held, default_generator.state))}
        new = [p.name for p in traced.state if id(p) not in every]
        if new:
            raise MinimlError(
                f"to_torch of {self.__function.name} does not hold {', '.join(new)}, which the "
                "network got later; make the module again, to_torch(net)"
            )
        state = [held[every[id(p)]] for p in traced.state]
        updated = set(map(id, traced.updated))  # written to before a backward pass sees them
        state = [h.clone() if id(p) in updated else h for p, h in zip(traced.state, state)]
        inputs = [leaves[i] for i in traced.positions]
        stream = id(default_generator.state)
        tensors = [
            _beside(h, (*state, *inputs)) if id(p) == stream else h
            for p, h in zip(traced.state, state, strict=True)
        ] + inputs
        found = library.call(traced.operator, {}, tensors)
        outs = (found,) if library.count == 1 else found
        updates = dict(
            zip([str(every[id(p)]) for p in traced.updated], outs[traced.count :], strict=True)
        )
        return traced.rebuild(outs), updates

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are modules around a copy of the Cell, with which they share memory
        in turn, but for what this module no longer shares."""
        ours, theirs = self.__cell.parameters_dict(), self.state_dict(keep_vars=True)
        moved = {path: x for path, x in theirs.items() if not _shares(x, ours[path])}
        learned = [path for path, x in self.named_parameters() if x.requires_grad]
        return _copied, (self.__cell, self.__function.name, moved, learned)


def _beside(state: Any, tensors: Sequence[Any]) -> Any:
    """The state of the random stream, which is on the CPU, where the other tensors are."""
    there = next((x for x in tensors if not x.is_cpu), None)
    if there is None or not state.is_cpu:
        return state
    return there.new_empty(state.shape, dtype=state.dtype).copy_(state)


def _shares(x: Any, parameter: Parameter) -> bool:
    shared = tensor_out(memory_of(parameter))
    return bool((x.data_ptr(), x.dtype) == (shared.data_ptr(), shared.dtype))


def _copied(cell: Cell, name: str, moved: dict[str, Any], learned: Sequence[str]) -> Any:
    module = CellModule(cell, name)
    layers = dict(module.named_modules())
    for path, value in moved.items():
        above, _, last = path.rpartition(".")
        _home(layers[above], last)[last] = value
    for path, parameter in module.named_parameters():
        parameter.requires_grad_(path in learned)
    return module


def _share(layer: Any, name: str, parameter: Parameter) -> None:
    """Register the memory of a Parameter in a module: as a parameter that learns, or a buffer."""
    shared = tensor_out(memory_of(parameter))
    if is_float(parameter.dtype) and parameter.requires_grad:
        layer._parameters[name] = torch.nn.Parameter(shared)
    else:
        layer._buffers[name] = shared


def _home(layer: Any, name: str) -> Any:
    return layer._parameters if name in layer._parameters else layer._buffers


def _held(layer: Any, name: str) -> Any:
    home = _home(layer, name)
    return home[name] if name in home else getattr(layer, name)  # reparametrized by torch
