"""jit: one program for each kind of call, a reason for each new one, and fn itself elsewhere."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import optree
import pytest

import miniml as ml
from miniml import nn, ops, register_pass, unregister_pass
from miniml.errors import BpropNotFoundError, GraphError, TracedValueError
from miniml.grad import grad
from miniml.ops import Unary
from miniml.runtime.jit import Jit, compiled

Array = np.ndarray[Any, Any]


def ones(*shape: int, dtype: Any = np.float32) -> Array:
    return np.ones(shape, dtype)


def test_a_jitted_function_is_traced_once_per_type() -> None:
    traced = []

    def fn(x: Any) -> Any:
        traced.append(x.shape)
        return x * 2.0

    quick = ml.jit(fn)
    for shape in ((2,), (2,), (3,), (2,)):
        np.testing.assert_array_equal(quick(ones(*shape)).asnumpy(), 2 * ones(*shape))
    quick(ml.Tensor(ones(2)))
    assert traced == [(2,), (3,)]


def test_recompilations_say_why() -> None:
    quick = Jit(lambda x, n: x * n)
    quick(ones(2), 2)
    quick(ones(3), 2)
    quick(ones(3), 2.0)
    with ml.context(verify_passes=True):
        quick(ones(3), 2.0)
    why = quick.recompilations
    assert why[0] == "first call"
    assert why[1] == "tensor 0 changed from float32[2] to float32[3]"
    assert "pass a Tensor for a number that varies" in why[2]
    assert why[3] == "the context's settings changed: verify_passes from False to True"
    assert len(why) == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"autocast": ml.float16}, "autocast from None to float16"),
        ({"threads": 1, "verify_passes": True}, "verify_passes from False to True, threads from 0"),
    ],
)
def test_settings_that_changed_are_named(options: Any, said: str) -> None:
    quick = Jit(lambda x: x @ x)
    quick(ones(2, 2))
    with ml.context(**options):
        quick(ones(2, 2))
    assert said in quick.recompilations[1].replace("dtype('float16')", "float16")


def test_the_cell_that_changed_is_named() -> None:
    class Factor(nn.Cell):
        def __init__(self) -> None:
            self.by = 2.0

        def construct(self, x: Any) -> Any:
            return x * self.by

    net = nn.Sequential(nn.ReLU(), Factor(), nn.Dropout())
    quick: Any = ml.jit(net)
    quick(ones(2))
    net[1].by = 3.0
    quick(ones(2))
    net[2].set_train(False)
    quick(ones(2))
    starts = [reason.split(":")[0] for reason in quick.recompilations]
    assert starts == ["first call", "a cell changed (Factor)", "a cell changed (Dropout)"]


@dataclass(frozen=True)
class Config:
    value: Any
    note: str = field(default="", compare=False)


HOLDING: dict[str, Any] = {
    "bare": lambda n: n,
    "dataclass": Config,
    "nested": lambda n: Config((Config(n),)),
    "set": lambda n: frozenset({n}),
}


def held(value: Any) -> Any:
    """The number in any of these."""
    while not isinstance(value, (int, float, complex)):
        (value,) = (value.value,) if isinstance(value, Config) else value
    return value


@pytest.mark.filterwarnings("ignore::miniml.errors.PerformanceWarning")
@pytest.mark.parametrize("hold", HOLDING.values(), ids=HOLDING)
def test_numbers_that_differ_only_in_kind_get_programs_of_their_own(hold: Any) -> None:
    numbers = [1, 1.0, True, 0.0, -0.0, complex(1, 0.0), complex(1, -0.0), complex(-0.0, 0)]
    quick = ml.jit(lambda x, n: ops.cast(x, ml.int32) * held(n))
    for n in numbers * 2:
        expected, found = ops.cast(ones(2), ml.int32) * n, quick(ones(2), hold(n))
        assert (found.dtype, found.asnumpy().tobytes()) == (
            expected.dtype, expected.asnumpy().tobytes(),
        )  # fmt: skip
    assert len(quick.recompilations) == len(numbers)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_are_compiled_anew(how: Any) -> None:
    net = nn.Dense(3, 2, bias=False)
    quick = ml.jit(net, dynamic={"x": (0,)})
    before = quick(ones(4, 3)).asnumpy()
    other: Any = how(quick)
    assert (other.fn is net, other.dynamic.axes) == (how is copy.copy, {"x": (0,)})
    np.testing.assert_array_equal(other(ones(4, 3)).asnumpy(), before)
    assert len(other.recompilations) == 1
    other.fn.weight.set_data(2.0 * net.weight.asnumpy())
    np.testing.assert_allclose(other(ones(4, 3)).asnumpy(), 2.0 * before, rtol=1e-6)
    assert np.array_equal(quick(ones(4, 3)).asnumpy(), before) == (other.fn is not net)


def test_members_of_enums_of_one_name_get_programs_of_their_own() -> None:
    first, second = (IntEnum("Kind", {name: 1}) for name in ("ONE", "OTHER"))
    quick = ml.jit(lambda x, kind: x * len(kind.name))
    for kind in (*first, *second):
        np.testing.assert_array_equal(quick(ones(2), kind).asnumpy(), len(kind.name) * ones(2))


@dataclass(frozen=True)
class Times:
    """A function that its class calls equal to others: 1, 1.0 and True are."""

    by: Any

    def __call__(self, x: Any) -> tuple[Any, Any]:
        return ops.sum(x * self.by), ops.cast(x, ml.int32) * self.by


@dataclass(unsafe_hash=True)
class Scaled(nn.Cell):
    """Equal to all others of its size."""

    size: int

    def __post_init__(self) -> None:
        self.by = ml.Parameter(np.full(self.size, Scaled.made, np.float32))

    def construct(self, x: Any) -> Any:
        return x * self.by

    made = 1.0


def test_equal_cells_get_programs_of_their_own() -> None:
    one = Scaled(2)
    Scaled.made = 3.0
    quick = ml.jit(lambda net, x: net(x))
    for net in (one, Scaled(2)) * 2:
        np.testing.assert_array_equal(quick(net, ones(2)).asnumpy(), net.by.asnumpy())
    assert len(quick.recompilations) == 2


def test_gradients_of_equal_objects_have_programs_of_their_own() -> None:
    numbers = [1, 1.0, True, 0.0, -0.0]
    slopes = [grad(Times(n), has_aux=True) for n in numbers]
    with ml.context(mode=ml.GRAPH_MODE):
        for slope, n in zip(slopes, numbers, strict=True):
            found, aux = slope(ones(2))
            np.testing.assert_array_equal(found.asnumpy(), np.full(2, float(n), np.float32))
            np.testing.assert_array_equal(np.signbit(found.asnumpy()), np.signbit(float(n)))
            assert aux.dtype == (ops.cast(ones(2), ml.int32) * n).dtype


def test_gradients_of_a_method_made_anew_share_a_program() -> None:
    seen = []

    class Model:
        def loss(self, x: Any) -> Any:
            seen.append(x.shape)
            return ops.sum(x * x)

    model = Model()
    kept = [grad(model.loss) for _ in range(3)]
    with ml.context(mode=ml.GRAPH_MODE):
        for slope in kept:
            np.testing.assert_array_equal(slope(ones(2)).asnumpy(), [2, 2])
    assert len(seen) == 1


def test_what_a_dataclass_does_not_compare_needs_no_other_program() -> None:
    quick = ml.jit(lambda x, n: x * n.value)
    for note in "ab":
        quick(ones(2), Config(2.0, note))
    assert quick.recompilations == ["first call"]


def test_arguments_and_results_are_trees() -> None:
    quick = ml.jit(lambda d, pair: {"sum": d["a"] + pair[0], "n": 3, "rest": [pair[1], None]})
    result = quick({"a": ones(2)}, (ones(2), ones(1)))
    np.testing.assert_array_equal(result["sum"].asnumpy(), [2, 2])
    assert result["n"] == 3
    assert result["rest"][1] is None


@optree.dataclasses.dataclass(namespace="")
class Named:
    """A node of trees that is registered with optree."""

    of: Any


ORDERS: list[Any] = [
    lambda a, b: {"a": a, "b": b},
    lambda a, b: {"b": b, "a": a},
    lambda a, b: ({"x": 0, "y": ({"b": b, "a": a},)}, [a]),
    lambda a, b: ({"y": ({"a": a, "b": b},), "x": 0}, [a]),
    lambda a, b: {1: a, 2: b},
    lambda a, b: {1.0: a, 2: b},
    lambda a, b: {True: a, 2: b},
    lambda a, b: {(1,): a, 2: b},
    lambda a, b: {(True,): a, 2: b},
    lambda a, b: [deque([{"a": a, "b": b}])],
    lambda a, b: [deque([{"b": b, "a": a}])],
    lambda a, b: Named({"a": a, "b": [Named({"a": a, "b": b})]}),
    lambda a, b: Named({"a": a, "b": [Named({"b": b, "a": a})]}),
    lambda a, b: {},
]


@pytest.mark.filterwarnings("ignore::miniml.errors.PerformanceWarning")
def test_dicts_are_told_apart_by_the_order_and_the_kinds_of_their_keys() -> None:
    """As Python does where a function goes over them: trees are what a plain call sees."""

    def numbered(tree: Any) -> Any:
        if isinstance(tree, Named):
            return numbered(tree.of)
        if isinstance(tree, dict):
            keys = [k[0] if isinstance(k, tuple) else k for k in tree]
            return sum((numbered(v) * (i + 2) for i, v in enumerate(tree.values())), 0.0) + sum(
                100.0 * isinstance(k, float) + 200.0 * isinstance(k, bool) for k in keys
            )
        return sum(map(numbered, tree), 0.0) if isinstance(tree, (list, tuple, deque)) else tree

    quick, by_name = ml.jit(numbered), ml.jit(lambda **named: numbered(named))
    for _ in range(2):
        for order in ORDERS:
            tree = order(ml.Tensor(3.0), ml.Tensor(5.0))
            assert float(quick(tree)) == float(numbered(tree))
        for named in ({"a": 3.0, "b": ml.Tensor(5.0)}, {"b": ml.Tensor(5.0), "a": 3.0}):
            assert float(by_name(**named)) == float(numbered(named))
    assert len(quick.recompilations) == len(ORDERS)


class Foreign:
    """An array of another library, as PyTorch's: it compares element by element."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape = array.shape

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    __hash__ = object.__hash__


class ByDlpack(Foreign):
    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class ByArray(Foreign):
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.array, dtype)


@pytest.mark.parametrize("kind", [ByDlpack, ByArray])
@pytest.mark.parametrize("place", [lambda x: (x,), lambda x: ([{"a": x}],)])
def test_arrays_of_other_libraries_are_inputs(kind: Any, place: Any) -> None:
    doubled = ml.jit(lambda tree: optree.tree_map(lambda x: x * 2.0, tree))
    draw = np.random.default_rng(0)
    given = kind(ones(3, 4))
    for _ in range(3):
        given.array[:] = draw.normal(size=(3, 4))  # in place, as `t.add_(1)`
        other = kind(draw.normal(size=(3, 4)).astype(np.float32))
        for x in (given, other):
            (out,) = optree.tree_leaves(doubled(*place(x)))
            assert np.array_equal(out, 2.0 * x.array)
    assert doubled.recompilations == ["first call"]


def test_train_and_eval_have_programs_of_their_own_and_keep_them() -> None:
    calls = []

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            calls.append(self.training)
            return x * (2.0 if self.training else 3.0)

    net = Net()
    quick: Any = ml.jit(net)
    for mode, factor in ((True, 2), (False, 3), (True, 2), (False, 3)):
        net.set_train(mode)
        np.testing.assert_array_equal(quick(ones(2)).asnumpy(), factor * ones(2))
    assert calls == [True, False]


def test_a_changed_attribute_of_a_cell_is_seen() -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            self.factor = 2.0

        def construct(self, x: Any) -> Any:
            return x * self.factor

    net = Net()
    quick: Any = ml.jit(net)
    assert float(quick(ones(1))) == 2
    net.factor = 5.0
    assert float(quick(ones(1))) == 5


def test_cells_and_gradients_compile_in_graph_mode_only() -> None:
    seen = []

    class Net(nn.Cell):
        def construct(self, x: Any) -> Any:
            seen.append("construct")
            return ops.sum(x * x)

    net = Net()
    for mode, count in ((ml.PYNATIVE_MODE, 3), (ml.GRAPH_MODE, 1)):
        seen.clear()
        with ml.context(mode=mode):
            for _ in range(3):
                assert float(net(ones(3))) == 3
        assert len(seen) == count
    slope = grad(net)
    with ml.context(mode=ml.GRAPH_MODE):
        seen.clear()
        for _ in range(3):
            np.testing.assert_array_equal(slope(ones(2)).asnumpy(), [2, 2])
        assert len(seen) == 1


def test_jit_false_runs_op_by_op() -> None:
    values = []

    @ml.jit
    def fn(x: Any) -> Any:
        values.append(float(ops.sum(x)))
        return x

    with ml.context(jit=False):
        fn(ones(3))
    assert values == [3.0]
    with pytest.raises(TracedValueError, match="float on a traced tensor"):
        fn(ones(3))


def test_an_inner_jit_is_part_of_the_outer_trace() -> None:
    inner = ml.jit(ops.exp)
    graph = ml.trace(lambda x: inner(x) + 1.0, ones(2))
    assert [n.primitive.name for n in graph.nodes] == ["Exp", "Add"]
    np.testing.assert_allclose(grad(lambda x: ops.sum(inner(x)))(ones(2)).asnumpy(), np.e * ones(2))


def test_a_new_kernel_is_taken_up() -> None:
    class JitTwice(Unary):
        """2 x."""

    ml.kernel("JitTwice", "cpu", "f->f")(lambda x, *, out: np.multiply(x, 2, out=out))
    quick = ml.jit(JitTwice())
    assert float(quick(ones(1))) == 2
    ml.kernel("JitTwice", "cpu", "f->f", provider="mine")(
        lambda x, *, out: np.multiply(x, 200, out=out)
    )
    with ml.context(providers=("mine",)):
        assert float(quick(ones(1))) == 200
    assert float(quick(ones(1))) == 2


def test_a_primitive_defined_again_is_taken_up() -> None:
    def define(factor: int) -> Any:
        class Again(ml.Primitive):
            """x, whose shape rule pretends that it is longer."""

            def infer_shape(self, x: Any) -> Any:
                return (x[0] * factor,)

            def infer_dtype(self, x: Any) -> Any:
                return x

        return Again

    made = [define(1)]
    ml.kernel("Again", "cpu", "f->f")(lambda x, *, out: out.fill(1))

    def fn(x: Any) -> Any:
        return made[0]()(x)

    quick = ml.jit(fn)
    assert quick(ones(2)).shape == (2,)
    made[0] = define(3)
    assert quick(ones(2)).shape == (6,)


def test_a_new_gradient_rule_and_a_new_pass_are_taken_up() -> None:
    class Thrice(Unary):
        """3 x."""

    ml.kernel("Thrice", "cpu", "f->f")(lambda x, *, out: np.multiply(x, 3, out=out))
    ml.grad.bprop_getters.register("Thrice")(lambda self: lambda x, out, dout: (dout * 3.0,))
    slope = Jit(grad(lambda x: ops.sum(Thrice()(x))))
    assert float(slope(ones(1))) == 3
    ml.grad.bprop_getters.unregister("Thrice")
    with pytest.raises(BpropNotFoundError, match="Thrice has no bprop"):
        slope(ones(1))
    ml.grad.bprop_getters.register("Thrice")(lambda self: lambda x, out, dout: (dout * 4.0,))
    assert float(slope(ones(1))) == 4
    register_pass("idle", lambda graph: graph)
    try:
        slope(ones(1))
        assert slope.recompilations[-1] == "a pass was registered"
    finally:
        unregister_pass("idle")


def test_a_cell_and_its_programs_can_be_collected() -> None:
    with ml.context(mode=ml.GRAPH_MODE):
        net = nn.Dense(2, 2)
        net(ones(1, 2))
    weak = weakref.ref(net)
    del net
    gc.collect()
    assert weak() is None


def test_equal_functions_share_their_programs() -> None:
    def fn(x: Any) -> Any:
        return ops.sum(x)

    assert compiled(fn) is compiled(fn)


def test_random_numbers_are_the_same_op_by_op_and_compiled() -> None:
    def fn(x: Any) -> Any:
        a = ops.uniform((3,))
        unused = ops.normal((5,))
        return x + a, ops.normal((2,)), unused * 0.0

    ml.manual_seed(3)
    eager = [t.asnumpy() for _ in range(2) for t in fn(ones(3))]
    ml.manual_seed(3)
    quick = ml.jit(fn)
    made = [t.asnumpy() for _ in range(2) for t in quick(ones(3))]
    for a, b in zip(eager, made, strict=True):
        np.testing.assert_array_equal(a, b)


def test_dead_draws_still_count() -> None:
    def fn(x: Any) -> Any:
        ops.uniform((7,))
        return x + ops.uniform((1,))

    ml.manual_seed(3)
    eager = [float(fn(ones(1))) for _ in range(3)]
    ml.manual_seed(3)
    quick = ml.jit(fn)
    assert [float(quick(ones(1))) for _ in range(3)] == eager


def test_threads_in_contexts_of_their_own_get_kernels_of_their_own() -> None:
    class PerThread(Unary):
        """Whose provider computed it."""

    for provider, value in (("one", 1), ("two", 2)):
        ml.kernel("PerThread", "cpu", "f->f", provider=provider)(
            lambda x, *, out, value=value: out.fill(value)
        )
    wrong: list[float] = []

    def work(provider: str, value: float) -> None:
        x = ml.Tensor(ones(1))
        with ml.context(providers=(provider,)):
            found = [float(PerThread()(x)) for _ in range(300)]
        wrong.extend(f for f in found if f != value)

    threads = [
        threading.Thread(target=work, args=case) for case in (("one", 1.0), ("two", 2.0)) * 3
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_a_method_may_be_jitted() -> None:
    class Scaled:
        def __init__(self, factor: float):
            self.factor = factor

        @ml.jit
        def of(self, x: ml.Tensor) -> ml.Tensor:
            return x * self.factor

    two, three = Scaled(2.0), Scaled(3.0)
    x = ml.Tensor(5.0)
    assert [s.of(x).item() for s in (two, three, two)] == [10.0, 15.0, 10.0]
    assert Scaled.of(two, x).item() == 10.0
    assert len(Scaled.of.recompilations) == 2


def numbers(x):
    yield x


async def later(x):
    return x


@pytest.mark.parametrize("fn", [numbers, later], ids=["generator", "coroutine"])
def test_what_runs_after_the_call_is_refused(fn):
    with pytest.raises(GraphError, match="whose body runs after the call"):
        ml.jit(fn)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(GraphError, match="jit got 3 of type int; give a function"):
        ml.jit(3)
