"""What the checks of opcheck stand on: limits at a point, threads in turn, sums, states, draws."""

import os
import threading
import time
import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import miniml as ml
from miniml import (
    ArraySpec,
    Kernel,
    KernelAttr,
    Primitive,
    float64,
    kernel,
    ops,
    prim_attr_register,
    view_kernel,
)
from miniml.backends import registry
from miniml.core.primitive import primitives, spec_of
from miniml.errors import ShapeError
from miniml.grad import bprop_getters
from miniml.testing import OpInfo, Sample, opcheck
from miniml.testing.calls import Call, poisoned, run_entry
from miniml.testing.opchecks import devices, session
from miniml.testing.opchecks.draws import drawn, grows_slowly
from miniml.testing.opchecks.kernels import Expected
from miniml.testing.opchecks.numbers import isolated
from miniml.testing.opchecks.variants import interleaved
from miniml.testing.tolerance import apart, at_an_end, spread_of
from tests.faults.planting import plant

CONTINUOUS = {
    "sin": np.sin, "abs": np.abs, "root": lambda x: np.sqrt(np.abs(x)),
    "cube root": np.cbrt, "sign": np.sign, "floor": np.floor, "constant": lambda x: 0 * x + 3,
    "steep": lambda x: 1e6 * x, "reciprocal": lambda x: 1 / x, "log": lambda x: np.log(np.abs(x)),
    "x log x": lambda x: np.where(x == 0, 0, x * np.log(np.abs(x) + 1e-300)),
    "1 / log": lambda x: np.where(x == 0, 0, 1 / np.log(np.abs(x) + 1e-300)),
    "root beside 0": np.sqrt, "minus 0": lambda x: -np.abs(x),
}  # fmt: skip
JUMPING = {
    "sinc": (lambda x: np.where(x == 0, 0, np.sin(x) / x), 0.0, 0.0, 1.0),
    "one": (lambda x: np.where(x == 1, 0, x * x), 1.0, 0.0, 1.0),
    "bare": (lambda x: np.sin(x) / x, 0.0, np.nan, 1.0),
    "far": (lambda x: np.where(x == 3, 1e9, x), 3.0, 1e9, 3.0),
}


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("point", [0.0, 1.0, -1.0, 3.0])
def test_no_value_of_a_continuous_or_stepping_function_is_isolated(name, point):
    with np.errstate(all="ignore"):
        assert isolated(lambda h: np.asarray([CONTINUOUS[name](np.float64(point + h))])) is None


@pytest.mark.parametrize("name", JUMPING)
def test_an_isolated_value_is_told_with_its_limit(name):
    f, point, value, limit = JUMPING[name]
    with np.errstate(all="ignore"):
        found = isolated(lambda h: np.asarray([5.0, f(np.float64(point + h))]))
    assert found.index == (1,)
    np.testing.assert_equal(found.value, value)
    assert found.limit == pytest.approx(limit)


BUFFER = np.zeros(8)
LOCAL = threading.local()
LOCK = threading.Lock()


def shared(x):
    np.sin(x, out=BUFFER[: x.size])
    return BUFFER[: x.size].copy()


def local(x):
    LOCAL.buffer = np.sin(x)
    return LOCAL.buffer.copy()


def locked(x):
    with LOCK:
        return shared(x)


@pytest.mark.parametrize(("f", "safe"), [(shared, False), (local, True), (locked, True)])
def test_threads_meet_at_every_step_and_locks_do_not_hang(f, safe):
    one, other = np.arange(4.0), np.arange(4.0) + 1
    got = interleaved(lambda: f(one), lambda: f(other))
    assert np.array_equal(got, np.sin(one)) is safe


def test_sums_that_cancel_may_differ_by_their_order_and_no_more():
    """x A x from terms of 1e4 that leave a few: two orders differ in last digits of the terms."""
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        for _ in range(40):
            n = int(rng.integers(2, 40))
            x = (100 * rng.normal(size=n)).astype(dtype)
            a = (100 * rng.normal(size=(n, n))).astype(dtype)
            a -= (x @ a @ x / (x @ x) ** 2 * np.outer(x, x)).astype(dtype)  # x A x is nearly 0

            def run(arrays):
                return (np.asarray(arrays[0] @ arrays[1] @ arrays[0]),)

            forward, (right,) = np.asarray(x[::-1] @ (a[::-1, ::-1] @ x[::-1])), run((x, a))
            assert apart((forward,), (right,), run, (x, a)) is None
            size = np.abs(x) @ np.abs(a) @ np.abs(x)
            wrong = np.asarray(right + 0.01 * size, dtype)
            assert apart((wrong,), (right,), run, (x, a)) is not None


@pytest.mark.parametrize(("dtype", "value", "ends"), [
    ("float32", 1e26, True), ("float32", 1e-30, True), ("float32", 1e5, False),
    ("float64", 1e26, False), ("float64", 1e200, True), ("float16", 1e3, False),
    ("float16", 1e-5, True), ("float32", 0.0, False), ("float32", np.inf, False),
])  # fmt: skip
def test_the_ends_of_a_range_are_where_squares_leave_it(dtype, value, ends):
    assert at_an_end((np.array([value, 0.0], dtype),)) is ends


class Solved(Primitive):
    """x with a x = b."""

    __test__ = False

    def infer_shape(self, a, b):
        if len(a) != 2 or a[0] != a[1] or b != a[:1]:
            raise ShapeError(f"Solved takes (n, n) and (n,); got {a} and {b}; reshape them")
        return b

    def infer_dtype(self, a, b):
        return b


@pytest.fixture
def solved():
    kernel("Solved", "cpu", "dd->d")(lambda a, b, *, out: np.copyto(out, np.linalg.solve(a, b)))

    def rule(self):
        def bprop(a, b, out, dout):
            g = Solved()(ops.transpose(a), dout)
            return -ops.expand_dims(g, 1) * ops.expand_dims(out, 0), g

        return bprop

    bprop_getters.register(Solved)(rule)
    yield Solved()
    bprop_getters.unregister(Solved)


def test_a_singular_matrix_is_one_warning_that_names_the_domain(solved):
    report = opcheck(solved, raise_error=False)
    assert report.ok, str(report)
    (finding,) = report.findings
    assert "LinAlgError" in finding.message
    assert "OpInfo" in finding.advice
    assert report.samples


def test_numbers_outside_the_domain_are_a_note():
    with plant(fn=lambda x, *, alpha, out: np.sqrt(x, out=out), bprop=None) as root:
        report = opcheck(root, raise_error=False, checks=["kernels"])
    assert any("give NaN or infinity" in note for note in report.notes)
    assert "rng.uniform(0.5, 2.0, " in report.samples[2]


def test_what_a_kernel_changed_is_put_back():
    def careless(x, *, alpha, out):
        np.random.seed(7)  # noqa: NPY002
        os.environ["CARELESS"] = "1"
        warnings.simplefilter("ignore")
        np.copyto(out, x)

    generator, filters = np.random.get_state()[1].tobytes(), list(warnings.filters)  # noqa: NPY002
    with plant(fn=careless) as primitive:
        opcheck(primitive, raise_error=False, checks=["state"], inputs=(np.ones(2),))
    assert np.random.get_state()[1].tobytes() == generator  # noqa: NPY002
    assert "CARELESS" not in os.environ
    assert warnings.filters == filters


def test_a_report_prints_what_programs_share_once():
    def two_faults(x, *, alpha, out):
        np.copyto(out, np.where(np.isnan(x), 0, x.ravel("K").reshape(x.shape)))

    with plant(fn=two_faults, bprop=None) as faulty:
        report = opcheck(faulty, raise_error=False)
    assert len(report.findings) > 1
    definition = session.program(None, None, faulty).splitlines()[0]
    assert all(f.example.startswith(definition) for f in report.findings)
    assert str(report).count(definition) == 1
    assert str(report).count("opcheck(") == len(report.findings)


@pytest.mark.parametrize("primitive", [
    ops.Squeeze(axis=0), ops.Squeeze(axis=(0, 1)), ops.Conv2D(dilation=(2, 2)),
], ids=repr)  # fmt: skip
def test_extents_of_one_and_windows_are_drawn(primitive):
    assert len(list(drawn(primitive, None, lambda call: True))) >= 20


def test_extents_of_blocks_and_a_long_one_are_drawn():
    calls = list(drawn(ops.Exp(), 0, lambda call: True))
    extents = {n for call in calls for a in call.arrays for n in a.shape}
    assert {6, 8, 12, 40_000} <= extents
    assert {"outlier", "offset", "ties", "longest"} <= {call.kind for call in calls}


def test_what_grows_like_the_square_is_not_made_long():
    long = np.zeros(40_000)
    with plant(fn=lambda x, *, alpha, out: np.copyto(out, (x[:, None] - x).sum(1))) as pairs:
        assert not grows_slowly(Call(pairs, (long,)))
    with plant() as snake:
        assert grows_slowly(Call(snake, (long,)))


def test_waiting_for_the_processor_is_no_growth():
    def waits(x, *, alpha, out):
        time.sleep(5e-3)
        np.copyto(out, x)

    with plant(fn=waits) as waiting:
        assert grows_slowly(Call(waiting, (np.zeros(40_000),)))


def test_negative_integers_are_drawn_beside_floats_of_their_shape():
    class Scaled(Primitive):
        """x times n."""

        __test__ = False

        def infer_shape(self, x, n):
            return ops.Add().infer_shape(x, n)

        def infer_dtype(self, x, n):
            return x

    kernel("Scaled", "cpu", "dl->d")(lambda x, n, *, out: np.multiply(x, n, out=out))
    try:
        calls = [c for c in drawn(Scaled(), 0, lambda call: True) if c.kind == "negative"]
        assert calls
        assert all((c.arrays[1] < 0).all() for c in calls)
    finally:
        primitives.pop("Scaled")


def test_a_wrong_value_of_a_masked_mean_is_no_fault_with_a_reference():
    def skip_zeros(x, *, alpha, out):
        np.copyto(out, np.where(x == 0, 7, x))

    def samples(rng, dtype):
        yield Sample((rng.normal(size=3).astype(dtype),))

    with plant(fn=skip_zeros, bprop=None, body={"differentiable": False}) as primitive:
        info = OpInfo(type(primitive), samples, reference=lambda x, alpha: np.where(x == 0, 7, x))
        assert opcheck(primitive, info, raise_error=False, checks=["isolated values"]).ok
        (found,) = opcheck(primitive, raise_error=False, checks=["isolated values"]).findings
    assert found.severity == "warning"  # no gradient claims to know better


def test_long_inputs_of_an_example_are_a_formula():
    (call,) = (c for c in drawn(ops.Sub(), 0, lambda call: True) if c.kind == "longest")
    for a in (*call.arrays, call.arrays[0][:1234].astype("float32")):
        text = session.literal(a)
        assert len(text) < 100
        assert np.array_equal(eval(text, {"np": np}), a)


class Renewed(Kernel):
    """Sines, by way of a workspace of the size that it was told."""

    def prepare(self, node):
        self.shape = node.inputs[0].shape

    def resize(self, node):
        self.prepare(node)

    def workspace(self):
        return (ArraySpec(self.shape, np.dtype(float)),)

    def launch(self, inputs, workspace, outputs, stream):
        np.sin(inputs[0], out=workspace[0])
        outputs[0][...] = workspace[0]


@pytest.mark.parametrize(
    ("resize", "faulty"),
    [(Kernel.resize, None), (Renewed.resize, False), (lambda self, node: None, True)],
)
def test_kernels_that_follow_are_resized(resize, faulty):
    made = type("Made", (Renewed,), {"resize": resize, "__module__": __name__})
    with plant(fn=made, bprop=None, body={"differentiable": False}) as primitive:
        report = opcheck(primitive, raise_error=False, checks=["sizes"])
    assert bool(report.calls.get("sizes")) == (faulty is not None)
    assert bool(report.findings) == bool(faulty)
    for finding in report.findings:
        assert "resized after" in finding.message


@prim_attr_register
def scaled_and_more(self, alpha=0.5, slope=2.0):
    self.init_prim_io_names(inputs=["x"], outputs=["y"])


def scaled(x, *, alpha, slope, out):
    np.multiply(x, alpha, out=out)


def test_a_function_kernel_of_memory_formats_gets_the_attributes_that_it_names():
    """Where the attributes are not known yet, as no primitive was made but by unpickling."""
    images = KernelAttr().add_input_attr(ml.float32, "NHWC").add_output_attr(ml.float32, "NHWC")
    body = {"__annotations__": {}, "__init__": scaled_and_more}
    with plant(fn=scaled, bprop=None, letters=("f->f",), body=body) as primitive:
        registry.specs["Planted"] = spec_of(type(primitive))

        @kernel("Planted", "cpu", images)
        def images_scaled(x, *, alpha, out):
            scaled(x, alpha=alpha, slope=None, out=out)

        x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
        call = Call(primitive, (x,))
        first, second = (run_entry(e, call, (x,), poisoned(call, 7)) for e in call.entries)
    assert np.array_equal(first[0], second[0])


class Counted(Kernel):
    """A kernel that counts its releases, and may raise in one of its methods."""

    raising = ""
    released = 0

    def _step(self, name):
        if name == self.raising:
            raise OSError(f"{name} raises")

    def prepare(self, node):
        self._step("prepare")
        self.call = self._look

    def resize(self, node):
        self._step("resize")

    def _look(self, x, out=None):
        self._step("launch")
        if out is None:
            return x
        out[...] = x
        return out

    def release(self):
        type(self).released += 1
        self._step("prepare")  # what it would release is not there


@pytest.mark.parametrize("raising", ["", "prepare", "launch"])
@pytest.mark.parametrize("form", ["plain", "view", "images"])
def test_a_kernel_is_released_however_its_launch_ends(form, raising):
    made = type("Made", (Counted,), {"raising": raising, "__module__": __name__})
    images = KernelAttr().add_input_attr(ml.float64, "NHWC").add_output_attr(ml.float64, "NHWC")
    letters = {"plain": "d->d", "view": "f->f", "images": images}[form]
    with plant(fn=made, bprop=None, letters=(letters,)) as primitive:
        if form == "view":
            view_kernel("Planted", "cpu", "d->d")(made)
        x = np.arange(24.0).reshape(1, 2, 3, 4)
        call = Call(primitive, (x,))
        (entry,) = call.entries
        with pytest.raises(OSError, match=f"{raising} raises") if raising else nullcontext():
            (out,) = run_entry(entry, call, (x,), poisoned(call, 7))
            assert np.array_equal(out, x)
    assert made.released == 1


@pytest.mark.parametrize("raising", ["", "prepare", "launch"])
def test_a_view_kernel_in_the_simulator_is_released(raising):
    if devices.available():
        pytest.skip(devices.available())
    made = type("Made", (Counted,), {"raising": raising, "__module__": __name__})
    with plant(bprop=None) as primitive:
        view_kernel("Planted", "cuda", "d->d")(made)
        call = Call(primitive, (np.arange(6.0),))
        (entry,) = devices.entries(call)
        with pytest.raises(OSError, match=f"{raising} raises") if raising else nullcontext():
            assert np.array_equal(devices.simulated(entry, call).outs[0], call.arrays[0])
    assert made.released == 1


def test_numbers_that_a_rounding_sets_apart_have_no_spread():
    """Of what has another shape then: a false alarm of opcheck(Unique, seed=1) once."""
    distinct = (lambda x: (np.unique(x),), (np.ones(9),), float64, np.random.default_rng(0))
    np.testing.assert_array_equal(spread_of(*distinct)[0], [0.0])


@pytest.mark.parametrize(("primitive", "reference", "shapes", "own"), [
    (ops.Mul(), np.multiply, ((2, 3), (3,)), True),
    (ops.CumSum(0), lambda x, **attrs: np.cumsum(x, 0), ((4,),), False),
    (ops.MatMul(), lambda a, b, **attrs: a @ b, ((3, 3), (3, 3)), False),
    (ops.Mul(), np.multiply, ((1, 1), ()), False),
], ids=["product", "running sum", "matrices", "one number"])  # fmt: skip
def test_an_elementwise_reference_is_known_by_its_numbers(primitive, reference, shapes, own):
    """Shapes do not tell one from a product of square matrices, where 0 times infinity is right."""
    arrays = tuple(np.arange(1.0, np.prod(s) + 1).reshape(s) for s in shapes)
    info = OpInfo(type(primitive), lambda rng, dtype: (), reference=reference)
    assert Expected(Call(primitive, arrays, info=info)).by_itself(0) is own


def test_equal_inputs_that_are_refused_are_no_fault():
    """(-2)^2 is a number, (-2)^-2 is refused: a false alarm of opcheck(Pow, seed=11) once."""
    two = np.array([-2], np.int8), np.array([2], np.int8)
    assert opcheck(ops.Pow(), inputs=two, checks=("one array twice",)).ok


class PickedRows(Primitive):
    """The rows of x at idx, times w; what it refuses it refuses in sentences of its own."""

    differentiable = False

    def infer_shape(self, x, idx, w):
        if len(x) != 2 or len(idx) != 1 or w != idx:
            raise TypeError(
                f"PickedRows takes a matrix, idx and w of one axis; got {x}, {idx}, {w}"
            )
        return (*idx, x[1])

    def infer_dtype(self, x, idx, w):
        if x != w or idx != np.int64:
            raise TypeError(f"PickedRows takes x and w of one dtype, int64 idx; got {x}, {idx}")
        return x


@kernel("PickedRows", "cpu", "flf->f", "dld->d")
def picked(x, idx, w, *, out):
    out[...] = x[idx] * w[:, None]


class RowSteps(Primitive):
    """The sum of the differences of neighbours in each row, 0 for a row of one element."""

    differentiable = False

    def infer_shape(self, x):
        if not x or not x[-1]:
            raise ShapeError(f"RowSteps takes rows with an element; got {x}")
        return x[:-1]

    def infer_dtype(self, x):
        return x


@kernel("RowSteps", "cpu", "f->f", "d->d")
def row_steps(x, *, out):
    np.sum(np.diff(x, axis=-1), axis=-1, out=out)


class SwallowedRows(RowSteps):
    """The same, of numbers that take the place of NaN."""


@kernel("SwallowedRows", "cpu", "f->f", "d->d")
def swallowed_rows(x, *, out):
    np.sum(np.nan_to_num(x), axis=-1, out=out)


def rows_and_places(rng, dtype):
    for n in (2, 3, 5):
        x, idx = rng.normal(size=(n, 4)).astype(dtype), rng.integers(0, n, 2)
        yield Sample((x, idx, rng.normal(size=2).astype(dtype)))


def warned(primitive, check, info=None):
    found = opcheck(primitive, info, raise_error=False, checks=[check]).findings
    return [f for f in found if f.severity == "warning"]


def test_a_nan_that_nothing_depends_on_may_vanish():
    assert not warned(PickedRows(), "special", OpInfo(PickedRows(), rows_and_places))
    assert not warned(RowSteps(), "special")
    assert warned(SwallowedRows(), "special")


def test_a_refusal_that_names_the_primitive_is_no_stumbling():
    assert not warned(PickedRows(), "refusals", OpInfo(PickedRows(), rows_and_places))
