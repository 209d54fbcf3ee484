"""scan: against unrolled loops and HIPS autograd, in both modes, with gradients of two orders."""

import collections
import time

import autograd
import autograd.numpy as anp
import numpy as np
import optree
import pytest

import miniml as ml
from miniml import ops, optim
from miniml.core.parameter import default_generator
from miniml.errors import BpropNotFoundError, DTypeError, GraphError, ShapeError
from miniml.grad import bprop_getters, grad, hvp, jvp, value_and_grad, vjp
from miniml.ops import Unary

RNG = np.random.default_rng(3)
WEIGHT, BIAS = RNG.normal(size=(3, 3)) * 0.5, RNG.normal(size=3)
START, ROWS = RNG.normal(size=(2, 3)), RNG.normal(size=(5, 2, 3))
MODES = pytest.mark.parametrize("wrap", [lambda f: f, ml.jit], ids=["eager", "jit"])


def same(found, expected, rtol=1e-10):
    """Two trees of arrays."""
    left, structure = optree.tree_flatten(found)
    right, other = optree.tree_flatten(expected)
    assert structure == other
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol, 1e-13)


def unrolled(f, carry, xs, length=None, reverse=False):
    """What scan means, for arrays or trees of one level."""
    count = len(xs) if length is None else length
    ys = [None] * count
    for t in reversed(range(count)) if reverse else range(count):
        carry, ys[t] = f(carry, None if xs is None else xs[t])
    return ops.stack(ys), carry


def recurrent(scan, reverse=False):
    def loss(weight, bias, start, rows):
        def step(h, x):
            h = ops.tanh(ops.matmul(h, weight) + x * bias)
            return h, h * ops.sin(h)

        ys, h = scan(step, start, rows, reverse=reverse)
        return ops.sum(ys * ys) + ops.sum(ops.exp(h))

    return loss


def curvature(f):
    return lambda *xs: hvp(f, xs, tuple(ml.Tensor(np.full(x.shape, 0.3)) for x in xs))


ALL = WEIGHT, BIAS, START, ROWS


@MODES
@pytest.mark.parametrize("reverse", [False, True], ids=["forth", "back"])
@pytest.mark.parametrize(
    "derive",
    [
        lambda f: f,
        lambda f: grad(f, (0, 1, 2, 3)),
        curvature,
        lambda f: lambda *xs: jvp(f, xs, tuple(np.full(x.shape, 0.7) for x in xs)),
        lambda f: lambda *xs: vjp(f, *xs)[1](ml.Tensor(np.array(2.0))),
    ],
    ids=["value", "grad", "hvp", "jvp", "vjp"],
)
def test_scan_is_the_unrolled_loop(derive, reverse, wrap):
    expected = derive(recurrent(unrolled, reverse))(*ALL)
    same(wrap(derive(recurrent(ops.scan, reverse)))(*ALL), expected)


BINARY = ops.add, ops.mul, lambda x, y: ops.matmul(x, ops.transpose(y)) @ y * 0.1
UNARY = ops.tanh, ops.sin, lambda x: ops.softmax(x, 1), lambda x: ops.transpose(x)[:, ::-1].reshape(
    x.shape
), lambda x: ops.broadcast_to(ops.sum(x, 0, True), x.shape), ops.exp  # fmt: skip


def random_step(rng):
    """A random body of two carried values, two rows and two captures, and what it gives."""
    choices = [(rng.integers(len(BINARY)), rng.integers(len(UNARY)), rng.random(2)) for _ in "1234"]
    picks = rng.random(4)

    def step(captures):
        def body(carry, x):
            pool = [*carry, *x, *captures]
            for binary, unary, at in choices:
                one, two = (pool[int(a * len(pool))] for a in at)
                pool.append(ops.tanh(UNARY[unary](BINARY[binary](one, two))))
            after = [pool[-1 - int(p * 8)] for p in picks]
            return (after[0], after[1]), {"y": after[2], "z": (after[3],)}

        return body

    return step


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(s, marks=pytest.mark.deep) for s in range(12, 400))]
)
def test_random_steps(seed):
    rng = np.random.default_rng(seed)
    step, reverse = random_step(rng), bool(rng.integers(2))
    count = int(rng.integers(1, 5))
    values = [rng.normal(size=(2, 3)) for _ in range(4)]
    rows = [rng.normal(size=(count, 2, 3)) for _ in range(2)]

    def by_rows(f, carry, xs, reverse):
        ys = [None] * count
        for t in reversed(range(count)) if reverse else range(count):
            carry, ys[t] = f(carry, [x[t] for x in xs])
        return optree.tree_map(lambda *parts: ops.stack(parts), *ys), carry

    def loss(run):
        def total(a, b, v, w, x, z):
            ys, carry = run(step((v, w)), (a, b), [x, z], reverse=reverse)
            leaves = optree.tree_leaves((ys, carry))
            return sum(ops.sum(ops.sin(leaf * (1.0 + i))) for i, leaf in enumerate(leaves))

        return total

    for derive in (lambda f: value_and_grad(f, tuple(range(6))), curvature):
        expected = derive(loss(by_rows))(*values, *rows)
        same(ml.jit(derive(loss(ops.scan)))(*values, *rows), expected, rtol=1e-8)


def test_gradients_are_those_of_autograd():
    def loss(weight, bias, start, rows):
        h, total = start, 0.0
        for x in rows:
            h = anp.tanh(anp.dot(h, weight) + x * bias)
            total = total + anp.sum((h * anp.sin(h)) ** 2)
        return total + anp.sum(anp.exp(h))

    expected = autograd.grad(loss, (0, 1, 2, 3))(*ALL)
    same(ml.jit(grad(recurrent(ops.scan), (0, 1, 2, 3)))(*ALL), expected)


@MODES
def test_trees_numbers_and_what_is_not_differentiable(wrap):
    """Carries and outputs of several dtypes; y may be None, and a carry may pass unchanged."""

    def run(x, flags):
        def step(carry, row):
            count, (total, fixed), seen = carry
            value, flag = row["v"], row["flag"]
            total = ops.select(flag, total + value * fixed, total)
            after = count + ops.cast(flag, "int64"), (total, fixed), ops.logical_or(seen, flag)
            return after, {"total": total, "count": count, "nothing": None}

        start = 0, (x[0] * 0.0, x[1]), False
        return ops.scan(step, start, {"v": x, "flag": flags})

    x, flags = RNG.normal(size=(4, 2)), np.array([True, False, True, True])
    ys, (count, (total, fixed), seen) = wrap(run)(x, flags)
    steps = np.cumsum(np.where(flags[:, None], x * x[1], 0.0), 0)
    same((ys["total"], total, fixed), (steps, steps[-1], x[1]))
    assert (ys["count"].tolist(), count.item(), seen.item()) == ([0, 1, 1, 2], 3, True)
    assert ys["nothing"] is None

    def loss(x):
        ys, (_, (total, _), _) = run(x, flags)
        return ops.sum(ys["total"] * ys["total"]) + ops.sum(total)

    def plain(x):
        steps = anp.cumsum(anp.where(flags[:, None], x * x[1], 0.0), 0)
        return anp.sum(steps**2) + anp.sum(steps[-1])

    same(wrap(grad(loss))(x), autograd.grad(plain)(x))


@MODES
def test_no_xs_and_no_rows(wrap):
    ys, last = wrap(lambda x: ops.scan(lambda c, _: (c * 2.0, c), x, length=3))(START)
    same((ys, last), (np.stack([START, START * 2, START * 4]), START * 8))

    def empty(start, rows):
        return ops.scan(lambda c, x: (c * x, (c + x, 1)), start, rows)

    (ys, ones), last = wrap(empty)(START, ROWS[:0])
    assert (ys.shape, ones.shape, ones.dtype) == ((0, 2, 3), (0,), ml.int64)
    same(last, START)
    slopes = wrap(grad(lambda *xs: ops.sum(empty(*xs)[1] * 3.0), (0, 1)))(START, ROWS[:0])
    same(slopes, (np.full((2, 3), 3.0), ROWS[:0]))


@MODES
def test_draws_differ_from_step_to_step_and_are_equal_in_both_modes(wrap):
    def run(x, reverse=False):
        def step(carry, row):
            dropped = ops.dropout(row + carry, 0.4)
            return carry + ops.uniform((40,), dtype="float64"), dropped

        ys, carry = ops.scan(step, x[0], x, reverse=reverse)
        return ops.sum(ys * ys) + ops.sum(carry * ops.normal((40,), dtype="float64")), ys

    x = ml.Tensor(np.ones((4, 40)))
    for reverse in (False, True):
        found = []
        for mode in (lambda f: f, wrap):
            ml.manual_seed(5)
            (value, ys), slope = mode(value_and_grad(lambda x, r=reverse: run(x, r), has_aux=True))(
                x
            )
            found.append([value, slope, ys, default_generator.state.asnumpy()])
        same(*found, rtol=1e-12)
        kept = found[0][2].asnumpy() != 0.0
        assert not (kept[0] == kept[1]).all()


@MODES
def test_scans_and_branches_nest(wrap):
    def loss(run, pred, weight, rows):
        def inner(carry, x):
            after = ops.tanh(carry * weight[0] + x)
            return after, after * weight[1]

        def outer(carry, row):
            ys, last = run(inner, carry, row)
            chosen = ops.cond(ops.sum(last) > 0.0, lambda a: a * weight[2], lambda a: -a, last)
            return chosen, ops.sum(ys)

        ys, last = ops.cond(
            pred, lambda: run(outer, rows[0, 0], rows), lambda: (ops.sum(rows, (1, 2)), rows[0, 0])
        )
        return ops.sum(ys * ys) + ops.sum(last * ops.sin(last))

    rows = RNG.normal(size=(3, 4, 3))
    for pred in (ml.Tensor(True), ml.Tensor(False)):
        for derive in (lambda f: f, lambda f: grad(f, (1, 2)), _curved):
            expected = derive(lambda *xs: loss(unrolled, *xs))(pred, WEIGHT, rows)
            found = wrap(derive(lambda *xs: loss(ops.scan, *xs)))(pred, WEIGHT, rows)
            same(found, expected, rtol=1e-8)


def _curved(f):
    return lambda pred, *xs: curvature(lambda *xs: f(pred, *xs))(*xs)


@MODES
def test_weights_that_a_step_reads_are_trained(wrap):
    rows = RNG.normal(size=(6, 4, 3)).astype(np.float32)

    def trained(run):
        cell = ml.nn.Dense(3, 3)
        cell.weight.set_data(WEIGHT.astype(np.float32))
        cell.bias.set_data(np.zeros(3, np.float32))

        def loss(rows):
            ys, _ = run(lambda h, x: (ops.tanh(cell(h) + x),) * 2, rows[0], rows)
            return ops.mean(ys * ys)

        optimizer = optim.SGD(cell.trainable_params(), lr=0.5)
        derived = wrap(value_and_grad(loss, argnums=None, weights=cell))
        losses = []
        for _ in range(3):
            value, gradients = derived(rows)
            optimizer.update(gradients)
            losses.append(value.item())
        return losses, cell.weight.asnumpy()

    found, expected = trained(ops.scan), trained(unrolled)
    same(found, expected, rtol=1e-5)
    assert found[0][2] < found[0][0]


def test_a_training_step_and_graph_mode():
    class Net(ml.nn.Cell):
        def __init__(self):
            super().__init__()
            self.cell = ml.nn.Dense(3, 3)

        def construct(self, rows):
            return ops.scan(lambda h, x: (ops.tanh(self.cell(h) + x), None), rows[0], rows)[1]

    ml.manual_seed(1)
    net = Net()
    rows, labels = RNG.normal(size=(6, 4, 3)).astype(np.float32), np.array([0, 2, 1, 1])
    plain = net(rows).asnumpy()
    with ml.context(mode=ml.GRAPH_MODE):
        np.testing.assert_allclose(net(rows).asnumpy(), plain, rtol=1e-6)
    step = ml.train_step(net, ml.nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.5))
    losses = [step(rows, labels).item() for _ in range(5)]
    with ml.context(jit=False):
        losses.append(step(rows, labels).item())
    assert losses == sorted(losses, reverse=True)


@MODES
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (
            lambda x: ops.scan(lambda c, x: ({"h": c["h"], "n": x}, x), {"h": x, "n": 0.0}, x),
            ShapeError,
            r"Scan carry\['n'\] is float32\[\] in the loop and float64\[3\] in body",
        ),
        (
            lambda x: ops.scan(lambda c, x: (ops.cast(c, "float32"), x), x, x),
            DTypeError,
            r"Scan carry is float64\[2, 3\] in the loop and float32\[2, 3\] in body",
        ),
        (lambda x: ops.scan(lambda c, x: ((c, c), x), x, x), ShapeError, "structure of its carry"),
        (lambda x: ops.scan(lambda c, x: c, x, x), ShapeError, r"returns a pair \(carry, y\)"),
        (lambda x: ops.scan(lambda c, x: (c, "y"), x, x), DTypeError, "'y' of type str"),
        (lambda x: ops.scan(lambda c, x: (c, c), x), ShapeError, "neither xs nor a length"),
        (
            lambda x: ops.scan(lambda c, x: (c, c), x, (x, {"b": x[:1]})),
            ShapeError,
            r"different lengths: xs\[0\] of 2, xs\[1\]\['b'\] of 1",
        ),
        (lambda x: ops.scan(lambda c, x: (c, c), x, x, 3), ShapeError, "length of 3, xs of 2"),
        (lambda x: ops.scan(lambda c, x: (c, c), x, length=-1), ShapeError, "length=-1"),
        (
            lambda x: ops.scan(lambda c, x: (c, c), x, 3.0),
            ShapeError,
            "xs = 3.0, which has",
        ),
    ],
)
def test_refusals_name_the_leaf(wrap, call, error, says):
    with pytest.raises(error, match=says):
        wrap(call)(START)


LATE = {
    "shape": lambda c: {"h": c["h"][:1]},
    "dtype": lambda c: {"h": ops.cast(c["h"], "float32")},
    "structure": lambda c: {"h": (c["h"],)},
    "dict": collections.OrderedDict,
}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("under", [lambda f: f, grad], ids=["plain", "gradient"])
def test_an_eager_step_that_changes_later_is_refused(late, under):
    """Steps that are like the one before pass by the checks; others do not."""

    def total(x):
        steps = iter(range(9))

        def step(c, row):
            after = {"h": c["h"] * 1.0}
            return (LATE[late](after) if next(steps) == 3 else after), row

        return ops.sum(ops.scan(step, {"h": x}, ROWS)[1]["h"])

    with pytest.raises((ShapeError, DTypeError), match=r"Scan (carry|body returns)") as caught:
        under(total)(START)
    assert any("step 3" in note for note in caught.value.__notes__)


def test_late_rows_are_checked_and_made_tensors():
    weight, zero = ml.Parameter(np.float32(7.0)), np.float32(0)
    given = iter([ml.Tensor(1.0), 2.0, np.float32(3.0), weight, ml.Tensor(4.0)])
    ys, last = ops.scan(lambda c, _: (c + 1, next(given)), zero, length=5)
    weight.set_data(zero)
    assert (ys.tolist(), last.item()) == ([1.0, 2.0, 3.0, 7.0, 4.0], 5.0)
    late = iter([ml.Tensor(1.0), ml.Tensor(1.0), ml.Tensor([1.0])])
    with pytest.raises(ShapeError, match=r"Scan y is float32\[\] in the loop and float32\[1\]"):
        ops.scan(lambda c, _: (c, next(late)), zero, length=3)
    late = iter([START, START, START[:1]])
    with pytest.raises(
        ShapeError, match=r"value is float64\[2, 3\] in the loop and float64\[1, 3\]"
    ):
        ops.while_loop(lambda c: True, lambda c: ml.Tensor(next(late)), START)


@MODES
def test_users_primitives_in_a_step(wrap):
    """Their kernels may not write to what they get, and get arrays of the loop's to fill."""

    class DoubledInStep(Unary):
        """x + x, for this test."""

    @bprop_getters.register(DoubledInStep)
    def get_bprop_doubled(self):
        return lambda x, out, dout: (dout + dout,)

    @ml.kernel("DoubledInStep", "cpu", "d->d")
    def doubled(x, *, out):
        assert not x.flags.writeable
        np.add(x, x, out=out)

    def loss(x):
        def step(c, row):
            after = DoubledInStep()(c) * row
            return after, (after, DoubledInStep()(after))

        return ops.sum(ops.stack(list(ops.scan(step, x[0], x)[0])))

    def plain(x):
        c, total = x[0], 0.0
        for row in x:
            c = 2.0 * c * row
            total = total + 3.0 * anp.sum(c)
        return total

    x = RNG.normal(size=(4, 3))
    same(wrap(grad(loss))(x), autograd.grad(plain)(x))


@MODES
def test_nothing_to_carry_and_nothing_to_give(wrap):
    assert wrap(lambda x: ops.scan(lambda c, x: (None, None), None, x))(ROWS) == (None, None)
    ys, carry = wrap(lambda x: ops.scan(lambda c, x: (c, x * 2.0), None, x))(ROWS)
    same((ys, carry), (ROWS * 2, None))

    def loss(x, weight):
        return ops.sum(ops.scan(lambda c, x: (c, ops.sin(x * x) * weight), None, x)[0])

    expected = autograd.grad(lambda x, w: anp.sum(anp.sin(x * x) * w), (0, 1))(ROWS, BIAS)
    same(wrap(grad(loss, (0, 1)))(ROWS, BIAS), expected)


@MODES
def test_a_nan_and_an_error_in_a_step_are_shown_at_their_line(wrap):
    def run(x):
        return ops.scan(lambda c, row: (ops.log(c) + row, row), x[0], x)

    with ml.context(check_nan=True), pytest.raises(ml.errors.NonFiniteError) as caught:
        wrap(run)(np.full((3, 2), -1.0))
    assert "ops.log(c) + row" in "\n".join(caught.value.__notes__)


def test_a_step_in_a_graph_assigns_nothing():
    weight = ml.Parameter(np.ones(3))
    with pytest.raises(GraphError, match="assigned inside a branch or loop"):
        ml.jit(lambda x: ops.scan(lambda c, x: (c, ops.assign(weight, x)), x[0], x))(START)


def newton(x, bound):
    """The square root of x, to 1e-6."""

    def away(v):
        return ops.abs(v * v - x) > 1e-6

    return ops.while_loop(away, lambda v: 0.5 * (v + x / v), x, max_iterations=bound)


@MODES
def test_a_bounded_loop_has_a_gradient(wrap):
    x = ml.Tensor(np.array(2.0))
    assert wrap(lambda x: newton(x, 20))(x).item() == pytest.approx(2**0.5, rel=1e-9)
    slope = grad(lambda x: newton(x, 20))
    assert wrap(slope)(x).item() == pytest.approx(0.5 / 2**0.5, rel=1e-5)
    assert wrap(slope)(x).item() == pytest.approx(slope(x).item(), rel=1e-12)
    assert wrap(grad(slope))(x).item() == pytest.approx(grad(slope)(x).item(), rel=1e-10)
    assert wrap(lambda x: newton(x, 1))(x).item() == 1.5  # the bound ends it
    assert wrap(lambda x: newton(x, 0))(x).item() == 2.0


def test_a_bounded_loop_of_a_graph_does_not_draw():
    def draws(x):
        step = lambda v: v + ops.uniform((), dtype="float64")  # noqa: E731
        return ops.while_loop(lambda v: v < 9.0, step, x, max_iterations=3)

    with pytest.raises(GraphError, match="WhileLoop draws random numbers"):
        ml.jit(draws)(np.array(1.0))


def test_a_loop_without_a_bound_says_how_to_give_one():
    with pytest.raises(BpropNotFoundError, match=r"give it max_iterations=, use ops\.scan"):
        ml.jit(grad(lambda x: newton(x, None)))(np.array(2.0))


def test_compile_time_does_not_depend_on_the_length():
    def compiled(length):
        rows = np.zeros((length, 2, 3))
        start = time.process_time()
        ml.jit(grad(recurrent(ops.scan), (0, 1, 2))).compiled(WEIGHT, BIAS, START, rows)
        return time.process_time() - start

    short, long = (min(compiled(n) for _ in range(4)) for n in (8, 512))
    assert long < 2.0 * short


@MODES
def test_dicts_keep_the_order_in_which_a_loop_began(wrap):
    """A body that goes over the values of its carry gets them in one order at each step, by hand:
    (a, b) -> (2 a + b, a + 1), whichever of the two it names first."""

    def step(carry):
        a, b = carry.values()
        return {"b": a + 1, "a": 2 * a + b}

    def loops(a, b):
        first = {"a": a, "b": b}
        return (
            ops.scan(lambda carry, _: (step(carry), None), first, length=4)[1],
            ops.while_loop(lambda carry: next(iter(carry.values())) < 100.0, step, first),
            ops.fori_loop(0, 4, lambda _, carry: step(carry), first),
        )

    a, b = 3.0, 5.0
    for _ in range(4):
        a, b = 2 * a + b, a + 1
    for found in wrap(loops)(ml.Tensor(3.0), ml.Tensor(5.0)):
        assert [(name, value.item()) for name, value in found.items()] == [("a", a), ("b", b)]
