"""export_c: compiles an object for its example arguments, and writes net.c and net.h.

Arguments are checked, then the object is compiled for provider "cc" and planned; only then are
files written, both or none of their texts being known.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ..backends.cc import units
from ..core.access import Access
from ..core.errors import ExportError, MinimlError
from ..core.files import write_file
from ..core.parameter import Parameter
from ..core.settings import context, current
from ..core.signature import CPU
from ..graph.ir import Graph, flops
from ..nn.cell import Cell
from ..runtime.jit import Compiled, Jit
from ..train.step import TrainStep
from . import writer
from .plan import plan
from .quantize import Quantized, Report, quantized
from .writer import name_of

# Features of x86 that widen vectors; without them texts have 16 bytes, as on every other processor.
_WIDE = ("avx512f", "avx2", "avx", "fma3", "f16c", "sse42", "sse41", "ssse3", "sse3")


def export_c(
    obj: Callable[..., Any] | Graph,
    path: str | PathLike[str],
    *example_args: Any,
    name: str = "net",
    target: str | None = None,
    weights: Literal["arrays", "file"] = "arrays",
    quantize: Literal["int8"] | None = None,
    calibration: Sequence[Any] = (),
) -> None:
    """Write a network, a function, a Graph or a train_step as C11 that needs libm alone.

    `path` ends in ".c"; the header stands beside it. obj is compiled for arguments of the types of
    `example_args` (a Graph has its own): shapes are fixed. What is written:

        #define NET_ARENA_BYTES ...
        void net_run(void *arena, const float *in0, ..., float *out0, ...);

    of a network (in the mode in which it is: call `net.set_train(False)` first), function or Graph,
    whose parameters become constants; of a train_step, whose state the caller owns,

        typedef struct net_state net_state;
        void net_init(net_state *state);
        float net_step(net_state *state, void *arena, const float *in0, const int64_t *in1);

    A function that updates parameters, or draws random numbers, is a step, too: it returns its
    first output where that is a number, and writes the others.

    name: the prefix of everything in C, in place of `net`. target: None for vectors of 16 bytes,
    which every processor has; "native" for those of this one, to be compiled with -march=native.
    weights: "arrays" for values in the C file; "file" for a file of safetensors beside it, whose
    bytes `net_load(state, file)` reads in the place of `net_init`. A network has a state then, too,
    its parameters: `net_run(state, arena, ...)`.
    quantize: "int8" for products by weights, of Dense and Conv2d and what is made of them, in int8:
    weights with a scale for each output channel, activations with one from `calibration`, a list of
    inputs as those of use (each a tuple, if there are several). The file says how far its outputs
    are from float's on these.

    The numbers are those of the compiled program of provider "cc" for the same vectors, bit for
    bit where the compiler and its flags are the same. ExportError, before anything is written, for
    an operation without C, at the user's line; for a network in training mode; and where no C
    compiler is found.

    >>> import numpy as np, pathlib, tempfile
    >>> import miniml as ml
    >>> from miniml import nn
    >>> net = nn.Sequential(nn.Dense(4, 3), nn.Tanh())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ml.export_c(net, folder + "/net.c", np.ones((1, 4), np.float32))
    ...     print(pathlib.Path(folder, "net.h").read_text().splitlines()[-6])
    void net_run(void *arena, const float *in0, float *out0);
    """
    exported(obj, path, example_args, name, target, weights, quantize, calibration)


class Exported(NamedTuple):
    """The files that were written, the weights' if they have one; the bytes of the arena, of the
    parameters and, where that was asked for and is known, of the stack; the floating-point
    operations of a call; the graph, the parameters' names in C, and the accuracy of quantized
    products."""

    source: Path
    header: Path
    weights: Path | None
    arena: int
    parameters: int
    stack: int | None
    flops: int
    graph: Graph
    members: list[tuple[Parameter, str]]
    report: Report | None


def exported(
    obj: Callable[..., Any] | Graph,
    path: str | PathLike[str],
    example_args: Sequence[Any],
    name: str = "net",
    target: str | None = None,
    weights: str = "arrays",
    quantize: str | None = None,
    calibration: Sequence[Any] = (),
    measured: bool = False,
) -> Exported:
    """export_c, with what it wrote as the result. measured: with the stack, in the header, too,
    for which the file is compiled."""
    file = _checked(path, name, weights)
    compiled = _compiled(obj, example_args, target)
    _check(obj, compiled)
    step = bool(compiled.program.schedule.writes)
    report = None
    if quantize is not None:
        fn, report = _quantized(obj, compiled, quantize, calibration)
        like = [np.zeros(v.abstract.shape, v.abstract.dtype) for v in compiled.traced.inputs]
        compiled = _compiled(fn, like, target)
    apart = file.with_suffix(".safetensors") if weights == "file" else None
    made = plan(compiled.program, Names(name, step or apart is not None).place, f"{name}_")
    if apart and not made.state:
        raise ExportError(
            f"export_c got weights='file' for {_what(obj)}, which has no parameters; leave it out"
        )
    total = sum(number for _, number in flops(compiled.traced))
    named = apart.name if apart else None
    about = writer.About(name, _what(obj), _version(), total, step, named, report)
    beside = file.with_suffix(".h")
    access = Access("export_c", (), [parameter for parameter, _ in made.state.values()])
    text = access.run(writer.source, made, about, beside.name)
    if measured:
        both = {file.name: text, beside.name: writer.header(made, about)}
        about = about._replace(stack=deepest_in(both, ["-march=native"] * (target == "native")))
    texts = {beside: [writer.header(made, about).encode()], file: [text.encode()]}
    if apart:
        texts[apart] = access.run(writer.file_of, made)
    _write(texts)
    size = sum(region.array.nbytes for _, region in made.state.values())
    members = [(parameter, name_of(region)) for parameter, region in made.state.values()]
    return Exported(
        file, beside, apart, made.size, size, about.stack, total, made.graph, members, report
    )


def _write(texts: Mapping[Path, Sequence[bytes]]) -> None:
    for file, parts in texts.items():
        try:
            write_file(file, parts)
        except OSError as error:
            raise ExportError(f"export_c cannot write {file}: {error.strerror}") from None


# --- Checks ---------------------------------------------------------------------------------------


def _checked(path: str | PathLike[str], name: str, weights: str) -> Path:
    """The path of the C file; ExportError where it, the name or the place of weights cannot be."""
    call = "the call is ml.export_c(obj, 'net.c', *example_args)"
    given: object = path
    if not isinstance(given, (str, PathLike)) or Path(given).suffix != ".c":
        raise ExportError(f"export_c got the path {path!r:.200}; give one that ends in .c: {call}")
    file = Path(path)
    if not file.parent.is_dir():
        raise ExportError(f"export_c cannot write {file}: there is no folder {file.parent}")
    if not re.fullmatch(r"[a-zA-Z]\w*", str(name), re.ASCII):
        raise ExportError(f"export_c got name={name!r:.200}; give an identifier of C, as 'net'")
    if name in _KNOWN_TO_C:
        raise ExportError(f"export_c got name={name!r}, which C knows already; give another")
    if weights not in ("arrays", "file"):
        raise ExportError(f"export_c got weights={weights!r:.200}; give 'arrays' or 'file'")
    return file


_KNOWN_TO_C = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while bool true false alignas NAN INFINITY miniml asm class delete export
    friend namespace new operator private protected public template this throw try using virtual
    """.split()
)


def _compiled(obj: Any, args: Sequence[Any], target: str | None) -> Compiled:
    """The object, compiled for C alone with vectors as the target has them."""
    if target not in (None, "native"):
        raise ExportError(
            f"export_c got target={target!r:.200}; give None, for vectors of 16 bytes, or 'native'"
        )
    if isinstance(obj, type) or not callable(obj):
        raise ExportError(
            f"export_c got {obj!r:.200}; give a network, a function of tensors, a Graph or a "
            "train_step"
        )
    if not units.available():
        raise ExportError(f"export_c needs a C compiler, to try what it writes: {units.absence()}")
    if isinstance(obj, Graph) and not args:
        args = [np.zeros(v.abstract.shape, v.abstract.dtype) for v in obj.inputs]
    masked = (*current().without, *(f for f in _WIDE if f in CPU and target is None))
    with context(
        providers=("cc",), without=tuple(dict.fromkeys(masked)), jit=True, device_target="cpu"
    ):
        return Jit(obj.train_step if isinstance(obj, TrainStep) else obj).compiled(*args)


def _quantized(
    obj: Any, compiled: Compiled, quantize: str, calibration: Sequence[Any]
) -> Quantized:
    if quantize != "int8":
        raise ExportError(f"export_c got quantize={quantize!r:.200}; give None or 'int8'")
    if compiled.program.schedule.writes:
        raise ExportError(
            f"export_c got quantize='int8' for {_what(obj)}; it is for inference: give the network"
        )
    calls = [call if isinstance(call, tuple) else (call,) for call in calibration]
    types = [v.abstract for v in compiled.traced.inputs]
    for i, call in enumerate(calls):
        given = [(np.shape(x), np.asarray(x).dtype) for x in call]
        if given != [(t.shape, t.dtype) for t in types]:
            shown = ", ".join(f"{dtype.name}{list(shape)}" for shape, dtype in given)
            raise ExportError(
                f"export_c got calibration[{i}] of {shown}; its calls are as the example: "
                f"{', '.join(map(str, types))}"
            )
    return quantized(compiled.traced, calls)


def _check(obj: Any, compiled: Compiled) -> None:
    """ExportError for what no function in C can be."""
    program = compiled.program
    if compiled.device != "cpu":
        raise ExportError(
            f"export_c got {_what(obj)} on {compiled.device!r}; move it first, as net.to('cpu')"
        )
    written = [p.name for p, _ in program.schedule.writes]
    if written and isinstance(obj, Cell) and obj.training:
        raise ExportError(
            f"export_c got {_what(obj)}, which updates {', '.join(dict.fromkeys(written))}; call "
            "net.set_train(False) for inference, or give a train_step"
        )
    graph = program.graph
    for what, values in (("input", graph.inputs), ("output", graph.outputs)):
        for i, var in enumerate(values):
            if 0 in var.abstract.shape:
                raise ExportError(
                    f"export_c got {what} {i} of {_what(obj)} as {var.abstract}; C has no arrays "
                    "without elements"
                )
    if not graph.outputs:
        raise ExportError(f"export_c got {_what(obj)}, which returns no tensor; return one")


def _what(obj: Any) -> str:
    if isinstance(obj, TrainStep):
        return f"a training step of {_what(obj.net)} with {type(obj.optimizer).__name__}"
    if isinstance(obj, Graph):
        return f"graph {obj.name}"
    name = getattr(obj, "__name__", None)
    return name if isinstance(name, str) else type(obj).__name__


def _version() -> str:
    return str(sys.modules["miniml"].__version__)


# --- Names ----------------------------------------------------------------------------------------


class Names:
    """Names of parameters in C, each once: of constants, or of members of the state."""

    def __init__(self, prefix: str, held: bool):
        self._prefix, self._held = prefix, held
        self._taken: set[str] = set()

    def place(self, parameter: Parameter) -> str:
        """The address of a parameter, an expression of type `char *`."""
        stem = re.sub(r"\W", "_", parameter.name, flags=re.ASCII)
        stem = f"p{stem}" if not stem[:1].isalpha() or stem in _KNOWN_TO_C else stem
        name, number = stem, 1
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return f"(char *)state->{name}" if self._held else f"(char *){self._prefix}_{name}"


# --- Stack ----------------------------------------------------------------------------------------


# As the comment at the top of the file has them.
_FLAGS = tuple("-std=c11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math".split())
_NODE = re.compile(r'node: { title: "([^"]+)" label: "[^"]*?\\n(\d+) bytes \(([\w,]+)\)')
_EDGE = re.compile(r'edge: { sourcename: "([^"]+)" targetname: "([^"]+)"')
_POINTER = "__indirect_call"  # gcc's name of what is called through a pointer


def deepest_in(texts: Mapping[str, str], options: Sequence[str]) -> int | None:
    """Bytes of stack of the deepest chain of calls in the C file among these texts, which are by
    their file names: as the compiler that is found compiles it, and without libm's own.

    `options` go after those of the file's own comment. None where that compiler cannot say it (gcc
    can), or where there is no bound.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, name).write_text(text, "utf-8")
        (source,) = (Path(folder, name) for name in texts if name.endswith(".c"))
        made = source.with_suffix(".o")
        try:
            units.TOOLS.run(
                [*_FLAGS, *options, "-fcallgraph-info=su", "-c", str(source), "-o", str(made)]
            )
            graph = made.with_suffix(".ci").read_text("utf-8")
        except (MinimlError, OSError):  # another compiler: it knows no such option
            return None
    return chain_of(graph)


def chain_of(graph: str) -> int | None:
    """Bytes of the deepest chain in a call graph of `gcc -fcallgraph-info=su`; None without bound.

    A call through a pointer reaches any function of the file that none calls by its name.
    """
    nodes = _NODE.findall(graph)
    frames = {name: int(size) for name, size, _ in nodes}
    calls: dict[str, set[str]] = {}
    for caller, callee in _EDGE.findall(graph):
        calls.setdefault(caller, set()).add(callee)
    named = set().union(*calls.values())
    calls[_POINTER] = {name for name in frames if ":" in name and name not in named}
    if any(kind == "dynamic" for _, _, kind in nodes) or _circular(calls):
        return None

    @cache
    def below(name: str) -> int:
        return frames.get(name, 0) + max(map(below, calls.get(name, ())), default=0)

    return max(map(below, frames), default=None)


def _circular(calls: Mapping[str, set[str]]) -> bool:
    """True where a function may call itself, through others or not."""
    left = dict(calls)
    while left:
        leaves = [name for name, callees in left.items() if not callees & left.keys()]
        if not leaves:
            return True
        for name in leaves:
            del left[name]
    return False
