"""Kernel binding: from a typed call to a kernel that is selected and prepared for it.

BoundKernel: how a kernel is called, whatever it is registered as. Preparation: what `prepare` does
for a call. Shared kernels: the programs of one function for several sizes share their kernel
objects. Warnings: NumPy's, which kernels do not give. Source text of calls, as executors write it:
values that stay have names, others are expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from threading import RLock
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

import numpy as np

from ..backends.cc.native import NativeKernel
from ..backends.cc.units import available
from ..backends.cpu.linalg import ask_threads
from ..backends.kernel import (
    Array,
    Device,
    Kernel,
    KernelEntry,
    KernelNode,
    check_fills,
    has_elements,
    refuse_rebinding,
    refuse_returned,
    taken,
)
from ..backends.registry import NATIVE, specs
from ..backends.selection import Selection, Target, get_device
from ..core.abstract import Abstract, ArraySpec, DType, listed
from ..core.access import at_fork
from ..core.errors import DeclarationError, InUseError, MinimlError, point_at
from ..core.primitive import Primitive, key
from ..core.settings import current, masking
from ..graph.ir import Graph, Node
from ..graph.tracing import trace_body
from ..ops.control import Fused
from .nest import kind_of

Arrays = tuple[Array, ...]
Strides = tuple[int, ...] | None  # None: row-major
Abstracts = tuple[Abstract, ...]
_shape, _stored = attrgetter("shape"), attrgetter("stored")
_dtype, _format = attrgetter("dtype"), attrgetter("format")
ask_threads(lambda: current().threads)
# NumPy warns about a third positional argument of these.
_KEYWORD_OUT = (np.maximum, np.minimum)


class Sizes(NamedTuple):
    """The bytes of each input and output of a kernel, and of each scratch array."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    workspace: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class BoundKernel:
    """A kernel bound to one call's shapes, dtypes and attributes.

    single: the primitive has one output, so a function kernel gets `out` bare, not as a tuple.
    function: the function kernel with its attributes bound, or the function that a class kernel
    picked for the node. instance: the object of a class kernel that launches itself. owned: the
    object of any class kernel. empty: there is nothing to launch. why: the reason for which this
    kernel was selected, and its choice for these shapes. workspace: its scratch arrays.
    inplace: the inputs whose memory the output may share. strided: the inputs may have any strides.
    shapes, dtypes: of the arrays that it fills.
    """

    selection: Selection
    entry: KernelEntry
    node: KernelNode
    outputs: tuple[Abstract, ...]
    instance: Kernel | None
    single: bool
    function: Callable[..., Any]
    device: Device
    empty: bool
    owned: OwnedKernel | None
    why: str
    workspace: tuple[ArraySpec, ...]
    inplace: tuple[int, ...]
    strided: bool
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]

    def call(
        self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: object
    ) -> tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]:
        """One launch: the function that fills the outputs, its arguments, and those by keyword. An
        executor writes it as source, so they may be names of arrays that are not there yet."""
        if self.instance is not None:
            return self.instance.launch, (inputs, workspace, outputs, stream), {}
        function = self.function
        if isinstance(function, np.ufunc) and function not in _KEYWORD_OUT:
            return function, (*inputs, *outputs), {}
        return function, inputs, {"out": outputs[0] if self.single else outputs}

    def into(self, inputs: Arrays, outputs: Arrays) -> None:
        """Launch once on arrays of the device, with scratch arrays of this launch alone.

        DeclarationError for a function that returns an array instead of filling the outputs.
        """
        device, scratch = self.device, ()
        try:
            if self.instance is not None:
                if not self.strided:
                    inputs = tuple(map(device.contiguous, inputs))
                if self.workspace:
                    scratch = tuple([device.empty(w.shape, w.dtype) for w in self.workspace])
            function, given, named = self.call(inputs, scratch, outputs, device.stream)
            returned = function(*given, **named)
            if returned is not None and returned is not outputs and self.instance is None:
                refuse_returned(self.entry, returned, outputs)
        except Exception as error:
            note_kernel(error, self)
            raise

    def into_fresh(self, inputs: Arrays) -> Arrays:
        """The outputs of one launch in memory of their own, or the view of a view kernel. Inputs
        are widened where the kernel needs that, and outputs cast back to those of the rule."""
        if self.entry.view is not None:
            return (self.function(*inputs),)
        cast, device, target = self.selection.cast, self.device, self.node.target
        if cast is not None:
            inputs = tuple([device.converted(a, cast, target) for a in inputs])
        outputs = tuple(map(device.empty, self.shapes, self.dtypes))
        if not self.empty:
            self.into(inputs, outputs)
        if cast is not None:
            pairs = zip(outputs, self.outputs, strict=True)
            outputs = tuple([device.converted(a, o.dtype, target) for a, o in pairs])
        return outputs

    @property
    def sizes(self) -> Sizes:
        """The bytes of its arrays."""
        lists = (self.node.inputs, self.node.outputs, self.workspace)
        return Sizes(*(tuple(spec.nbytes for spec in specs) for specs in lists))

    @property
    def native(self) -> NativeKernel | None:
        """The instance, if native runs call it without Python."""
        made = self.instance
        return made if isinstance(made, NativeKernel) and made.native else None

    @property
    def cannot_fail(self) -> bool:
        """True for views, which are resolved ahead of time, and kernels that never raise."""
        entry = self.entry
        declared = entry.built_in and (entry.view is not None or entry.total)
        return declared or (self.native is not None and not self.native.stops)

    @property
    def calm(self) -> bool:
        """True where NumPy has nothing to warn about: of views, and where the kernel says so."""
        return self.entry.view is not None or (self.owned is not None and self.owned.kernel.calm)

    @property
    def calls_function(self) -> bool:
        """True when a launch is one call of `function`, which fills the outputs as they are."""
        cast, view = self.selection.cast is not None, self.entry.view is not None
        return not (cast or view or self.empty or self.instance is not None)


# --- Preparation ----------------------------------------------------------------------------------


def target_for(device: str) -> Target:
    """The target of an eager call on a device, under the settings in force, without C."""
    settings = current()
    masked = masking(settings.without)
    target = Target(get_device(device, settings.sim), settings.providers, masked=masked)
    return target.without(NATIVE)


def program_target(device: str) -> Target:
    """The target of a compiled program: kernels in C first, unless the settings rank providers."""
    settings = current()
    first = (NATIVE,) if device != "cpu" or available() else ()
    masked = masking(settings.without)
    providers = settings.providers or first
    return Target(get_device(device, settings.sim), providers, masked, settings.formats)


def eager_kernel(
    primitive: Primitive, inputs: Abstracts, outputs: Abstracts, attrs: dict[str, Any], device: str
) -> BoundKernel:
    """The kernel of a call op by op: NumPy's, but of many elements that NumPy would compute one
    after another it is in C, in a text for any extents, so that each primitive is compiled once."""
    slow, values = type(primitive).by_element, (*inputs, *outputs)
    many = slow and any(v.size >= _MANY for v in values)
    if many and any(v.dtype.char in slow for v in values) and in_c(program_target(device)):
        call: tuple[Primitive, dict[str, Any]] = primitive, attrs
        body = trace_body(None, primitive, inputs)[0]
        if kind_of(body.nodes[0]) == "elements":
            call = Fused(body), {"body": body}
        made = prepare(call[0], inputs, outputs, call[1], program_target(device))
        if made.native is not None and made.native.loaded(current().threads):
            return made
    return prepare(primitive, inputs, outputs, attrs, target_for(device))


_MANY = 1 << 18  # elements: NumPy takes 0.3 to 8 ms, a compiler 60, once for all processes


def native(target: Target) -> bool:
    """True if kernels in generated C rank before others."""
    order = (*target.providers, "miniml")
    return "cc" in order and order.index("cc") < order.index("miniml")


def in_c(target: Target) -> bool:
    """True if they rank first, and are in C for the CPU."""
    return target.home == "cpu" and native(target)


def select(node: Node, target: Target) -> Selection:
    """The kernel of a node on a target; an error points at the node's line."""
    try:
        return target.select(node.primitive.name, *node.abstracts)
    except Exception as error:
        point_at(error, node.where)
        raise


def prepare(
    primitive: Primitive,
    inputs: tuple[Abstract, ...],
    outputs: tuple[Abstract, ...],
    attrs: dict[str, Any],
    target: Target,
    strides: Sequence[Strides] = (),
    like: BoundKernel | None = None,
) -> BoundKernel:
    """Select the target's kernel for a call and prepare it.

    strides: of the inputs, for kernels that can bake them in. like: a kernel for the same call in
    other sizes, whose object is resized if it can be. KernelNotFoundError if there is none;
    DeclarationError if the dtypes that the primitive's rule gave are not those of the kernel's
    signature, or if the kernel refuses to run and leaves outputs unfilled.
    """
    selection, device = target.select(primitive.name, inputs, outputs), target.device
    entry, cast = selection.entry, selection.cast
    dtypes, promised = tuple(map(_dtype, inputs)), tuple(map(_dtype, outputs))
    if cast is not None:  # the kernel gets the widened inputs
        dtypes, promised = entry.signature.expanded(len(inputs), len(outputs))
    takes, gives = _specs(entry, inputs, dtypes), _specs(entry, outputs, promised)
    attrs = taken(entry, specs.get(primitive.name), attrs)
    values = tuple([a.value for a in inputs])
    baked = _baked(entry, attrs, strides)
    node = KernelNode(primitive.name, takes, gives, attrs, target, baked, values)
    view = entry.view is not None
    made = entry.made() if view else device.kernel(entry)
    empty = not view and not _runs(entry, made, node)
    owned = None if made is None or empty else _resized(like, entry, node) or _prepared(made, node)
    made = None if owned is None else owned.kernel  # that of `like`, where it was resized
    if target.masked and isinstance(made, NativeKernel):
        made.avoid(target.masked)
    if made is None and not (view or empty):
        check_fills(entry)
    picked = _picked(made) if view or device.name == "cpu" else None
    launched = made if picked is None and not view else None
    why = f"{selection.why}; {made.reason}" if made and made.reason else selection.why
    return BoundKernel(
        selection, entry, node, outputs, launched, primitive._single,
        _bound(entry, node, picked), device, empty, owned, why,
        () if launched is None else _workspace(entry, launched),
        entry.inplace if launched is None or launched.inplace is None else launched.inplace,
        device.takes_strides(entry), tuple(map(_shape, outputs)), promised,
    )  # fmt: skip


def _runs(entry: KernelEntry, made: Kernel | None, node: KernelNode) -> bool:
    """True if a kernel is launched for a node; DeclarationError if outputs would stay unfilled."""
    if made.can_run(node) if made is not None else has_elements(node):
        return True
    if has_elements(node):
        raise DeclarationError(
            f"{entry.name} kernel {entry.describe()} does not run for {listed(node.inputs)}, its "
            f"can_run says, and nothing else would fill {listed(node.outputs)}; return True there"
        )
    return False


def _workspace(entry: KernelEntry, made: Kernel) -> tuple[ArraySpec, ...]:
    """The scratch arrays that a kernel needs; DeclarationError unless each is an ArraySpec."""
    given: Any = made.workspace()
    if not isinstance(given, (tuple, list)) or not all(isinstance(s, ArraySpec) for s in given):
        raise DeclarationError(
            f"{entry.name} kernel {entry.describe()}: workspace gave {given!r}; it gives a tuple "
            "with an ml.ArraySpec(shape, dtype) for each scratch array"
        )
    return tuple(given)


def _resized(like: BoundKernel | None, entry: KernelEntry, node: KernelNode) -> OwnedKernel | None:
    """The kernel object of `like`, resized, if it can be."""
    if like is None or like.entry is not entry or like.instance is None or like.owned is None:
        return None
    if not like.instance.follows:
        return None
    like.instance.resize(node)
    return like.owned


class OwnedKernel:
    """A prepared kernel object. It is released once: by `end`, when nothing owns it any more, or at
    the exit of the interpreter, in reverse order of preparation."""

    __slots__ = ("__weakref__", "end", "kernel")

    def __init__(self, kernel: Kernel):
        self.kernel, self.end = kernel, finalize(self, kernel.release)


def _prepared(kernel: Kernel, node: KernelNode) -> OwnedKernel:
    """Prepare a kernel object; if that raises, it is released at once."""
    try:
        kernel.prepare(node)
    except BaseException:
        with suppress(Exception):  # the error of `prepare` matters more
            kernel.release()
        raise
    return OwnedKernel(kernel)


def _picked(made: Kernel | None) -> Callable[..., Any] | None:
    """The function that a class kernel picked for its node instead of launching itself."""
    if made is None or type(made).launch is not Kernel.launch or not hasattr(made, "call"):
        return None
    refuse_rebinding(type(made).__name__, made.call)
    return made.call


def _bound(
    entry: KernelEntry, node: KernelNode, picked: Callable[..., Any] | None
) -> Callable[..., Any]:
    """The function that a class kernel picked, or the body with the node's attributes."""
    body: Any = picked or entry.body
    look: Callable[..., Any] = body
    if picked is None and entry.view is not None and isinstance(body, type):
        raise DeclarationError(
            f"view kernel {body.__name__} of {entry.name} picks no function; set self.call in "
            "prepare, and define no launch"
        )
    if picked is None and node.attrs and callable(body):
        look = partial(body, **node.attrs)
    if entry.view is None or entry.built_in:
        return look
    return partial(_seen, entry, look, node.outputs[0].shape)


def _seen(entry: KernelEntry, look: Any, shape: tuple[int, ...], *arrays: Array) -> Array:
    """The view that the kernel returns; DeclarationError if its shape is not the inferred one."""
    body: Any = entry.body
    seen: Array = look(*arrays)
    if seen.shape != shape:
        raise DeclarationError(
            f"{entry.name} kernel {getattr(body, '__name__', body)!r} returned a view of shape "
            f"{seen.shape}; infer_shape gives {shape}; make them agree"
        )
    return seen


def _baked(
    entry: KernelEntry, attrs: dict[str, Any], strides: Sequence[Strides]
) -> tuple[Strides, ...]:
    """The strides that a kernel in C will hold as numbers."""
    body = entry.body
    if not (any(strides) and isinstance(body, type) and issubclass(body, NativeKernel)):
        return ()
    return tuple([s if s and body.bakes(attrs, i, s) else None for i, s in enumerate(strides)])


def _specs(
    entry: KernelEntry, abstracts: tuple[Abstract, ...], dtypes: tuple[DType, ...]
) -> tuple[ArraySpec, ...]:
    """Specs of a kernel's arrays; with stored shapes, if it does not know of memory formats."""
    formats = tuple(map(_format, abstracts))
    if not any(formats):
        return tuple(map(ArraySpec, map(_shape, abstracts), dtypes))
    spec = specs.get(entry.name)
    if entry.signature.arranged or (spec is not None and spec.any_format):
        return tuple(map(ArraySpec, map(_shape, abstracts), dtypes, formats))
    return tuple(map(ArraySpec, map(_stored, abstracts), dtypes))


def note_kernel(error: Exception, prepared: BoundKernel) -> None:
    """Add a note to an unexpected error in a kernel: its inputs and the outputs it has to fill."""
    if isinstance(error, MinimlError) or hasattr(error, "_miniml_hook"):
        return
    entry, node = prepared.entry, prepared.node
    called = getattr(entry.body, "__name__", entry.device)
    kept = ", which it must not write to," if "read-only" in str(error) else ""
    error.add_note(
        f"kernel {called} of {entry.name}, {entry.describe()}, got {listed(node.inputs)}{kept} "
        f"and fills {listed(node.outputs)}, as infer_shape says"
    )


# --- Kernels shared between sizes -----------------------------------------------------------------


T = TypeVar("T")
Prepared = Mapping[Node, BoundKernel]


class SharedObjects:
    """Kernel objects that several programs share. They have the sizes of one program at a time,
    and while it runs no other may."""

    def __init__(self) -> None:
        self._lock, self._busy = RLock(), False
        self._of: ref[Graph] | None = None  # the program whose sizes all have, if there is one
        # The size of each object.
        self._at: WeakKeyDictionary[OwnedKernel, KernelNode] = WeakKeyDictionary()
        _all.add(self)

    def prepare(self, graph: Graph, call: Callable[[], Iterable[BoundKernel]]) -> None:
        """Run `call()`, which prepares and resizes kernels for a new program and returns them."""
        with self._lock:
            self._refuse(graph.name)
            before, self._of, self._at = self._at, None, WeakKeyDictionary()
            now = {k.owned: k.node for k in call() if k.owned is not None}
            self._at = WeakKeyDictionary({**before, **now})  # unless `call` raised midway

    def run(self, graph: Graph, prepared: Prepared, call: Callable[..., T], *args: Any) -> T:
        """`call(*args)`, with the objects of that program's sizes, while no other program runs."""
        with self._lock:
            self._refuse(graph.name)
            self._busy = True
            try:
                if self._of is None or self._of() is not graph:
                    self._resize(graph, prepared)
                return call(*args)
            finally:
                self._busy = False

    def _resize(self, graph: Graph, prepared: Prepared) -> None:
        self._of = None
        for node, kernel in prepared.items():
            owned, instance = kernel.owned, kernel.instance
            if owned is None or instance is None or not instance.follows:
                continue
            if self._at.pop(owned, None) is not kernel.node:
                try:
                    instance.resize(kernel.node)
                except Exception as error:
                    note_kernel(error, kernel)
                    point_at(error, node.where)
                    raise
            self._at[owned] = kernel.node
        self._of = ref(graph)

    def _refuse(self, name: str) -> None:
        """InUseError for a call from inside a call, which would resize kernels that run."""
        if self._busy:
            raise InUseError(
                f"{name} is called inside a call of itself, by a handler or a kernel, while its "
                "kernels are at work; set a flag there, and call it afterwards"
            )

    def free(self) -> None:
        """Reset in the child of a fork, where the thread that held the objects does not exist."""
        self._lock, self._busy, self._of = RLock(), False, None
        self._at.clear()


_all: WeakSet[SharedObjects] = WeakSet()


def _free_all() -> None:
    for objects in _all:
        objects.free()


at_fork(after_in_child=_free_all)


class Sibling(NamedTuple):
    """A program of a function for some sizes, as seen by those for other sizes."""

    graph: Graph
    prepared: Prepared
    objects: SharedObjects | None


class Sharing:
    """Kernels that the program of a graph shares with others of the same function: with the first
    that has the same operations, the kernels of equal calls and the objects that can be resized.
    others: None if the sizes are fixed.

    objects: the shared objects, if any. sentence: what is shared; "" if the sizes are fixed.
    """

    def __init__(
        self, graph: Graph, prepared: dict[Node, BoundKernel], others: Sequence[Sibling] | None
    ):
        self._graph, self._prepared, self._others = graph, prepared, others
        self.objects: SharedObjects | None = None
        self.sentence = ""
        self._like: dict[Node, BoundKernel] = {}
        self._kept: set[Node] = set()
        if others is not None:
            self._find(others)

    def _find(self, others: Sequence[Sibling]) -> None:
        # Programs of empty arrays launch nothing, so they have no objects to share.
        able = sorted(others, key=lambda o: o.objects is None)
        like = next((o for o in able if not difference(self._graph, o.graph)), None)
        self.objects = (like and like.objects) or SharedObjects()
        if like is None:
            return
        for node, other in zip(self._graph.nodes, like.graph.nodes, strict=True):
            self._like[node] = like.prepared[other]
            # The C of a kernel may hold the strides of views, which depend on other sizes.
            if is_same(node, other) and like.prepared[other].native is None:
                self._kept.add(node)

    def kernel(self, node: Node) -> tuple[BoundKernel | None, BoundKernel | None]:
        """The kernel of an equal call, which serves this one, and of a call in another size."""
        like = self._like.get(node)
        return like if node in self._kept else None, like

    def prepare(self, call: Callable[[], object]) -> None:
        """Run `call()`, which prepares the kernels; if it raises, those that no other program has
        are released in reverse order."""
        try:
            if self.objects is None:
                call()
            else:
                self.objects.prepare(self._graph, lambda: self._resized(call))
                self._settle()
        except BaseException:
            others = {kernel.owned for kernel in self._like.values()}
            for owned in [k.owned for k in self._prepared.values()][::-1]:
                if owned is not None and owned not in others:
                    owned.end()
            raise

    def _resized(self, call: Callable[[], object]) -> list[BoundKernel]:
        call()
        return [k for n, k in self._prepared.items() if n not in self._kept and follows(k)]

    def _settle(self) -> None:
        """Set the sentence on sharing, and drop the shared objects if there are none."""
        following = {n for n, k in self._prepared.items() if follows(k)}
        self.objects = self.objects if following else None
        if not self._others:
            self.sentence = "no other size yet"
        elif not self._like and self._graph.nodes:
            why = difference(self._graph, self._others[0].graph)
            self.sentence = f"nothing is shared with other sizes: {why}"
        else:
            kept, resized = len(self._kept), len(following - self._kept)
            self.sentence = (
                f"shared with other sizes: {kept} kernels as they are, {resized} that are resized; "
                f"{len(self._prepared) - kept - resized} are this size's own"
            )


def follows(kernel: BoundKernel) -> bool:
    """True for a kernel object that is resized for other sizes."""
    return kernel.instance is not None and kernel.instance.follows


def difference(graph: Graph, other: Graph) -> str:
    """The first difference of two graphs other than sizes, as a clause; "" if there is none."""
    for a, b in zip(graph.nodes, other.nodes, strict=False):
        if type(a.primitive) is not type(b.primitive):
            return f"{a.primitive.name} stands where {b.primitive.name} stood"
        if _types(a) != _types(b):
            return f"{a.primitive.name} has other dtypes"
    if len(graph.nodes) != len(other.nodes):
        return f"it has {len(graph.nodes)} operations, not {len(other.nodes)}"
    return ""


def _types(node: Node) -> Sequence[object]:
    return [
        [(v.abstract.dtype, v.abstract.format) for v in vs] for vs in (node.inputs, node.outputs)
    ]


def is_same(node: Node, other: Node) -> bool:
    """True for calls that need the same kernel, prepared alike."""
    pairs = zip(node.inputs, other.inputs, strict=True)
    return (
        node.primitive == other.primitive
        and _consts(node) == _consts(other)
        and _shapes(node) == _shapes(other)
        and all(a.abstract.value is b.abstract.value for a, b in pairs)
    )


def _consts(node: Node) -> Sequence[object]:
    return [(name, key(value)) for name, value in node.consts]


def _shapes(node: Node) -> Sequence[object]:
    return [[v.abstract.shape for v in vs] for vs in (node.inputs, node.outputs)]


# --- Warnings -------------------------------------------------------------------------------------

_context = Context()
_context.run(np.seterr, all="ignore")
_ERRORS, _IGNORED = next(iter(_context.items()))  # NumPy's context variable of errstate

# Call it first in a context of its own: np.errstate takes ten times as long.
ignore_errors = partial(_ERRORS.set, _IGNORED)


def quietly(run: Callable[..., Any], *args: Any) -> Any:
    """`run(*args)`, without NumPy's floating-point warnings.

    It runs in a copy of the current context, so no interrupt can leave the warnings off.
    """
    return copy_context().run(_quiet, run, *args)


def _quiet(run: Callable[..., Any], *args: Any) -> Any:
    ignore_errors()
    return run(*args)


# --- Source text of calls -------------------------------------------------------------------------


class Varying(str):
    """Source text of a value that may differ at each call of the program."""


class SourceCall(NamedTuple):
    """A call in a line, with fixed and Varying arguments. stem: of the function's name."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = {}
    stem: str = "f"

    @property
    def thunk(self) -> Callable[[], object] | None:
        """The call, to be made later; None if it varies between calls of the program."""
        if any(map(_varies, (*self.arguments, *self.keywords.values()))):
            return None
        return partial(self.function, *self.arguments, **self.keywords)


class NamedValues:
    """Values by their names in the source; `values` holds those known from the start."""

    def __init__(self, values: dict[str, Any]):
        self.values = values
        self._named: dict[int, str] = {id(...): "...", id(None): "None"}

    def call(self, made: SourceCall, through: str = "") -> str:
        """The call as text. through: a function, called with the function and its arguments."""
        given = [self.text(made.function, made.stem)] if through else []
        given += map(self.text, made.arguments)
        given += [f"{key}={self.text(value, 'a')}" for key, value in made.keywords.items()]
        return f"{through or self.text(made.function, made.stem)}({', '.join(given)})"

    def thunks(self, calls: Sequence[SourceCall]) -> str:
        """A tuple of the calls, to be made later; created once if none of them varies."""
        thunks = [c.thunk for c in calls]
        if None not in thunks:
            return self.text(tuple(thunks), "updates")
        made = zip(thunks, calls, strict=True)
        shown = [self.call(c, "partial") if t is None else self.text(t, "u") for t, c in made]
        return f"({', '.join(shown)},)"

    def text(self, value: Any, stem: str = "b") -> str:
        """The value as text: a name for it, unless it varies."""
        if isinstance(value, Varying):
            return value
        if _varies(value):
            return f"({', '.join(map(self.text, value))},)"
        if id(value) not in self._named:
            name = self._named[id(value)] = f"{stem}{len(self.values)}"
            self.values[name] = value  # keeps it alive, so that no other value gets its id
        return self._named[id(value)]


def _varies(value: Any) -> bool:
    return type(value) is Varying or (type(value) is tuple and Varying in map(type, value))
