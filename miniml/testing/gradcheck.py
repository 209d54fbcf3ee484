"""gradcheck: is a gradient the derivative of the function, at a point, element by element?"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optree

from ..dtype import DType, float64
from ..errors import DTypeError, GradientArgumentError, KernelNotFoundError
from ..grad.transforms import vjp
from ..primitive import Primitive
from ..runtime.jit import jit
from ..settings import GRAPH_MODE, context, current
from ..tensor import Tensor
from .gradreport import UNKNOWN, WRONG, Check, Finding, GradientError, GradReport
from .linearity import check_linearity
from .narrow import check_narrow
from .probe import Probe, probe
from .search import Search
from .subject import (
    Array,
    Arrays,
    Map,
    Pull,
    Subject,
    WrongGradientForm,
    at_point,
    floats_of,
    is_float_leaf,
    shown_leaf,
)

Function = Callable[..., Any]


def gradcheck(
    fn: Function,
    *args: Any,
    order: int | None = None,
    argnums: int | tuple[int, ...] | None = None,
    mode: int | None = None,
    strict: bool = False,
    raise_error: bool = True,
    seed: int = 0,
) -> GradReport:
    """Check the gradients of `fn` at `args` against differences of `fn`.

    fn: a function of trees of tensors to a tree of tensors, or a Primitive. args: Tensors, NumPy
    arrays, Python floats, or trees of these; everything else in them, const inputs of a Primitive
    too, is passed on as it is. argnums: the arguments to differentiate, all by default. order:
    derivatives up to this one are checked; 2 by default for a Primitive, else 1. mode:
    PYNATIVE_MODE or GRAPH_MODE, by default the context's. seed: of the random directions.

    Differences run in float64, with an error bar of their own; a backward pass in a narrower
    dtype is compared with the float64 one, element by element. Raises GradientError, which has
    the `report`, if a gradient is wrong, if nothing could be judged, or with `strict` if anything
    could not be; `raise_error=False` returns the report. GradientArgumentError: `fn` returns no
    float, changes its arguments, raises at the point, or has nothing to differentiate.

    >>> from miniml import ops
    >>> gradcheck(ops.sin, np.array([0.3, 2.0])).ok
    True
    """
    highest = order if order is not None else 2 if isinstance(fn, Primitive) else 1
    with context(mode=current().mode if mode is None else mode):
        problem = _of_miniml(fn, args, argnums)
        return _checked(problem, highest, strict, raise_error, seed)


def gradcheck_vjp(
    f: Function,
    vjp: Function,
    *args: Any,
    strict: bool = False,
    raise_error: bool = True,
    seed: int = 0,
) -> GradReport:
    """Check a hand-written vector-Jacobian product of a plain NumPy function.

    f(*args) returns an array or a tuple of arrays. vjp(*args, dout), or vjp(*args, out, dout),
    returns the gradient, or a tuple with one for each argument (None: there is none); dout and out
    are tuples where f returns one. Report and errors are those of `gradcheck`.

    >>> gradcheck_vjp(np.sin, lambda x, dout: dout * np.cos(x), np.array([0.3, 2.0])).ok
    True
    """
    return _checked(_of_numpy(f, vjp, args), 1, strict, raise_error, seed)


class _Problem:
    """A function's floats, and the Map of each order."""

    def __init__(self, name: str, point: Arrays, maps: Callable[[int, Arrays], Map]):
        self.name, self.point, self.maps = name, point, maps


def _checked(
    problem: _Problem, highest: int, strict: bool, raise_error: bool, seed: int
) -> GradReport:
    report = GradReport(problem.name, strict=strict)
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        _check_orders(problem, highest, rng, report)
    report.sort()
    if raise_error and not report.ok:
        raise GradientError(report)
    return report


def _check_orders(
    problem: _Problem, highest: int, rng: np.random.Generator, report: GradReport
) -> None:
    point, fixed = problem.point, set[int]()
    for order in range(1, highest + 1):
        map_ = problem.maps(order, point)
        subject = _subject(map_, point, report)
        if fixed:
            report.notes.append(
                f"order {order}: {len(fixed)} elements without a derivative of order {order - 1} "
                "are held fixed"
            )
        fixed |= _check_order(subject, order, rng, report, fixed)
        if subject.raised:
            report.notes.append(f"the function raises near the point: {subject.raised}")
        if not report.wrong and all(f.dtype == float64 for f in subject.leaves):
            check_narrow(map_, subject, tuple(a.dtype for a in point), order, rng, report)
        report.forward_calls += subject.forward_calls
        if report.wrong or order == highest:
            break
        own = subject.shapes if subject.dtypes == tuple(a.dtype for a in point) else None
        shapes = own or _own_shapes(map_, point)
        douts = [_cotangent(rng, shape, dtype) for shape, dtype in shapes]
        point = [*point, *douts]


def _own_shapes(map_: Map, point: Arrays) -> Sequence[tuple[tuple[int, ...], DType]]:
    """Shapes and dtypes of the outputs in the dtypes that the function was given."""
    return at_point(map_, point, tuple(a.dtype for a in point)).shapes


def _cotangent(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    signs = rng.choice([-1.0, 1.0], size=shape)
    return np.asarray(signs * rng.uniform(0.5, 1.5, size=shape)).astype(dtype)


def _subject(map_: Map, point: Arrays, report: GradReport) -> Subject:
    """In float64 if the function runs there, else in the dtypes it was given."""
    own = tuple(a.dtype for a in point)
    if all(d == float64 for d in own):
        return at_point(map_, point, own)
    try:
        return at_point(map_, point, tuple(float64 for _ in own))
    except (DTypeError, KernelNotFoundError) as error:
        report.notes.append(
            f"the numeric side ran in {', '.join(sorted({d.name for d in own}))}: there is no "
            f"float64 kernel ({str(error).splitlines()[0]})"
        )
        return at_point(map_, point, own)


def _check_order(
    subject: Subject, order: int, rng: np.random.Generator, report: GradReport, fixed: set[int]
) -> set[int]:
    """Judge one order; returns the elements that have no derivative, or none that was found."""
    search = Search(subject, order, rng)
    if subject.unlike:
        search.found.append(_unlike(subject, order))
    try:
        gradient, faults = check_linearity(subject, order, rng)
        if order == 1:
            report.gradients = subject_arrays(subject, gradient)
        members = np.setdiff1d(np.flatnonzero(np.isfinite(subject.x)), sorted(fixed))
        _directions(search, members, report)
        search.diagnose()
        search.found = _with_faults(search.found, faults)
    except WrongGradientForm as error:
        leaf = subject.leaves[error.leaf] if error.leaf >= 0 else None
        nan = float("nan")
        search.found.append(
            Finding(
                WRONG, order, leaf and leaf.argnum, leaf.path if leaf else "", None, nan, nan, nan,
                str(error), leaf.argument if leaf else "",
            )
        )  # fmt: skip
    report.findings += search.found
    report.judged += len(search.judged)
    report.notes += search.notes
    return set(range(subject.x.size)) - search.judged | search.kinks


def _unlike(subject: Subject, order: int) -> Finding:
    what = "function" if order == 1 else f"pull-back of order {order - 1}"
    said = f"the {what} is not repeatable: two equal calls differ by up to {subject.unlike:.2g}"
    nan = float("nan")
    return Finding(UNKNOWN, order, None, "", None, nan, nan, nan, said, "outputs")


def _with_faults(found: list[Finding], faults: list[Finding]) -> list[Finding]:
    """Findings with what is known without differences: it names the fault of its argument."""
    said = {f.argument: f.diagnosis for f in faults}
    named = {f.argument for f in found if f.verdict == WRONG}
    merged = [
        replace(f, diagnosis=said[f.argument])
        if f.verdict == WRONG and f.argument in said else f
        for f in found
    ]  # fmt: skip
    return merged + [f for f in faults if f.argument not in named]


def _directions(search: Search, members: Array, report: GradReport) -> None:
    """Two random directions: one with steps like the numbers, one with equal steps in each array.

    If they agree, and each output has a derivative in one of them, all members are judged.
    """
    both = [probe(search.subject, members, search.rng, uniform) for uniform in (False, True)]
    for seen, what in zip(both, ("steps like the numbers", "equal steps"), strict=True):
        if seen.agrees and seen.sharp:
            _file_check(report, search.order, f"a random direction, {what}", seen)
    seen = both[0].joined(both[1])
    if seen.clean:
        search.judged.update(members.tolist())
    else:
        search.examine(seen)


def _file_check(report: GradReport, order: int, what: str, seen: Probe) -> None:
    report.checks.append(Check(order, what, seen.analytic, seen.numeric, seen.bar, seen.resolution))


def subject_arrays(subject: Subject, x: Array) -> Arrays:
    """A long float64 vector as arrays of the arguments' shapes."""
    return [x[f.part].reshape(f.shape).copy() for f in subject.leaves]


def _of_miniml(
    fn: Function, args: Sequence[Any], argnums: int | tuple[int, ...] | None
) -> _Problem:
    name = _name(fn)
    leaves, spec = optree.tree_flatten(tuple(args), none_is_leaf=True)
    paths = spec.paths()
    chosen = _chosen(fn, len(args), argnums)
    places = [i for i, leaf in enumerate(leaves) if paths[i][0] in chosen and is_float_leaf(leaf)]
    point = [np.array(leaves[i], dtype=_dtype_of(leaves[i])) for i in places]
    if not sum(a.size for a in point):
        shown = ", ".join(shown_leaf(leaf) for leaf in leaves) or "no arguments"
        raise GradientArgumentError(
            f"gradcheck of {name} has nothing to differentiate: it got {shown}; give at least one "
            "non-empty array or Tensor of floats"
        )
    devices = [leaves[i].device if isinstance(leaves[i], Tensor) else None for i in places]
    names = tuple(_leaf_name(paths[i]) for i in places)

    def outputs(*xs: Any) -> tuple[Any, ...]:
        filled = list(leaves)
        for i, x in zip(places, xs, strict=True):
            filled[i] = x
        result = fn(*spec.unflatten(filled))
        return tuple(floats_of(name, optree.tree_leaves(result, none_is_leaf=True)))

    counts: list[int] = []

    def maps(order: int, at: Arrays) -> Map:
        del counts[order - 1 :]
        counts.append(len(at))
        function, labels = outputs, list(names)
        for k, (before, after) in enumerate(itertools.pairwise(counts), 1):
            function = _pulled(function, before)
            labels += _dout_names(after - before, k)
        return _map(name, function, tuple(labels), devices)

    return _Problem(name, point, maps)


def _dout_names(count: int, order: int) -> list[tuple[int | None, str, str]]:
    marks = "" if order == 1 else f" of order {order}"
    return [(None, f"dout{i}", f"cotangent {i}{marks}") for i in range(count)]


def _pulled(function: Function, count: int) -> Function:
    """(x..., dout...) -> dx...: what the next order differentiates."""

    def pulled(*xs: Any) -> tuple[Any, ...]:
        _, pull = vjp(function, *xs[:count])
        return tuple(pull(tuple(xs[count:])))

    return pulled


def _map(
    name: str,
    function: Function,
    names: tuple[tuple[int | None, str, str], ...],
    devices: Sequence[str | None],
) -> Map:
    compiled = current().mode == GRAPH_MODE
    run_it = jit(function) if compiled else function
    backward = jit(_pulled(function, len(names))) if compiled else None
    where = [*devices, *([None] * (len(names) - len(devices)))]

    def tensors(arrays: Arrays) -> list[Tensor]:
        return [Tensor(a, device=d) for a, d in zip(arrays, where, strict=True)]

    def run(arrays: Arrays) -> Arrays:
        return [np.asarray(o) for o in run_it(*tensors(arrays))]

    def linearize(arrays: Arrays) -> Pull:
        xs = tensors(arrays)
        if backward is not None:
            return lambda douts: list(backward(*xs, *map(Tensor, douts)))
        _, pull = vjp(function, *xs)
        return lambda douts: list(pull(tuple(map(_tensor, douts))))

    return Map(name, run, linearize, names)


def _tensor(array: Array) -> Tensor:
    """A Tensor of a cotangent; on the CPU with the strides that it has."""
    on_cpu = current().device_target == "cpu" and not array.flags.c_contiguous
    return Tensor.wrap(array.view(), "cpu") if on_cpu else Tensor(array)


def _of_numpy(f: Function, backward: Function, args: Sequence[Any]) -> _Problem:
    name = _name(f)
    places = [i for i, a in enumerate(args) if is_float_leaf(a)]
    point = [np.array(args[i], dtype=_dtype_of(args[i])) for i in places]
    if not sum(a.size for a in point):
        shown = ", ".join(map(shown_leaf, args)) or "no arguments"
        raise GradientArgumentError(
            f"gradcheck_vjp of {name} has nothing to differentiate: it got {shown}; give at least "
            "one non-empty array of floats"
        )
    wants_out = _wants_out(backward, len(args))

    def filled(arrays: Arrays) -> list[Any]:
        given = list(args)
        for i, a in zip(places, arrays, strict=True):
            given[i] = a
        return given

    def run(arrays: Arrays) -> Arrays:
        out = f(*filled(arrays))
        found = floats_of(name, out if isinstance(out, (tuple, list)) else [out])
        return [np.asarray(o) for o in found]

    def linearize(arrays: Arrays) -> Pull:
        given = filled(arrays)
        out = f(*given)

        def pull(douts: Arrays) -> list[Any]:
            dout = _like_output(out, douts)
            kept = [a.tobytes() for a in arrays]
            result = backward(*given, out, dout) if wants_out else backward(*given, dout)
            if any(a.tobytes() != k for a, k in zip(arrays, kept, strict=True)):
                raise WrongGradientForm(-1, "the vjp writes into an argument of the function")
            result = result if isinstance(result, (tuple, list)) else (result,)
            if len(result) not in (len(args), len(places)):
                raise WrongGradientForm(
                    -1, f"the vjp returns {len(result)} gradients for {len(args)} arguments"
                )
            return [result[i] for i in places] if len(result) == len(args) else list(result)

        return pull

    names = tuple((i, "", f"argument {i}") for i in places)
    return _Problem(name, point, lambda order, at: Map(name, run, linearize, names))


def _like_output(out: Any, douts: Arrays) -> Any:
    """Cotangents in the form of the output, None for outputs that are no floats."""
    if not isinstance(out, (tuple, list)):
        return douts[0]
    left = iter(douts)
    return tuple(next(left) if is_float_leaf(o) else None for o in out)


def _wants_out(backward: Function, count: int) -> bool:
    try:
        parameters = inspect.signature(backward).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    return len(required) == count + 2


def _chosen(fn: Function, count: int, argnums: int | tuple[int, ...] | None) -> set[int]:
    const = {i for i, _ in fn._const} if isinstance(fn, Primitive) else set()
    if argnums is None:
        return set(range(count)) - const
    numbers = (argnums,) if isinstance(argnums, int) else argnums
    return {n % count for n in numbers}


def _dtype_of(leaf: Any) -> DType:
    return float64 if isinstance(leaf, float) and not isinstance(leaf, np.generic) else leaf.dtype


def _leaf_name(path: tuple[Any, ...]) -> tuple[int, str, str]:
    inner = "".join(f"[{p!r}]" for p in path[1:])
    return path[0], inner, f"argument {path[0]}{inner}"


def _name(fn: Any) -> str:
    if isinstance(fn, Primitive):
        return repr(fn)
    return getattr(fn, "__name__", None) or type(fn).__name__
