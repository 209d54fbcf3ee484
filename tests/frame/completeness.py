"""What every primitive of miniml.ops must have: a row, a gradient, kernels, words, a function."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable

from miniml import Primitive, float32, ops
from miniml.backends import registry
from miniml.core.abstract import ALL, COMPLEX, Abstract, DType, is_inexact, promote
from miniml.core.infer import infer, interleave
from miniml.core.primitive import primitives
from miniml.errors import DTypeError
from miniml.grad import bprop_getters
from miniml.testing import OpInfo
from miniml.testing.calls import Call, calls, dtypes_of

from .calls import rng_of

# Primitives that have no function of their own in miniml.ops, and why.
_BY_RULES = "called by gradient rules only"
_OF_RANKS = "the function is in miniml.distributed, which knows the group"
NO_FUNCTION: dict[str, str] = {
    "AllGather": _OF_RANKS,
    "AllReduce": _OF_RANKS,
    "AllToAll": _OF_RANKS,
    "AvgPool2DGrad": _BY_RULES,
    "Broadcast": _OF_RANKS,
    "CheckedLabels": "called by losses only",
    "CheckedProbabilities": "called by losses only",
    "Conv2DInputGrad": _BY_RULES,
    "Conv2DWeightGrad": _BY_RULES,
    "Convert": "made by lowering; a program is asked for a format by a setting",
    "CrossEntropyGrad": _BY_RULES,
    "ExpNegSquare": _BY_RULES,
    "Fused": "made by lowering only",
    "Index": "x[i, j] calls it; the function is getitem",
    "IndexAdd": _BY_RULES,
    "IndexReduce": "the functions are scatter and segment_max, segment_min, segment_prod",
    "LeakyReLUGrad": _BY_RULES,
    "MaxPool2DGather": _BY_RULES,
    "MaxPool2DGrad": _BY_RULES,
    "NormalCDF": _BY_RULES,
    "PutAlongAxisAdd": _BY_RULES,
    "Reduce": _BY_RULES,
    "ReduceScatter": _OF_RANKS,
    "ReLUGrad": _BY_RULES,
    "ScaledDotProductAttentionGrad": _BY_RULES,
    "ScaledDotProductAttentionMaskGrad": _BY_RULES,
    "SendRecv": _OF_RANKS,
    "SliceGrad": _BY_RULES,
}
# Primitives whose bprop refuses, and why.
NO_GRADIENT: dict[str, str] = {
    "WhileLoop": "its trip count is unknown; with max_iterations= it is a Scan",
}
# Primitives that no kernel runs, and why.
NO_KERNEL: dict[str, str] = {}


def library() -> list[type[Primitive]]:
    """The primitives that miniml.ops defines, by name."""
    own = (p for _, p in sorted(primitives.items()) if p.__module__.startswith("miniml.ops"))
    return [p for p in own if getattr(ops, p.__name__, None) is p]  # docstrings define others


def squashed(name: str) -> str:
    """What a class and its function have in common: LeakyReLU and leaky_relu are leakyrelu."""
    return name.replace("_", "").lower()


def lacks(primitive: type[Primitive], rows: Iterable[OpInfo]) -> list[str]:
    """What the primitive lacks, one sentence each."""
    own = [row for row in rows if row.primitive is primitive]
    found = [f"has {len(own)} rows in tests/opinfo, not one"] if len(own) != 1 else []
    found += _gradient(primitive)
    found += _words(primitive)
    found += _function(primitive)
    for row in own[:1]:
        found += _kernels(row)
        graded = primitive.differentiable and primitive.name not in NO_GRADIENT
        if graded and not any(is_inexact(d) for d in dtypes_of(row)):
            found.append("is differentiable, but its row tests no float dtype")
    return [f"{primitive.name} {what}" for what in found]


def _gradient(primitive: type[Primitive]) -> list[str]:
    has = bprop_getters.find(primitive) is not None
    if primitive.differentiable and not has:
        return ["has neither a bprop nor differentiable = False"]
    if not primitive.differentiable and has:
        return ["has a bprop that differentiable = False keeps from being used"]
    return []


def _words(primitive: type[Primitive]) -> list[str]:
    text = primitive.__dict__.get("__doc__") or ""
    if not text.strip():
        return ["has no docstring"]
    words = [w for w in re.findall(r"[a-z0-9]+", text.lower()) if w not in ("the", "a", "an", "of")]
    if "".join(words) == squashed(primitive.name) and not re.search(r"[-+*/^=<>()|]", text):
        return [f"has a docstring that only restates its name: {text!r}"]
    return []


def _function(primitive: type[Primitive]) -> list[str]:
    module = inspect.getmodule(primitive)
    public = primitive.__name__ in getattr(module, "__all__", ())
    if not public:
        return [] if primitive.name in NO_FUNCTION else ["is not in its module's __all__"]
    if primitive.name in NO_FUNCTION:
        return []
    names = {squashed(n) for n, value in vars(ops).items() if n.islower() and callable(value)}
    if squashed(primitive.name) not in names:
        return ["has no function in miniml.ops"]
    return []


def _kernels(row: OpInfo) -> list[str]:
    """A kernel of exactly these dtypes for every dtype that the rules let pass."""
    if row.primitive.name in NO_KERNEL:
        return []
    tested = dtypes_of(row)
    if not tested:
        return ["has no CPU kernel"]
    working = tested[-1]
    call = next(iter(calls(row, working, rng_of(row.primitive.name))), None)
    if call is None:
        return ["has a row without samples"]
    missing, untested = [], []
    for dtype in ALL:
        dtypes = _accepted(call, working, dtype)
        if dtypes is None:
            continue
        entries = registry.table.get((row.primitive.name, "cpu"), [])
        if not any(e.signature.accepts(dtypes) for e in entries):
            missing.append(dtype.name)
        elif dtype not in (*tested, *COMPLEX) and dtype in dtypes and not row.dtypes:
            untested.append(dtype.name)
    found = [f"has no CPU kernel for {', '.join(missing)}, which its rules accept"] * bool(missing)
    return found + [f"has a row that leaves out {', '.join(untested)}"] * bool(untested)


def _accepted(call: Call, working: DType, dtype: DType) -> tuple[DType, ...] | None:
    """The kernel's input dtypes with `dtype` in place of the working one; None if refused."""
    primitive = call.primitive
    dtypes = tuple(dtype if a.dtype == working else a.dtype for a in call.arrays)
    try:
        if primitive.promote and dtypes:
            common = promote(*dtypes)
            if primitive.promote == "float" and not is_inexact(common):
                common = float32
            dtypes = (common,) * len(dtypes)
        abstracts = [Abstract(a.shape, d) for a, d in zip(call.arrays, dtypes)]
        infer(primitive, interleave(primitive, abstracts, call.consts))
    except DTypeError:
        return None
    return dtypes


def unclaimed(rows: Iterable[OpInfo]) -> list[str]:
    """Rows whose primitive the library no longer defines, and functions without words."""
    known = set(library())
    found = [
        f"a row for {r.primitive.name}, which miniml.ops lacks"
        for r in rows
        if r.primitive not in known
    ]
    counts = Counter(r.primitive.name for r in rows)
    found += [f"{n} rows for {name}" for name, n in counts.items() if n > 1]
    for name, value in vars(ops).items():
        if name.startswith("_") or inspect.ismodule(value) or not callable(value):
            continue
        if not (inspect.getdoc(value) or "").strip():
            found.append(f"no docstring of ops.{name}")
    return found
