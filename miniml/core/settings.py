"""Settings of runs: mode, device, providers and debug switches, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, partial
from operator import attrgetter, eq
from typing import Any, Generic, Literal, TypeVar

from numpy.typing import DTypeLike

from .abstract import HALVES, DType, as_dtype, known, unknown
from .errors import DeviceError, DTypeError, MinimlError
from .options import choice, count
from .scope import Block, Scoped
from .signature import CPU, features

GRAPH_MODE = 0
PYNATIVE_MODE = 1

_DEVICES = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "cuda-sim": "cuda-sim"}


class Watchers(tuple[Any, ...]):
    """Hooks and profiles, which see all that is computed."""

    @cached_property
    def see_values(self) -> bool:
        """True if one of them looks at inputs and outputs, not at the clock alone."""
        return any(watcher.sees_values for watcher in self)


_NONE = Watchers()


class Plans(dict[object, Any]):
    """Call plans by primitive and kinds of the arguments; version: of the table of kernels that
    they were made of."""

    version = -1


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """The settings in force; every field is one keyword of `set_context` and `context`, but the
    last three. watchers: what sees all that is computed. unwatched: the same without watchers.
    plans: of eager calls under these settings, which end with them."""

    mode: int = PYNATIVE_MODE
    device_target: str = "cpu"
    providers: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    jit: bool = True
    check_nan: bool = False
    verify_passes: bool = False
    disabled_passes: tuple[str, ...] = ()
    sim: str = "check"
    cuda_graphs: str = "auto"
    full_tracebacks: bool = False
    threads: int = 0
    without: tuple[str, ...] = ()
    autocast: DType | None = None
    compile: str = "at once"
    watchers: Watchers = _NONE
    unwatched: Settings | None = None
    plans: Plans = field(default_factory=Plans, init=False)

    @property
    def bare(self) -> Settings:
        """These settings without watchers: what is compiled does not depend on them."""
        return self.unwatched or self


_values = attrgetter(*(f.name for f in fields(Settings) if f.init))
_default = Settings()
_interned = {_values(_default): _default}  # equal settings are one object: quick to compare
_local: Scoped[Settings] = Scoped("miniml_settings")
_block = _local.variable.get


def current() -> Settings:
    """The settings of this context: those of the innermost `context`, else the process default."""
    block = _block()
    if block is None:
        return _default
    if block.way_out is None or block.way_out() is not None:
        return block.value  # in force for sure
    return _local.get() or _default


def set_context(
    *,
    mode: int | None = None,
    device_target: str | None = None,
    providers: tuple[str, ...] | None = None,
    formats: tuple[str, ...] | None = None,
    jit: bool | None = None,
    check_nan: bool | None = None,
    verify_passes: bool | None = None,
    disabled_passes: tuple[str, ...] | None = None,
    sim: str | None = None,
    cuda_graphs: str | None = None,
    full_tracebacks: bool | None = None,
    threads: int | None = None,
    without: tuple[str, ...] | None = None,
    autocast: DTypeLike | Literal[False] | None = None,
    compile: str | None = None,
) -> None:
    """Change the process default; settings not named stay as they are.

    mode: PYNATIVE_MODE (run each operation at once) or GRAPH_MODE (compile cells and gradients).
    device_target: "cpu", "cuda" or "cuda-sim" ("CPU" and "GPU" are accepted).
    providers: names of kernel providers, best first; built-in kernels come after them. Kernels of
    a provider that is not named are used for operators of your own alone, where neither those
    named nor "miniml" has one.
    formats: names of memory formats of images, best first, whose kernels compiled programs prefer;
    () leaves it to the kernels.
    jit: False runs compiled functions op by op, for debugging.
    check_nan: True stops at the first operation that makes a NaN or an infinity and names it, as
    `debug_nans` does for one block.
    verify_passes: True re-infers the whole graph after every pass.
    disabled_passes: names of graph passes to leave out.
    sim: "check" or "fast", how cuda-sim runs kernels.
    cuda_graphs: "auto", "on" or "off": whether the launches of a compiled program are recorded
    and repeated as one CUDA graph. "auto" does so on a GPU, not in the simulator.
    full_tracebacks: True shows miniml's own frames in the tracebacks of errors, too.
    threads: the most that one kernel may use on the CPU; 0, the default, for as many as this
    process has CPUs, or OMP_NUM_THREADS says, which is also the limit.
    without: names of features of the machine that are not to be used, such as "avx2", with all that
    need them: kernels that require one are passed over, and C is compiled without them, as on a
    machine that lacks them. What NumPy and the BLAS use does not change.
    autocast: float16 or bfloat16, in which products and convolutions then compute; softmax, norms,
    sums, losses, exp, log and linear algebra compute in float32 (each class says so by `autocast`);
    False for neither.
    compile: "at once" or "background": whether the first call of a compiled function waits for the
    C compiler, or a thread does, while calls run on NumPy's kernels. The kernels in C take their
    place at a call after the thread is done, whose results differ by rounding.
    """
    global _default
    given = {key: value for key, value in locals().items() if value is not None}
    _default = _changed(_default, given)


def context(
    *,
    mode: int | None = None,
    device_target: str | None = None,
    providers: tuple[str, ...] | None = None,
    formats: tuple[str, ...] | None = None,
    jit: bool | None = None,
    check_nan: bool | None = None,
    verify_passes: bool | None = None,
    disabled_passes: tuple[str, ...] | None = None,
    sim: str | None = None,
    cuda_graphs: str | None = None,
    full_tracebacks: bool | None = None,
    threads: int | None = None,
    without: tuple[str, ...] | None = None,
    autocast: DTypeLike | Literal[False] | None = None,
    compile: str | None = None,
) -> Block[Settings]:
    """The same settings as `set_context`, for one `with` block of this thread or task only.

    However the block is left, even by an interrupt, the settings are restored. In a generator they
    also hold between its steps, for the code that iterates over it, as Python's context variables
    do; let the block end before each `yield`.
    """
    given = {key: value for key, value in locals().items() if value is not None}
    return _local.use(lambda: _changed(current(), dict(given)))


W = TypeVar("W")


class Watching(Block[Settings], Generic[W]):
    """The block in which a watcher sees what is computed; `with` gives the watcher.

    A watcher has `sees_values`, and the methods that `runtime/observe.py` calls.
    """

    __slots__ = ("watcher",)

    def __init__(self, watcher: W):
        self.watcher = watcher
        super().__init__(_local, self._watched)

    def _watched(self) -> Settings:
        now = current()
        return replace(now, watchers=Watchers((*now.watchers, self.watcher)), unwatched=now.bare)

    def __enter__(self) -> W:  # type: ignore[override]
        super().__enter__()
        return self.watcher

    def _recreate_cm(self) -> Watching[W]:
        return type(self)(self.watcher)


def unwatched() -> Block[Settings]:
    """The block in which no watcher sees anything."""
    return _local.use(lambda: current().bare)


in_context = _block  # () is None where no context is, and so no watcher: the quickest way to know


def enter(settings: Settings) -> None:
    """Make these the settings of this context (of `contextvars`) for as long as it lasts."""
    _local.use(lambda: settings).__enter__()


def device_name(name: Any) -> str:
    """The canonical spelling of a device: "CPU" -> "cpu", "GPU" -> "cuda"."""
    try:
        return _DEVICES[name.lower()]
    except (KeyError, AttributeError):
        dtype = "" if isinstance(name, str) else "; a tensor of another dtype is t.astype(dtype)"
        raise DeviceError(
            f"device {name!r} is unknown; use 'cpu', 'cuda' or 'cuda-sim'{dtype}"
        ) from None


_WORDS = {
    "sim": ("check", "fast"),
    "cuda_graphs": ("auto", "on", "off"),
    "compile": ("at once", "background"),
}


def _changed(settings: Settings, given: dict[str, Any]) -> Settings:
    if "device_target" in given:
        given["device_target"] = device_name(given["device_target"])
    if given.get("mode", settings.mode) not in (GRAPH_MODE, PYNATIVE_MODE):
        raise MinimlError(
            f"mode {given['mode']!r} is unknown; use ml.GRAPH_MODE or ml.PYNATIVE_MODE"
        )
    for name, words in _WORDS.items():
        if name in given:
            choice("context", name, given[name], words)
    if "threads" in given:
        given["threads"] = count("context", "threads", given["threads"], 0)
    if "autocast" in given:
        given["autocast"] = _narrow(given["autocast"])
    for key in ("providers", "formats", "disabled_passes"):
        if key in given:
            given[key] = (given[key],) if isinstance(given[key], str) else tuple(given[key])
    for name in given.get("formats", ()):
        if not known(name):
            raise MinimlError(unknown(name))
    given |= {"without": features(given["without"])} if "without" in given else {}
    if all(map(eq, map(partial(getattr, settings), given), given.values())):
        return settings
    if settings.unwatched is not None:  # not interned: nobody should keep watchers
        return replace(settings, **given, unwatched=_changed(settings.unwatched, dict(given)))
    changed = replace(settings, **given)
    return _interned.setdefault(_values(changed), changed)


def _narrow(dtype: Any) -> DType | None:
    """The dtype of `autocast`; None for False. DTypeError for another."""
    try:
        narrow = None if dtype is False else as_dtype(dtype)
        if narrow is None or narrow in HALVES:
            return narrow
        dtype = narrow.name
    except DTypeError:
        dtype = repr(dtype)
    raise DTypeError(
        f"autocast={dtype} is not a dtype to compute in; give ml.float16 or ml.bfloat16, or False "
        "for none"
    )


# Who lacks one of these lacks what needs it, directly or not.
_NEEDS = {
    "sse2": "sse", "sse3": "sse2", "ssse3": "sse3", "sse41": "ssse3", "sse42": "sse41",
    "avx": "sse42", "f16c": "avx", "fma3": "avx", "fma4": "avx", "xop": "avx", "avx2": "avx",
    "vaes": "avx", "vpclmulqdq": "avx", "avx512f": "avx2 fma3 f16c",
    "x86_v2": "sse42 popcnt", "x86_v3": "x86_v2 avx2 fma3 f16c", "x86_v4": "x86_v3 avx512_skx",
    "vsx2": "vsx", "vsx3": "vsx2", "vsx4": "vsx3", "vxe": "vx", "vxe2": "vxe",
    "neon_fp16": "neon", "neon_vfpv4": "neon", "asimd": "neon", "fphp": "asimd",
    "asimdhp": "asimd", "asimddp": "asimd", "asimdfhm": "asimd", "sve": "asimd",
}  # fmt: skip
_NEEDS |= {f: "avx512f" for f in CPU if f.startswith("avx512") and f != "avx512f"}


@cache
def masking(names: tuple[str, ...]) -> tuple[str, ...]:
    """These features and all that need one of them: what a machine without them has not either."""
    found = set(names)
    while more := {f for f, needs in _NEEDS.items() if found & {*needs.split()}} - found:
        found |= more
    return tuple(sorted(found))
