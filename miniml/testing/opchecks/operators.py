"""opcheck of operators of torch.library: what the schema, the fake and the gradient promise.

In order: `check_operator`; the checks, each of which yields what is wrong with one call. The
operator is called by itself, never through a wrapper, so that no finding is one of the wrapper's.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

from ...core.errors import ArityError
from ..calls import Stopwatch, TimeIsUpError, go_on, lasting_until
from ..gradchecks.run import gradcheck
from ..report import WRONG, OpFinding, OpReport, Severity, in_order
from .operator_calls import (
    LAYOUTS,
    Call,
    Operator,
    bits_equal,
    called,
    laid_out,
    name_at,
    near,
    operator_of,
    outputs,
    program,
    put,
    resized,
    retyped,
    samples_of,
    shown_type,
    torch,
    variants,
)

Remark = tuple[Severity, str, str]  # what is wrong, and what to do about it
BUDGET = 30.0  # seconds: the first call of a fake takes two, to import what it needs
_RERUNS = 3
_SEVERAL = 4
NAN = float("nan")


def check_operator(
    value: Any,
    inputs: Any,
    budget: float | None = None,
    seed: int | None = None,
    checks: Sequence[str] | None = None,
) -> OpReport:
    """The report on an operator; inputs: those of one call, a tuple, or a list of such.

    Each fault is told once, in the first call that shows it.
    """
    operator = operator_of(value)
    calls = [Call(operator, one) for one in samples_of(operator, inputs)]
    chosen = known_checks("opcheck of an operator", checks, CHECKS)
    watch, counts = Stopwatch(), dict.fromkeys(chosen, 0)
    notes: list[str] = []
    found: dict[tuple[str, ...], OpFinding] = {}
    seconds = BUDGET if budget is None else budget
    with lasting_until(lambda: watch.elapsed() >= seconds), _as_it_was():
        for name, call in product(chosen, calls):
            try:
                go_on()
                counts[name] += 1
                for severity, text, advice in CHECKS[name](call, seed or 0):
                    if advice == _NOTE:
                        notes.append(text)
                        continue
                    finding = OpFinding(name, severity, text, advice, program(name, call))
                    found.setdefault((name, severity, advice), finding)
            except TimeIsUpError:
                notes.append(f"the budget was used up in {name}; give more")
    findings = in_order([*found.values(), *_nothing(operator, counts, calls[0])])
    shown = tuple(dict.fromkeys(notes))
    return OpReport(operator.name, findings, counts, shown, watch.seconds())


def _nothing(operator: Operator, counts: dict[str, int], call: Call) -> list[OpFinding]:
    """The finding that the budget ended before anything was checked."""
    text = f"{operator.name}: nothing was checked before the budget was used up"
    advice = "give more seconds: opcheck(op, inputs=(x,), budget=60)"
    found = OpFinding("budget", "cannot judge", text, advice, program("runs", call))
    return [] if any(counts.values()) else [found]


@contextmanager
def _as_it_was() -> Iterator[None]:
    """After the block the stream of random numbers stands where it stood."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def known_checks(who: str, checks: Sequence[str] | None, known: Collection[str]) -> tuple[str, ...]:
    """The checks, by default all that are known; ArityError for others."""
    unknown = [name for name in checks or () if name not in known]
    if isinstance(checks, str) or unknown:
        raise ArityError(f"{who} knows no checks {checks!r}; they are {', '.join(known)}")
    return tuple(known if checks is None else checks)


# --- Checks ---------------------------------------------------------------------------------------


_NOTE = "note"  # the advice of remarks that are notes


def runs(call: Call, _: int) -> Iterator[Remark]:
    """The call that was given runs, and returns what the schema says."""
    try:
        with torch.no_grad():
            call.operator(call.fresh())
    except Exception as error:
        text = " ".join(str(error).split())
        advice = "give inputs that the operator takes, or correct it"
        if "alias" in text:
            advice = "return a clone: an output must not share an input's memory"
        yield "fault", f"{called(call)} raises {type(error).__name__}: {text[:300]}", advice


def schema(call: Call, _: int) -> Iterator[Remark]:
    """The inputs it writes to, and memory that its outputs share, against the declaration."""
    for made in (call, *laid_out(call), *resized(call)):
        inputs, before = made.fresh(), made.fresh()
        forms = [_form(x) for x in inputs]
        try:
            with torch.no_grad():
                outs = outputs(call.operator(inputs))
        except Exception:  # `runs` tells of those that were given
            continue
        for i in made.tensors:
            wrote = not bits_equal(inputs[i], before[i]) or _form(inputs[i]) != forms[i]
            if wrote and not call.operator.writes(i):
                name = name_at(call, i)
                yield (
                    "fault", f"{called(made)} writes to {name}, and the schema says that it does "
                    "not", f"declare it: mutates_args=({name!r},), or write to a clone",
                )  # fmt: skip
            if made.given and not wrote and call.operator.writes(i) and inputs[i].numel():
                yield (
                    "warning", f"{called(made)} declares that it writes to {name_at(call, i)}, and "
                    "leaves it as it was", "leave it out of mutates_args, if it never does",
                )  # fmt: skip
        yield from _shared(made, inputs, outs)


def _form(x: Any) -> Any:
    return (x.shape, x.stride(), x.storage_offset()) if isinstance(x, torch.Tensor) else None


def _shared(call: Call, inputs: Sequence[Any], outs: Sequence[Any]) -> Iterator[Remark]:
    """The outputs whose memory is an input's or another output's, unless the schema says so."""
    returns = call.operator.overload._schema.returns
    for j, out in enumerate(outs):
        declared = j < len(returns) and returns[j].alias_info is not None
        if declared or not out.numel():
            continue
        for i in call.tensors:
            if _memory(out) == _memory(inputs[i]):
                text = f"{called(call)}: output {j} shares the memory of {name_at(call, i)}"
                yield "fault", text, "return a clone, or declare the alias in the schema"
        for k in range(j):
            if _memory(out) == _memory(outs[k]):
                text = f"{called(call)}: outputs {k} and {j} share memory"
                yield "fault", text, "return a clone of one of them"


def _memory(x: Any) -> int:
    return int(x.untyped_storage().data_ptr())


def fake(call: Call, _: int) -> Iterator[Remark]:
    """Shapes, dtypes and strides that the fake promises, against those of real calls."""
    for made in variants(call):
        real = made.runs()
        if real is None:
            continue
        try:
            seen = outputs(_faked(made))
        except Exception as error:
            if "DynamicOutput" in type(error).__name__ or "DataDependent" in type(error).__name__:
                continue
            text = " ".join(str(error).split())[:300]
            yield (
                made.severity, f"the fake of {called(made)} raises {type(error).__name__}: {text}",
                "register a fake that takes what the operator takes",
            )  # fmt: skip
            return
        yield from _compared(made, seen, real)
    if call.runs() is not None:
        yield from _symbolic(call)


def _symbols() -> Any:
    """torch's module of symbolic shapes, which torch itself imports late."""
    return importlib.import_module("torch.fx.experimental.symbolic_shapes")


def _faked(call: Call) -> Any:
    shapes = _symbols().ShapeEnv()
    mode = torch._subclasses.FakeTensorMode(shape_env=shapes, static_shapes=True)
    inputs = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in call.fresh()]
    with mode, torch.no_grad():
        return call.operator(inputs)


def _compared(call: Call, seen: Sequence[Any], real: Sequence[Any]) -> Iterator[Remark]:
    """Promises of fake outputs that real ones do not keep."""
    if len(seen) != len(real):
        text = f"the fake of {called(call)} returns {len(seen)} tensors, the call {len(real)}"
        yield "fault", text, "let the fake return what the operator returns"
    for j, (a, b) in enumerate(zip(seen, real)):
        promised = [n for n in a.shape if type(n) is int]
        if len(promised) < a.ndim:  # an extent that depends on numbers
            if a.ndim != b.ndim or a.dtype != b.dtype:
                text = f"the fake of {called(call)} gives output {j} rank {a.ndim}, not {b.ndim}"
                yield "fault", text, "correct the shape of the fake"
        elif (tuple(a.shape), a.dtype, a.device) != (tuple(b.shape), b.dtype, b.device):
            text = f"the fake of {called(call)} gives output {j} as {shown_type(a)}, and it is "
            advice = "correct the shape of the fake" if a.dtype == b.dtype else "correct its dtype"
            yield "fault", f"{text}{shown_type(b)}", advice
        elif not _same_strides(a, b):
            text = f"the fake of {called(call)} gives output {j} strides {tuple(a.stride())}, "
            advice = "make both contiguous, or let the fake follow the layout"
            yield "fault", f"{text}and they are {tuple(b.stride())}", advice


def _same_strides(a: Any, b: Any) -> bool:
    """True where the strides of axes longer than one are the same."""
    if b.numel() == 0:
        return True
    pairs = zip(b.shape, a.stride(), b.stride(), strict=True)
    return all(n < 2 or s == t for n, s, t in pairs)


def _symbolic(call: Call) -> Iterator[Remark]:
    """The fake takes extents that are symbols, as torch.compile(dynamic=True) gives it."""
    shapes = _symbols()
    policy = shapes.StatelessSymbolicContext
    mode = torch._subclasses.FakeTensorMode(shape_env=shapes.ShapeEnv())
    inputs: list[Any] = []
    for x in call.fresh():
        if isinstance(x, torch.Tensor):
            sizes = [shapes.DimDynamic.DYNAMIC] * x.ndim
            x = mode.from_tensor(x, symbolic_context=policy(dynamic_sizes=sizes))
        inputs.append(x)
    try:
        with mode, torch.no_grad():
            call.operator(inputs)
    except Exception as error:
        if "DynamicOutput" in type(error).__name__ or "DataDependent" in type(error).__name__:
            return
        text = " ".join(str(error).split())[:300]
        yield (
            "fault", f"the fake of {called(call)} with symbols as extents raises "
            f"{type(error).__name__}: {text}", "use extents as they are, without int() or numpy",
        )  # fmt: skip


def layouts(call: Call, _: int) -> Iterator[Remark]:
    """Outputs for inputs in other layouts are those for contiguous ones."""
    for made in laid_out(call):
        plain = made.changed(lambda x: x.contiguous().clone(), "", made.tensors)
        wanted, got = plain.runs(), made.runs()
        if wanted is None or call.operator.random:
            continue
        if got is None and _fake_refuses(made):
            continue  # such as view does
        if got is None:
            yield (
                "fault", f"{called(made)} raises, and with contiguous inputs it does not",
                "make inputs contiguous first, or read them by their strides",
            )  # fmt: skip
        elif not all(map(near, got, wanted)):
            yield (
                "fault", f"{called(made)} gives other numbers than with contiguous inputs",
                "make inputs contiguous first, or read them by their strides",
            )  # fmt: skip


def _fake_refuses(call: Call) -> bool:
    """True where the fake raises too: the operator means to."""
    try:
        _faked(call)
    except Exception:
        return True
    return False


def determinism(call: Call, _: int) -> Iterator[Remark]:
    """Equal calls give equal outputs, of which every element is written, and which stay."""
    if call.operator.random:
        yield "warning", "determinism: not checked, a tag says that it draws random numbers", _NOTE
        return
    first = call.runs()
    if first is None:
        return
    kept = [x.clone() for x in first]
    for made in resized(call):  # calls in between, which might leave something behind
        made.runs()
    again = [x for x in (call.runs() for _ in range(_RERUNS)) if x is not None]
    if not all(map(bits_equal, first, kept)):
        text = f"{called(call)}: its outputs change when it is called again"
        yield "fault", text, "return memory of its own with each call"
    if any(not all(map(near, outs, kept)) for outs in again):
        text = f"{called(call)} gives other outputs when it is called again"
        yield "fault", text, "let it depend on its inputs alone, or give it a tag for random ones"
        return
    for made in (call, *resized(call)):
        yield from _unwritten(made)


def _unwritten(call: Call) -> Iterator[Remark]:
    """Outputs that show what torch.empty held."""
    plain = call.runs()
    if plain is None:
        return
    with _filled():
        filled = call.runs()
    if filled is not None and not all(map(near, filled, plain)):
        text = f"{called(call)}: an output has elements that were never written"
        yield "fault", text, "write every element of what torch.empty gives, or use torch.zeros"


@contextmanager
def _filled() -> Iterator[None]:
    """In the block torch.empty gives NaN and large integers."""
    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warns)


def sizes(call: Call, _: int) -> Iterator[Remark]:
    """Where the fake takes empty and 0-d tensors, the operator does; the converse is `fake`'s."""
    for made in resized(call):
        if made.runs() is not None:
            continue
        if _fake_refuses(made):
            continue
        try:
            with torch.no_grad():
                call.operator(made.fresh())
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            yield (
                "warning", f"{called(made)} raises {type(error).__name__}: {text}; its fake "
                "takes them", "take them, or refuse them in the fake too",
            )  # fmt: skip


def dtypes(call: Call, _: int) -> Iterator[Remark]:
    """In other dtypes the outputs are those of float64, rounded."""
    if call.operator.random or not call.floats:
        return
    for made in retyped(call):
        got = made.runs()
        wide = made.changed(lambda x: x.double(), "", made.floats).runs()
        if got is None or wide is None or len(got) != len(wide):
            continue
        for a, b in zip(got, wide, strict=True):
            if not a.is_floating_point() or a.shape != b.shape:
                continue
            loss = max(torch.finfo(made.inputs[i].dtype).eps for i in made.floats)
            if a.dtype != made.inputs[made.floats[0]].dtype:
                loss = max(loss, torch.finfo(a.dtype).eps)
            if not torch.isfinite(b.to(a.dtype)).all():
                continue  # too large for that dtype
            if not near(a.double(), b.double(), loss):
                text = f"{called(made)} gives other numbers than in float64, beyond rounding"
                yield "fault", text, "compute in the dtype of the inputs, or refuse it"
    yield from _narrow_inside(call)


def _narrow_inside(call: Call) -> Iterator[Remark]:
    """The remark that float64 outputs are those of float32, though the inputs are not."""
    made = call.changed(_of_many_digits, "", call.floats)
    for x in made.runs() or ():
        if x.dtype == torch.float64:
            kept = x[torch.isfinite(x) & (x != x.round())]
            if kept.unique().numel() > _SEVERAL and bool((kept.float().double() == kept).all()):
                text = f"{called(made)}: all of its float64 numbers are those of float32"
                yield "warning", text, "compute in the dtype of the inputs"


def _of_many_digits(x: Any) -> Any:
    """The tensor in float64, its numbers moved a little, to those that float32 has not."""
    return x.double() * (1.0 + 2.0**-32 * math.sqrt(2.0))


def special(call: Call, _: int) -> Iterator[Remark]:
    """A NaN reaches an output that depends on its place."""
    plain = call.runs()
    if plain is None or call.operator.random:
        return
    for i in call.floats:
        x = call.inputs[i]
        if not x.numel() or any(s == 0 for s in x.stride()):
            continue
        place = (0,) * x.ndim
        moved, gone = (put(call, i, place, v).runs() for v in (float(x[place]) + 0.125, NAN))
        if moved is None or gone is None:
            continue
        for a, b, c in zip(moved, plain, gone, strict=True):
            if not (a.is_floating_point() and a.shape == b.shape == c.shape):
                continue
            depends = (a != b) & torch.isfinite(b)
            if depends.any() and not torch.isnan(c[depends]).any():
                text = f"{called(call)}: a NaN in {name_at(call, i)}{list(place)} becomes a number"
                yield "warning", text, "let NaN pass, if that is not meant"


def gradient(call: Call, seed: int) -> Iterator[Remark]:
    """Gradients against differences, at the inputs and other sizes; then in other forms."""
    state = _differentiable(call)
    if state:
        if state != "none":
            yield "warning", state, _NOTE
        return
    others = [made for made in resized(call) if made.runs() is not None and _small(made)]
    for made in (call, *others[:2], *(made for made in others if "0-d" in made.what)):
        yield from _judged(made, seed)
    yield from _forms(call)


def _small(call: Call) -> bool:
    return 0 < max((call.inputs[i].numel() for i in call.floats), default=0) <= 400


def _differentiable(call: Call) -> str:
    """Why gradients are not checked; "none" where nothing is to be said."""
    outs = call.runs() if call.floats else None
    if not any(x.is_floating_point() for x in outs or ()):
        return "none"
    if not call.operator.pure or call.operator.random:
        return "gradient: not checked for an operator that writes to an input or draws numbers"
    try:
        _pulled(call)
    except RuntimeError as error:
        if "no autograd formula" in str(error) or "does not require grad" in str(error):
            return "gradient: not checked, none is registered"
    except Exception:
        return ""
    return ""


def _judged(call: Call, seed: int) -> Iterator[Remark]:
    """The remarks of gradcheck on one call."""
    at = call.floats
    numbers = [i for i in call.tensors if i in at]

    def function(*given: Any) -> Any:
        inputs = list(call.inputs)
        for i, x in zip(numbers, given, strict=True):
            inputs[i] = x
        outs = [x for x in outputs(call.operator(inputs)) if x.is_floating_point()]
        return tuple(outs)

    function.__name__ = call.operator.name.replace("::", "_")
    try:
        given = [call.inputs[i].contiguous() for i in numbers]
        report = gradcheck(function, *given, raise_error=False, seed=seed)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        if "returned None" in text or "no float" in text:
            return
        yield (
            call.severity, f"{called(call)}: its gradient raises {type(error).__name__}: {text}",
            "correct the function given to register_autograd",
        )  # fmt: skip
        return
    for found in report.findings:
        if found.verdict == WRONG:
            name = name_at(call, numbers[found.argnum]) if found.argnum is not None else "an input"
            index = f"{list(found.index)}" if found.index else ""
            yield (
                "fault", f"{called(call)}: the gradient of {name}{index} is {found.analytic:.8g}, "
                f"and differences give {found.numeric:.8g} ({found.diagnosis})",
                "correct the function given to register_autograd",
            )  # fmt: skip
            return


def _pulled(call: Call, ready: Callable[[Any], Any] = lambda d: d, at: Any = None) -> list[Any]:
    """The gradients of the inputs at these positions, by cotangents of numbers from 1 to 2."""
    inputs, wanted = list(call.fresh()), call.floats if at is None else at
    for i in wanted:
        inputs[i].requires_grad_()
    outs = [x for x in outputs(call.operator(inputs)) if x.is_floating_point()]
    douts = [ready(cotangent(x)) for x in outs]
    xs = [inputs[i] for i in wanted]
    return list(torch.autograd.grad(outs, xs, douts, allow_unused=True, materialize_grads=True))


def cotangent(x: Any) -> Any:
    """Numbers from 1 to 2, none of them like its neighbours."""
    steps = torch.arange(x.numel(), dtype=torch.float64).mul(0.61803398875).remainder(1.0)
    return steps.add(1.0).to(x.dtype).reshape(x.shape)


def _forms(call: Call) -> Iterator[Remark]:
    """Gradients of the same call in other forms: cotangents and inputs in other layouts, one input
    at a time, twice."""
    wanted = _got(call)
    if wanted is None:
        return
    advice = "let the backward read cotangents and inputs by their strides, and write to neither"
    for what, change in LAYOUTS.items():
        same = _got(call, _then_contiguous(change))
        got = _got(call, change)
        if same is not None and (got is None or not all(map(near, got, same))):
            text = f"{called(call)}: with the cotangent {what}, its gradient is another one"
            yield "fault", text if got is not None else f"{text}: it raises", advice
    for made in laid_out(call):
        if made.runs() is None:
            continue
        plain = made.changed(lambda x: x.contiguous().clone(), "", made.tensors)
        got, same = _got(made), _got(plain)
        if same is not None and (got is None or not all(map(near, got, same))):
            yield "fault", f"{called(made)}: its gradient differs from contiguous inputs'", advice
    for k, i in enumerate(call.floats) if len(call.floats) > 1 else ():
        got = _got(call, at=[i])
        if got is None or not near(got[0], wanted[k]):
            text = f"{called(call)}: the gradient of {name_at(call, i)} alone is another one"
            yield "fault", text, "return the gradients by needs_input_grad, None for the others"
    yield from _written(call)
    again = _got(call)
    if again is not None and not all(map(near, again, wanted)):
        text = f"{called(call)}: its gradient is another one when it is asked for again"
        yield "fault", text, "let the backward depend on cotangents and saved tensors alone"


def _then_contiguous(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The numbers of a tensor in another layout, in the usual one."""
    return lambda d: change(d).contiguous().clone()


def _got(
    call: Call, ready: Callable[[Any], Any] = lambda d: d, at: Sequence[int] | None = None
) -> list[Any] | None:
    try:
        return _pulled(call, ready, at)
    except Exception:
        return None


def _written(call: Call) -> Iterator[Remark]:
    """The remark that the backward writes to its cotangents or to saved inputs."""
    inputs = list(call.fresh())
    for i in call.floats:
        inputs[i].requires_grad_()
    outs = [x for x in outputs(call.operator(inputs)) if x.is_floating_point()]
    douts = [cotangent(x) for x in outs]
    kept = [(x, x.detach().clone()) for x in (*douts, *(inputs[i] for i in call.tensors))]
    try:
        torch.autograd.grad(outs, [inputs[i] for i in call.floats], douts, allow_unused=True)
    except Exception:
        return
    if not all(bits_equal(x.detach(), old) for x, old in kept):
        text = f"{called(call)}: the backward writes to a cotangent or to a saved tensor"
        yield "fault", text, "write to memory of its own"


CHECKS: dict[str, Callable[[Call, int], Iterator[Remark]]] = {
    "runs": runs, "schema": schema, "fake": fake, "layouts": layouts, "determinism": determinism,
    "sizes": sizes, "dtypes": dtypes, "special values": special, "gradient": gradient,
}  # fmt: skip
