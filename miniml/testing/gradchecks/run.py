"""Gradient check: the gradient of a function at a point against differences, by element.

In order: `gradcheck` and `gradcheck_vjp`; the orders of derivatives, one after the other, with the
findings of each; a plain NumPy function with a hand-written pull-back as a Map; functions of
other frameworks' arrays, told by their arguments: a torch tensor or a JAX array among them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import optree

from ...backends.group import Group, of_several
from ...core.abstract import float64
from ...core.errors import (
    DistributedError,
    DTypeError,
    GradientArgumentError,
    KernelNotFoundError,
    MinimlError,
    TracedValueError,
)
from ...core.options import count
from ...core.parameter import logged
from ...core.primitive import Primitive
from ...core.settings import context
from ...core.tensor import Tensor
from ...grad.transforms import Given, Weights
from ...nn.cell import Cell
from ..calls import TimeIsUpError, lasting, time_is_up, without_c
from ..report import (
    CORRECT,
    KINK,
    UNKNOWN,
    WRONG,
    Agreement,
    Arrays,
    GradFinding,
    GradientError,
    GradReport,
    Verdict,
)
from ..tolerance import Array, Perturbation, of_one_size
from .linearity import blind, check_linearity, check_narrow, not_finite, unseen
from .probe import ties
from .problem import (
    Map,
    Pull,
    Subject,
    WrongGradientForm,
    as_array,
    at_point,
    device_of,
    dtype_of,
    floats_of,
    guarded,
    is_float_leaf,
    is_list_of_floats,
    name_of,
    nothing_in,
    of_miniml,
)
from .ranks import Leader, follow
from .search import Search, diagnosed

Function = Callable[..., Any]


def gradcheck(
    fn: Function,
    *args: Any,
    order: int | None = None,
    argnums: int | tuple[int, ...] | None = None,
    weights: Given | None = None,
    mode: int | None = None,
    strict: bool = False,
    raise_error: bool = True,
    seed: int = 0,
    budget: float | None = None,
    group: Group | None = None,
) -> GradReport:
    """Check the gradients of `fn` at `args` against differences of `fn`.

    fn: a function of trees of tensors to a tree of tensors, a Primitive or a Cell. args: Tensors,
    NumPy arrays, Python floats, or trees of these; everything else in them, including const inputs
    of a Primitive, is passed on unchanged. With torch tensors or JAX arrays among them fn is a
    function of such, also a torch.nn.Module or a class of torch.autograd.Function. A complex number
    counts as two, its real and its imaginary part, by both of which the gradient df/dx - i df/dy is
    checked. argnums: the arguments to differentiate, all by default. weights: Parameters that fn
    reads, to differentiate too: a Cell, a Parameter, a list or a dict; fn's own where fn is a Cell;
    no Parameter is changed. order: derivatives up to this one are checked; 2 by default for a
    Primitive, else 1. mode: PYNATIVE_MODE or GRAPH_MODE, by default the context's. seed: of the
    random directions. budget: seconds, after which elements not yet judged are listed as such.
    group: ranks that all call gradcheck, each with a function of its own that calls collectives,
    and arguments of its own: the gradient is that of the sum of all ranks' outputs by the arguments
    of each, and all ranks get the same report, or error.

    Differences run in float64, with an error bar of their own; a backward pass in a narrower
    dtype is compared with the float64 one, element by element. Raises GradientError, which has
    the `report`, if a gradient is wrong, if nothing could be judged, or with `strict` if anything
    could not be; `raise_error=False` returns the report. GradientArgumentError: `fn` returns no
    float, changes its arguments, raises at the point, or has nothing to differentiate.

    >>> from miniml import ops
    >>> gradcheck(ops.sin, np.array([0.3, 2.0])).ok
    True
    """
    framework = framework_of(args)
    if framework:
        fn, args = adapted(fn, args, framework)
    usual = 2 if isinstance(fn, Primitive) else 1
    highest = usual if order is None else count("gradcheck", "order", order)
    own = fn.trainable_params() if weights is None and isinstance(fn, Cell) else ()
    parameters = tuple(own) if weights is None else Weights.of(weights).parameters
    device = device_of(args, parameters)
    settings = context(mode=mode, device_target=device)
    with wide(framework), without_c(), settings, lasting(budget), logged() as log:
        try:
            map_, point = of_miniml(fn, args, argnums, parameters)
            several = group and of_several("gradcheck", group)
            return _of_ranks(several, map_, point, highest, strict, raise_error, seed)
        except TracedValueError as error:
            if not any(map(is_list_of_floats, args)):
                raise
            raise _of_lists(fn, args) from error
        finally:
            log.restore()


def _of_lists(fn: Function, args: tuple[Any, ...]) -> MinimlError:
    """The error for a function that gets a list of numbers and treats it as an array."""
    first = next(i for i, a in enumerate(args) if is_list_of_floats(a))
    return GradientArgumentError(
        f"gradcheck of {name_of(fn)} got a list for argument {first}, which is a tree of scalars, "
        "and the function makes an array of it; pass np.array([...])"
    )


def gradcheck_vjp(
    f: Function,
    vjp: Function,
    *args: Any,
    strict: bool = False,
    raise_error: bool = True,
    seed: int = 0,
    budget: float | None = None,
) -> GradReport:
    """Check a hand-written vector-Jacobian product of a plain NumPy function.

    f(*args) returns an array or a tuple of arrays. vjp(*args, dout), or vjp(*args, out, dout),
    returns the gradient, or a tuple with one for each argument (None for no gradient); dout and out
    are tuples where f returns one. Report, errors and options are those of `gradcheck`.

    >>> gradcheck_vjp(np.sin, lambda x, dout: dout * np.cos(x), np.array([0.3, 2.0])).ok
    True
    """
    with lasting(budget):
        return _checked(*_of_numpy(f, vjp, args), 1, strict, raise_error, seed)


def _checked(
    map_: Map, point: Arrays, highest: int, strict: bool, raise_error: bool, seed: int
) -> GradReport:
    report = GradReport(map_.name, strict=strict)
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        _check_orders(map_, point, highest, rng, report)
    report.sort()
    if raise_error and not report.ok:
        raise GradientError(report)
    return report


def _of_ranks(
    group: Group | None,
    map_: Map,
    point: Arrays,
    highest: int,
    strict: bool,
    raise_error: bool,
    seed: int,
) -> GradReport:
    """The report on all ranks, which rank 0 makes; GradientArgumentError where it could not. Of no
    group, that of this process."""
    if group is None:
        return _checked(map_, point, highest, strict, raise_error, seed)
    if group.rank:
        report = follow(group, map_, point)
        if isinstance(report, str):
            raise GradientArgumentError(f"rank 0, which checks for all, raised {report}")
    else:
        leader, every, points = Leader.of(group, map_, point)
        try:
            report = _checked(every, points, highest, strict, False, seed)
        except DistributedError:  # nobody hears it
            raise
        except BaseException as error:
            leader.end(f"{type(error).__name__}: {error}")
            raise
        leader.end(report)
    if raise_error and not report.ok:
        raise GradientError(report)
    return cast(GradReport, report)


# --- Orders of derivatives ------------------------------------------------------------------------


JUDGED = CORRECT, KINK, WRONG
COARSE = 1e-4  # a larger unit roundoff, as of 16 bits, leaves no difference sharp
NONE = np.zeros(0, np.int64)


def _check_orders(
    map_: Map, point: Arrays, highest: int, rng: np.random.Generator, report: GradReport
) -> None:
    """Check the derivatives of each order up to `highest`, or to the first that is wrong."""
    fixed = NONE
    for order in range(1, highest + 1):
        if time_is_up():
            report.findings.append(_late(order, f"the derivative of order {order}"))
            break
        subject = _subject(map_, point, rng, report)
        if fixed.size:
            report.notes.append(
                f"order {order}: {fixed.size} elements without a derivative of order {order - 1} "
                "are held fixed"
            )
        fixed = np.union1d(fixed, _check_order(subject, report, fixed))
        if subject.raised:
            report.notes.append(f"the function raises near the point: {subject.raised}")
        if not report.findings and map_.forward is not None and not subject.unlike:
            _check_forward(subject, highest, report)
        given = tuple(a.dtype for a in point)
        if not report.wrong and subject.dtypes != given:
            if time_is_up():
                report.findings.append(_late(order, "the backward in its own dtypes"))
            else:
                check_narrow(subject, given, report)
        report.forward_calls += subject.forward_calls
        if report.wrong or order == highest or map_.following is None:
            break
        own = subject if subject.dtypes == given else at_point(map_, point, given, rng)
        point = [*point, *(subject.random(shape).astype(dtype) for shape, dtype in own.shapes)]
        map_ = map_.following()


def _subject(map_: Map, point: Arrays, rng: np.random.Generator, report: GradReport) -> Subject:
    """The Subject, in float64 if the function runs in it, else in the dtypes of the point."""
    own = tuple(a.dtype for a in point)
    if all(d == float64 for d in own):
        return at_point(map_, point, own, rng)
    try:
        return at_point(map_, point, tuple(float64 for _ in own), rng)
    except (DTypeError, KernelNotFoundError) as error:
        note = (
            f"the numeric side ran in {', '.join(sorted({d.name for d in own}))}: there is no "
            f"float64 kernel ({str(error).splitlines()[0]})"
        )
        if note not in report.notes:
            report.notes.append(note)
        return at_point(map_, point, own, rng)


def _check_order(subject: Subject, report: GradReport, fixed: Array) -> Array:
    """Judge one order; return the elements for which no derivative exists, or was found."""
    order = subject.map.order
    found, faults, verdicts = not_finite(subject), list[GradFinding](), list[Verdict]()
    lost = NONE
    try:
        gradient, faults = check_linearity(subject)
        if order == 1:
            report.gradients = [gradient[f.part].reshape(f.shape).copy() for f in subject.leaves]
        dark, still = blind(subject)
        finite = np.setdiff1d(np.flatnonzero(np.isfinite(subject.x)), fixed)
        members = np.setdiff1d(finite, dark)
        if members.size and subject.roundoff > COARSE:
            found.append(_too_coarse(subject, members))
        elif members.size and np.isfinite(subject.y).any():
            for verdict in Search(subject, report).judge_all(members):
                verdicts.append(verdict)
            verdicts = diagnosed(subject, members, verdicts)
            verdicts += ties(subject, verdicts)
        if np.isfinite(subject.y).any():
            lost = np.union1d(dark, np.intersect1d(_elements(verdicts, CORRECT, KINK), still))
            found += unseen(subject, np.setdiff1d(lost, fixed))
    except WrongGradientForm as error:
        found.append(error.finding(order))
    except TimeIsUpError:
        left = subject.x.size - _elements(verdicts, *JUDGED).size
        found.append(_late(order, f"{left} elements" if left else "ties among kinks"))
    if subject.unlike:
        found.append(_unlike(subject))
        report.repeatable &= subject.repeatable
    found += [f for v in verdicts for f in v.findings]
    report.findings += _with_faults(found, faults)
    judged = np.setdiff1d(_elements(verdicts, *JUDGED), lost)
    report.judged += judged.size
    unknown = np.setdiff1d(np.arange(subject.x.size), judged)
    return np.union1d(unknown, _elements(verdicts, KINK))


FORWARD = "forward mode"


def _check_forward(subject: Subject, highest: int, report: GradReport) -> None:
    """Compare <dout, J t> of forward mode with <pull(dout), t>, for one random dout and t.

    Where something is not finite nothing is compared; a refusal of forward mode becomes a note.
    highest: the order up to which derivatives are checked. A tangent that is the transpose of a
    bprop, which loses the gradient of its cotangent, is left to order 2.
    """
    rng = np.random.default_rng(0)  # its own, so that other checks see the same numbers
    along, dout = of_one_size(rng, subject.x.size), of_one_size(rng, subject.y.size)
    try:
        moved = subject.tangent(along)
    except MinimlError as error:
        report.notes.append(f"{FORWARD} was not compared: {str(error).splitlines()[0]}")
        return
    terms, others = dout * moved, along * subject.pull(dout)
    if not np.isfinite(terms).all() or not np.isfinite(others).all():
        return
    tolerance = float(np.sqrt(subject.roundoff))
    bar = tolerance * float(np.abs(terms).sum() + np.abs(others).sum())
    analytic, numeric = float(terms.sum()), float(others.sum())
    if abs(analytic - numeric) > bar:  # what casts to narrower dtypes round is no fault
        bar += 8.0 * (
            _roughness(subject.tangent, along, moved, dout)
            + _roughness(subject.pull, dout, subject.pull(dout), along)
        )
    if abs(analytic - numeric) <= bar:
        what = f"{FORWARD}, the tangent along one direction against the pull-back"
        report.checks.append(Agreement(1, what, analytic, numeric, bar, tolerance))
        return
    assert subject.map.forward is not None
    why = subject.map.forward.fault(subject.arrays(subject.x), rng, tolerance)
    if why or highest == 1:
        why = why or "the tangent is not what the pull-back gives"
        report.findings.append(
            GradFinding(WRONG, 1, why, FORWARD, analytic=analytic, numeric=numeric, error_bar=bar)
        )


def _roughness(fn: Callable[[Array], Array], v: Array, value: Array, weights: Array) -> float:
    """By how much rounding moves <weights, fn(v)>, as linear functions of scaled vectors show."""
    others = [fn(v * scale) / scale for scale in (1.37, 0.71)]
    return float(max(np.abs(weights * (other - value)).sum() for other in others))


def _elements(verdicts: list[Verdict], *kinds: str) -> Array:
    """The elements with one of these kinds of verdict."""
    return np.unique(np.concatenate([NONE, *(v.members for v in verdicts if v.kind in kinds)]))


def _late(order: int, what: str) -> GradFinding:
    message = "not judged: the budget was used up; give more"
    return GradFinding(UNKNOWN, order, message, what)


def _too_coarse(subject: Subject, members: Array) -> GradFinding:
    names = ", ".join(sorted({d.name for d in subject.dtypes}))
    message = (
        f"{members.size} elements: rounding to {names} hides the derivative from differences; "
        "with a kernel in float64 beside it (d->d) it could be judged"
    )
    return GradFinding(UNKNOWN, subject.map.order, message, "inputs")


def _unlike(subject: Subject) -> GradFinding:
    order = subject.map.order
    what = "function" if order == 1 else f"pull-back of order {order - 1}"
    message = f"the {what} is not repeatable: two equal calls differ by up to {subject.unlike:.2g}"
    if subject.remembers:
        message = (
            f"the {what} depends on earlier calls: equal calls, with others between them, differ "
            f"by up to {subject.unlike:.2g}; it has a state, or a cache that takes others for them"
        )
    return GradFinding(UNKNOWN, order, message, "outputs")


def _with_faults(found: list[GradFinding], faults: list[GradFinding]) -> list[GradFinding]:
    """The findings together with the faults known without differences, which become the diagnosis
    of wrong findings on the same argument."""
    known = {f.argument: f.diagnosis for f in faults}
    named = {f.argument for f in found if f.verdict == WRONG}
    merged = [
        replace(f, diagnosis=known[f.argument]) if f.verdict == WRONG and f.argument in known else f
        for f in found
    ]
    return merged + [f for f in faults if f.argument not in named]


# --- A plain NumPy function as a Map --------------------------------------------------------------


def _of_numpy(f: Function, backward: Function, args: Sequence[Any]) -> tuple[Map, Arrays]:
    """The Map of a function of arrays with a hand-written pull-back, and its point."""
    name, args = name_of(f), [as_array(a) for a in args]
    positions = [i for i, a in enumerate(args) if is_float_leaf(a)]
    point = [np.array(args[i], dtype=dtype_of(args[i])) for i in positions]
    if not sum(a.size for a in point):
        raise nothing_in(f"gradcheck_vjp of {name}", args, "array")
    takes_out = _takes_out(backward, len(args))
    inexact: list[tuple[Perturbation, np.random.Generator]] = []

    def filled(arrays: Arrays) -> list[Any]:
        given = list(args)
        for i, a in zip(positions, arrays, strict=True):
            given[i] = a
        return given

    def run(arrays: Arrays) -> Arrays:
        return [np.asarray(o) for o in floats_of(name, _outputs(f(*filled(arrays))))]

    def linearize(arrays: Arrays) -> Pull:
        given = filled(arrays)
        out = f(*given)
        for by, rng in inexact:
            outs = [by.of(o, rng) if is_float_leaf(o) else o for o in _outputs(out)]
            out = tuple(outs) if isinstance(out, (tuple, list)) else outs[0]

        def pull(douts: Arrays) -> list[Any]:
            dout = _like_output(out, douts)
            result = _outputs(backward(*given, out, dout) if takes_out else backward(*given, dout))
            if len(result) == len(args):
                return [result[i] for i in positions]
            if len(result) != len(positions):
                raise WrongGradientForm(
                    f"the vjp returns {len(result)} gradients for {len(args)} arguments"
                )
            return list(result)

        return guarded(pull, [*arrays, *filter(is_float_leaf, _outputs(out))])

    @contextmanager
    def rounding(by: Perturbation, rng: np.random.Generator) -> Iterator[None]:
        """Perturb the output, which the vjp may take: of a plain function nothing else is
        visible."""
        inexact.append((by, rng))
        try:
            yield
        finally:
            inexact.clear()

    names = tuple((i, "", f"argument {i}") for i in positions)
    return Map(name, run, linearize, names, rounding), point


def _outputs(out: Any) -> Sequence[Any]:
    return out if isinstance(out, (tuple, list)) else (out,)


def _like_output(out: Any, douts: Arrays) -> Any:
    """Cotangents in the form of the output, None for outputs that are not floats."""
    if not isinstance(out, (tuple, list)):
        return douts[0]
    left = iter(douts)
    return tuple(next(left) if is_float_leaf(o) else None for o in out)


def _takes_out(backward: Function, count: int) -> bool:
    try:
        parameters = inspect.signature(backward).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == count + 2


# --- Functions of other frameworks' arrays, as functions of tensors -------------------------------


def framework_of(args: Sequence[Any]) -> str:
    """ "torch" or "jax" where an array of it is among the arguments, else "". MinimlError for
    both."""
    leaves = optree.tree_leaves(cast(Any, tuple(args)), none_is_leaf=True)
    found = set()
    for name, kind in (("torch", "Tensor"), ("jax", "Array")):
        loaded = sys.modules.get(name)  # an array of it exists only if it is imported
        if loaded is not None and any(isinstance(x, getattr(loaded, kind)) for x in leaves):
            found.add(name)
    if len(found) > 1:
        raise MinimlError(
            "gradcheck got torch tensors and JAX arrays; a function takes those of one of them"
        )
    return "".join(found)


def adapted(fn: Function, args: Sequence[Any], framework: str) -> tuple[Function, tuple[Any, ...]]:
    """The function, which computes with that framework, as one of tensors, and its arguments.

    A torch.nn.Module becomes a Cell, whose parameters are checked too; of a class of
    torch.autograd.Function, `apply` is checked. What the framework raises is a DTypeError, since in
    float64 it may be so for the dtype alone: the check then goes on in those that were given.
    """
    convert: Any
    if framework == "torch":
        from ...interop.pytorch import array_in, torch  # noqa: PLC0415 - optional
        from ...interop.torch_functions import from_torch  # noqa: PLC0415

        if isinstance(fn, type) and issubclass(fn, torch.autograd.Function):
            fn = fn.apply  # type: ignore[attr-defined]
        taken, convert, kind = from_torch(fn), array_in, torch.Tensor
    else:
        from ...interop.jax import from_jax, jax  # noqa: PLC0415 - optional

        taken, convert, kind = from_jax(fn), np.asarray, jax.Array
    given = optree.tree_map(
        lambda x: Tensor(convert(x)) if isinstance(x, kind) else x,
        cast(Any, tuple(args)), none_is_leaf=True,
    )  # fmt: skip
    if not isinstance(taken, Cell):
        taken = refusing(taken, taken.__name__)
    return taken, tuple(cast(Any, given))


@contextmanager
def wide(framework: str) -> Iterator[None]:
    """In the block JAX computes in float64 where it is asked to."""
    if framework == "jax":
        from ...interop.jax import jax  # noqa: PLC0415 - optional

        with jax.enable_x64(True):
            yield
    else:
        yield


def refusing(fn: Function, name: str) -> Function:
    """The function, whose framework's errors are DTypeErrors."""

    def call(*args: Any) -> Any:
        try:
            return fn(*args)
        except MinimlError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            dtypes = sorted({x.dtype.name for x in args if isinstance(x, Tensor)})
            raise DTypeError(
                f"{name} raised {type(error).__name__} for {', '.join(dtypes)}: {error}"
            ) from error

    call.__name__ = name
    return call
