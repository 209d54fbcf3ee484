"""Kernel binding: from a typed call to a kernel that is selected and prepared for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import finalize

from ..backends.cc.player import NativeKernel
from ..backends.cc.units import available
from ..backends.cpu.linalg import ask_threads
from ..backends.device import Array, Device
from ..backends.devices import get_device
from ..backends.kernel import (
    Kernel,
    KernelEntry,
    KernelNode,
    check_fills,
    has_elements,
    refuse_rebinding,
    taken,
)
from ..backends.registry import NATIVE, specs
from ..backends.selection import Selection, Target
from ..backends.signature import ArraySpec
from ..core.abstract import Abstract, listed
from ..core.dtype import DType
from ..core.errors import DeclarationError, MinimlError
from ..core.primitive import Primitive
from ..core.settings import current, masking

Strides = tuple[int, ...] | None  # None: row-major
_shape, _stored = attrgetter("shape"), attrgetter("stored")
_dtype, _format = attrgetter("dtype"), attrgetter("format")
ask_threads(lambda: current().threads)


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
    inplace: the inputs whose memory the output may share.
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
        return declared or self.native is not None

    @property
    def calls_function(self) -> bool:
        """True when a launch is one call of `function`, which fills the outputs as they are."""
        cast, view = self.selection.cast is not None, self.entry.view is not None
        return not (cast or view or self.empty or self.instance is not None)


def target_for(device: str) -> Target:
    """The target of an eager call on a device, under the settings in force.

    It has no kernels in C, which would be compiled for each shape.
    """
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
    made = None if owned is None else owned.kernel
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
            "with a miniml.backends.signature.ArraySpec(shape, dtype) for each scratch array"
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
    if entry.signature.arranged or entry.name in ("Convert", "Fused"):
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
