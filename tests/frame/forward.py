"""Checks of what a primitive computes: rules, kernels, memory, special values, refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from miniml.dtype import DType, is_float
from miniml.testing import OpInfo, Refusal
from miniml.testing.calls import Call, calls, poisoned, reference, run_entry
from miniml.testing.tolerance import mismatch, spread_of


def check_inference(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """The rules give the shapes and dtypes that come out."""
    for call in calls(row, dtype, rng):
        if call.primitive.dynamic_outputs:
            continue
        inferred = [(a.shape, a.dtype) for a in call.inferred]
        came = [(o.shape, o.dtype) for o in call.run()]
        assert came == inferred, f"{call} gave {came}; its rules say {inferred}"
        for entry in call.entries():
            outs = run_entry(entry, call, call.arrays, poisoned(call, 0))
            came = [(o.shape, o.dtype) for o in outs]
            assert came == inferred, f"{call}: {entry.describe()} gave {came}, not {inferred}"
        if row.reference is not None:
            shapes = [o.shape for o in reference(call)]
            assert shapes == [s for s, _ in inferred], (
                f"{call}: the rules say {inferred}, the reference has shapes {shapes}"
            )


def check_kernels(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """Every kernel gives what the reference gives in float64, up to rounding."""
    for call in calls(row, dtype, rng):
        results = {"the call": call.run()}
        for entry in call.entries():
            outs = run_entry(entry, call, call.arrays, poisoned(call, 0xA5))
            results[entry.describe()] = outs
        if row.reference is not None:
            expected = reference(call)
            numbers = [o.dtype for o in results["the call"] if is_float(o.dtype)]
            spread = (
                spread_of(lambda *xs, c=call: reference(c, xs), _wide(call), numbers[0], rng)
                if numbers
                else (0.0,) * len(expected)
            )
        else:
            expected, spread = results["the call"], (0.0,) * len(results["the call"])
        for name, outs in results.items():
            assert len(outs) == len(expected), f"{call}: {len(outs)} outputs from {name}"
            for i, (out, right, moved) in enumerate(zip(outs, expected, spread)):
                wrong = mismatch(out, right, call.terms, moved)
                assert wrong is None, f"{call}: output {i} of {name} {wrong}"


def _wide(call: Call) -> tuple[object, ...]:
    return call.args(tuple(a.astype(np.float64) if is_float(a.dtype) else a for a in call.arrays))


def check_layouts(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """Inputs with any strides give what contiguous ones give."""
    for call in calls(row, dtype, rng):
        for entry in call.entries():
            for layout, arrays in _layouts(call):
                dense = tuple(np.array(a, order="C") for a in arrays)
                wanted = run_entry(entry, call, dense, poisoned(call, 0))
                came = run_entry(entry, call, arrays, poisoned(call, 0))
                for i, (out, right) in enumerate(zip(came, wanted)):
                    scale = np.abs(_finite(right)).max(initial=0.0)
                    wrong = mismatch(out, right, call.terms, scale * _unit(right))
                    assert wrong is None, (
                        f"{call}: output {i} of {entry.describe()} on {layout} inputs {wrong}"
                    )


def _unit(array: np.ndarray) -> float:
    return float(np.finfo(np.float64).eps) if array.dtype == np.float64 else 1e-7


def _finite(array: np.ndarray) -> np.ndarray:
    numbers = array.astype(np.float64)
    return np.where(np.isfinite(numbers), numbers, 0.0)


def _layouts(call: Call) -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    yield "Fortran-ordered", tuple(np.array(a, order="F") for a in call.arrays)
    yield "reversed", tuple(np.flip(np.flip(a).copy()) for a in call.arrays)
    yield "sliced", tuple(map(_sliced, call.arrays))
    if any(is_float(a.dtype) and a.size for a in call.arrays):
        yield "broadcast", tuple(map(_broadcast, call.arrays))


def _sliced(a: np.ndarray) -> np.ndarray:
    """Every other element of a larger array along each axis, which begins at an odd place."""
    if a.ndim == 0:
        return np.stack([a, a])[1]
    large = np.zeros([2 * n + 1 for n in a.shape], a.dtype)
    view = large[tuple(slice(1, None, 2) for _ in a.shape)]
    view[...] = a
    return view


def _broadcast(a: np.ndarray) -> np.ndarray:
    """The first entry along the first axis, repeated by a stride of 0."""
    if not is_float(a.dtype) or a.ndim == 0 or a.size == 0:
        return a
    return np.broadcast_to(a[:1], a.shape)


def check_memory(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """Outputs are written wholly, inputs never; a declared in-place output changes nothing."""
    for call in calls(row, dtype, rng):
        for entry in call.entries():
            arrays = tuple(a.copy() for a in call.arrays)
            before = [a.tobytes() for a in arrays]
            first = run_entry(entry, call, arrays, poisoned(call, 0xA5))
            for i, (array, was) in enumerate(zip(arrays, before)):
                assert array.tobytes() == was, f"{call}: {entry.describe()} wrote into input {i}"
            second = run_entry(entry, call, arrays, poisoned(call, 0x5A))
            for i, (one, two) in enumerate(zip(first, second)):
                assert one.tobytes() == two.tobytes(), (
                    f"{call}: {entry.describe()} does not fill output {i}, or reads it"
                )
            for i in entry.inplace:
                _check_inplace(call, entry, i, first)


def _check_inplace(call: Call, entry: object, i: int, wanted: tuple[np.ndarray, ...]) -> None:
    arrays = tuple(a.copy() for a in call.arrays)
    if (arrays[i].shape, arrays[i].dtype) != (wanted[0].shape, wanted[0].dtype):
        return
    (out,) = run_entry(entry, call, arrays, (arrays[i],))
    assert out.tobytes() == wanted[0].tobytes(), (
        f"{call}: {entry.describe()} says inplace={i}, but gives other numbers in place"
    )


def check_special(row: OpInfo, dtype: DType, rng: np.random.Generator) -> None:
    """A NaN or an infinity in an input shows wherever the reference shows it."""
    for call in calls(row, dtype, rng):
        for i, array in enumerate(call.arrays):
            if not is_float(array.dtype) or not array.size:
                continue
            place = int(rng.integers(array.size))
            for value in (np.nan, np.inf, -np.inf):
                special = array.copy()
                special.reshape(-1)[place] = value
                arrays = (*call.arrays[:i], special, *call.arrays[i + 1 :])
                _check_special(call, arrays, f"{value} in input {i}")


def _check_special(call: Call, arrays: tuple[np.ndarray, ...], what: str) -> None:
    outs = call.run(arrays)
    if call.info.nan == "handled":
        return
    if call.info.reference is None:
        seen = any(is_float(o.dtype) and np.isnan(o.astype(float)).any() for o in outs)
        floats = any(is_float(o.dtype) and o.size for o in outs)
        assert seen or not floats or "nan" not in what, f"{call}: {what} does not appear"
        return
    for k, (out, right) in enumerate(zip(outs, reference(call, call.args(arrays)))):
        if not is_float(out.dtype):
            continue
        came, wanted = out.astype(np.float64), right.astype(np.float64)
        lost = np.isnan(wanted) & ~np.isnan(came)
        assert not lost.any(), f"{call}: {what} makes {lost.sum()} NaNs that output {k} lost"
        lost = np.isinf(wanted) & (came != wanted) & ~np.isnan(came)  # inf - inf shows it too
        assert not lost.any(), f"{call}: {what} makes {lost.sum()} infinities that output {k} lost"


def check_refusals(row: OpInfo, dtype: DType | None, rng: np.random.Generator) -> None:
    """What must be refused is, by name, in the row's words, with the caller's own line."""
    for refusal in row.refused:
        _check_refusal(row, refusal)


def _check_refusal(row: OpInfo, refusal: Refusal) -> None:
    name = row.primitive.name
    called = False
    try:
        primitive = row.primitive(**refusal.attrs)
        called = True
        primitive(*refusal.inputs)
    except refusal.error as error:
        text, notes = str(error), "\n".join(getattr(error, "__notes__", []))
    else:
        raise AssertionError(f"{name} accepts {refusal.inputs!r}, {refusal.attrs!r}")
    assert re.search(refusal.match, text), f"{name} says {text!r}, which lacks {refusal.match!r}"
    assert text.startswith(name), f"{text!r} does not begin with {name}"
    if called:
        assert "primitive(*refusal.inputs)" in notes, (
            f"{name}: the error has no note with the caller's line; its notes are {notes!r}"
        )
