"""Settings, and what a traced tensor can and cannot do."""

import pickle
import threading

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.core.settings import current
from miniml.errors import (
    DeviceError,
    ImmutableError,
    MinimlError,
    NonFiniteError,
    TracedValueError,
    TraceEndedError,
)

X = np.array([1.0, -2.0], np.float32)


class TestSettings:
    def test_context_holds_for_its_block_and_nests(self):
        before = current()
        with ml.context(check_nan=True, providers="a"):
            with ml.context(providers=("b", "c")):
                assert (current().check_nan, current().providers) == (True, ("b", "c"))
            assert current().providers == ("a",)
        assert current() is before

    def test_context_is_this_threads_only_and_set_context_everybodys(self):
        def seen():
            found = []
            thread = threading.Thread(target=lambda: found.append(current()))
            thread.start()
            thread.join()
            return found[0]

        with ml.context(check_nan=True):
            assert not seen().check_nan
        ml.set_context(check_nan=True)
        assert seen().check_nan

    def test_an_exception_ends_the_block(self):
        with pytest.raises(ZeroDivisionError), ml.context(check_nan=True):
            raise ZeroDivisionError
        assert not current().check_nan

    def test_bad_settings_are_refused_and_change_nothing(self):
        before = current()
        for bad in ({"mode": 7}, {"sim": "slow"}, {"device_target": "tpu"}):
            with pytest.raises((MinimlError, DeviceError), match=r"is unknown|; expected one"):
                ml.set_context(check_nan=True, **bad)
        assert current() == before

    def test_defaults(self):
        assert (current().mode, current().device_target) == (ml.PYNATIVE_MODE, "cpu")

    def test_settings_are_frozen(self):
        with pytest.raises(AttributeError):
            current().mode = ml.GRAPH_MODE

    def test_check_nan_names_the_operation_and_its_inputs(self):
        with (
            ml.context(check_nan=True),
            pytest.raises(NonFiniteError, match=r"Log made NaN; .* float32\[2\] in \[-2, 1\]") as e,
        ):
            ops.log(ml.Tensor(X))
        assert "ops.log(ml.Tensor(X))" in e.value.__notes__[0]


LEAVING = {
    "bool": bool,
    "int": int,
    "float": float,
    "item": ml.Tensor.item,
    "asnumpy": ml.Tensor.asnumpy,
    "asarray": np.asarray,
    "tolist": ml.Tensor.tolist,
    "np.median": np.median,
    "pickle": pickle.dumps,
    "to": lambda x: x.to("cuda"),
    "branch": lambda x: 1 if x > 0 else 2,
}


class TestTracedTensors:
    @pytest.mark.parametrize("leave", LEAVING)
    def test_it_has_no_python_value(self, leave):
        def f(x):
            LEAVING[leave](x)
            return x

        with pytest.raises(TracedValueError, match="traced"):
            ml.jit(f)(ml.Tensor(1.0))

    def test_bool_names_what_would_do(self):
        with pytest.raises(TracedValueError, match=r"ops.select.*ops.cond.*ops.while_loop"):
            ml.jit(lambda x: x or -x)(ml.Tensor(1.0))

    def test_it_is_typed(self):
        seen = []

        def f(x):
            seen.append((x.shape, x.dtype, len(x), x.ndim, x.size, repr(x)))
            return x

        ml.jit(f)(X)
        assert seen == [((2,), ml.float32, 2, 1, 2, "Traced(float32[2])")]

    def test_it_does_not_change(self):
        def f(x):
            x[0] = 1.0

        with pytest.raises(ImmutableError, match=r"ops.scatter"):
            ml.jit(f)(X)

    def test_it_is_dead_after_its_trace(self):
        kept = []
        ml.jit(lambda x: kept.append(x) or x + 1.0)(X)
        with pytest.raises(
            TraceEndedError, match=r"a traced tensor float32\[2\] outlived its trace"
        ):
            kept[0] + 1.0
        with pytest.raises(TraceEndedError, match="outlived"):
            kept[0].asnumpy()

    def test_under_a_gradient_values_are_real(self):
        seen = []

        def f(x):
            seen.extend([float(x), bool(x > 0), f"{x:.1f}", repr(x)])
            return x * x if x > 0 else x

        assert ml.grad.grad(f)(3.0).item() == 6.0
        assert seen[:3] == [3.0, True, "3.0"]
        assert "3." in seen[3]

    def test_under_a_gradient_leaving_names_stop_gradient(self):
        with pytest.raises(TracedValueError, match=r"would lose the gradient.*stop_gradient"):
            ml.grad.grad(lambda x: x * float(x.asnumpy()))(3.0)
        left = ml.grad.grad(lambda x: x * float(ops.stop_gradient(x).asnumpy()))(3.0)
        assert left.item() == 3.0


class TestCompiledFunctions:
    def test_python_scalars_are_static_and_tensors_are_not(self):
        traces = []

        @ml.jit
        def f(x, n):
            traces.append(n)
            return x * n

        assert [f(X, 2).tolist(), f(X, 3).tolist(), f(X, 2).tolist()] == [
            [2.0, -4.0],
            [3.0, -6.0],
            [2.0, -4.0],
        ]
        assert traces == [2, 3]
        f(X, ml.Tensor(2.0)), f(X, ml.Tensor(3.0))
        assert len(traces) == 3

    def test_trees_go_in_and_come_out(self):
        out = ml.jit(lambda p: {"sum": [p["a"] + p["b"], None], "name": "n"})({"a": X, "b": X})
        assert out["sum"][0].tolist() == [2.0, -4.0]
        assert (out["sum"][1], out["name"]) == (None, "n")

    def test_parameters_are_state_not_constants(self):
        p = ml.Parameter(X, name="p")
        f = ml.jit(lambda: p * 2.0)
        assert f().tolist() == [2.0, -4.0]
        p.set_data(np.ones(2, np.float32))
        assert f().tolist() == [2.0, 2.0]

    def test_later_reads_in_a_trace_see_an_assignment(self):
        p = ml.Parameter(X, name="p")

        @ml.jit
        def f(x):
            before = p + 0.0
            ops.assign(p, x)
            return before, p + 0.0

        before, after = f(ml.Tensor([5.0, 6.0]))
        assert (before.tolist(), after.tolist(), p.tolist()) == (
            [1.0, -2.0],
            [5.0, 6.0],
            [5.0, 6.0],
        )

    def test_without_jit_it_runs_op_by_op(self):
        with ml.context(jit=False):
            assert ml.jit(lambda x: x if float(x.sum()) > 0 else -x)(X).tolist() == [-1.0, 2.0]

    def test_results_are_the_callers_own(self):
        f = ml.jit(lambda x: x + 1.0)
        first = f(X)
        second = f(X * 2)
        assert first.tolist() == [2.0, -1.0]
        assert second.tolist() == [3.0, -3.0]
