"""A primitive whole in its class: its expression, its ufunc or `compute`, and its `bprop`."""

import importlib.util
import re
import sys
from typing import ClassVar

import numpy as np
import pytest

import miniml as ml
from docs import operations
from miniml import Primitive, elementwise_kernel, jit, kernel, ops, prim_attr_register
from miniml.backends import registry
from miniml.backends.expressions import table as expressions
from miniml.cli.show import describe
from miniml.errors import DeclarationError, DuplicateError
from miniml.grad import bprop_getters, grad
from miniml.onnx import operators
from miniml.testing import gradcheck, opcheck

pytestmark = pytest.mark.usefixtures("tables_as_before")

MODULE = '''
import numpy as np
from miniml import Primitive, ops

class RowSnake(Primitive):
    """x + sin(alpha x)^2 / alpha, for periodic data."""
    alpha: float = 1.0
    expression, onnx = "x + sin(alpha * x) * sin(alpha * x) / alpha", ("rows.Snake", 1)
    def bprop(self, x, out, dout): return (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)
    def compute(self, x, *, alpha, out): np.add(x, np.sin(self.alpha * x) ** 2 / alpha, out=out)

row_snake = RowSnake()
'''
X = np.linspace(-3, 3, 7)


def snake(x, alpha=0.5):
    return x + np.sin(alpha * x) ** 2 / alpha


def snake_kernel(x, *, out):
    out[...] = snake(x)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """One module with one class, and nothing else anywhere."""
    path = tmp_path / "row_module.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("row_module", path)
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "row_module", made)
    monkeypatch.setattr(operators, "_rows", dict(operators._rows))
    spec.loader.exec_module(made)
    return made


class TestOneOperationInOneClass:
    def test_eagerly(self, module):
        op = module.RowSnake(0.5)
        np.testing.assert_allclose(op(X).asnumpy(), snake(X), rtol=1e-12)
        low = op(X.astype(np.float16))
        assert low.dtype == ml.float16
        np.testing.assert_array_equal(  # by way of float32, rounded once
            low.asnumpy(), snake(X.astype(np.float32)).astype(np.float16)
        )

    def test_its_gradient(self, module):
        op = module.RowSnake(0.5)
        assert gradcheck(op, X[:3], order=2).ok
        np.testing.assert_allclose(grad(lambda x: ops.sum(op(x)))(X).asnumpy(), 1 + np.sin(X))

    def test_compiled_it_joins_fused_loops_in_c(self, module):
        def f(x):
            return ops.exp(module.RowSnake(0.5)(x) * 2.0)

        with ml.context(providers=()):
            np.testing.assert_allclose(jit(f)(X).asnumpy(), np.exp(2 * snake(X)), rtol=1e-12)
            text = str(ml.explain(f, X))
        assert "kernels in C: 1, in one call\nfused:\n  RowSnake Mul Exp;" in text

    def test_on_cuda(self, module):
        with ml.context(device_target="cuda-sim"):
            got = module.RowSnake(0.5)(ml.Tensor(X, dtype="float32"))
            assert str(got.device) == "cuda-sim"
        np.testing.assert_allclose(got.asnumpy(), snake(X), rtol=1e-5)

    def test_opcheck_passes_it(self, module):
        assert opcheck(module.RowSnake(0.5), budget=0.5).ok

    def test_onnx_reads_it(self, module):
        onnx = pytest.importorskip("onnx", reason="no onnx")
        helper, value = onnx.helper, onnx.helper.make_tensor_value_info
        node = helper.make_node("Snake", ["x"], ["y"], domain="rows", alpha=0.5)
        ends = ([value(n, onnx.TensorProto.FLOAT, (7,))] for n in "xy")
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("rows", 2)]
        made = helper.make_model(helper.make_graph([node], "net", *ends), opset_imports=imports)
        graph = ml.onnx.load(made)
        np.testing.assert_allclose(graph(X.astype(np.float32)).asnumpy(), snake(X), rtol=1e-5)
        assert "RowSnake(alpha=0.5)" in str(graph)

    def test_the_page_of_operations_has_a_row_of_it(self, module, monkeypatch):
        monkeypatch.setattr(ops, "row_snake", module.row_snake, raising=False)
        (row,) = [r for r in operations.rows() if r.name == "row_snake"]
        monkeypatch.setattr(operations, "values", lambda dtype: {"x": ml.Tensor(X).astype(dtype)})
        assert operations._line(row) == (
            "| `row_snake` | x + sin(alpha x)^2 / alpha, for periodic data. | hfd | 2 | one call "
            "| rules | CPU, CUDA | - | - | - | - | `row_snake(x)` |"
        )

    def test_show_prints_it_whole(self, module):
        text = describe(module.RowSnake)
        assert text.startswith("RowSnake: x -> out; attributes: alpha\n")
        assert re.search(r"gradient\n    \S+row_module.py:9\n    def bprop\(", text)
        kernels = r"cpu, from 'miniml': f->f d->d\n +through with_self: \S+row_module.py:10\n"
        assert re.search(kernels, text)
        assert "C expression: x + sin(alpha * x)" in text


class TestUfunc:
    def test_the_kernel_is_the_ufunc_itself(self):
        class RowCbrt(ops.FloatUnary):
            numpy = "cbrt"

        assert all(e.body is np.cbrt for e in registry.table["RowCbrt", "cpu"])
        assert len(registry.table["RowCbrt", "cpu"]) == 4
        np.testing.assert_allclose(RowCbrt()([8, 27]).asnumpy(), [2, 3], rtol=1e-6)

    def test_by_type_codes_and_signatures(self):
        class RowGreatest(ops.Binary):
            numpy: ClassVar = {"fd": "fmax", "il": "maximum"}
            expression: ClassVar = {"fd": "fmax(x, y)", ("ll->l",): "x > y ? x : y"}

        found = {str(e.signature): e.body for e in registry.table["RowGreatest", "cpu"]}
        assert found == {
            "ff->f": np.fmax,
            "dd->d": np.fmax,
            "ii->i": np.maximum,
            "ll->l": np.maximum,
        }
        cuda = {str(e.signature) for e in registry.table["RowGreatest", "cuda"]}
        assert cuda == {"ff->f", "dd->d", "ll->l"}

    def test_without_a_rule_its_inputs_broadcast(self):
        class RowHypot(Primitive):
            numpy = "hypot"

        assert RowHypot().input_names == ("x", "y")
        assert RowHypot()(np.ones((2, 1)), np.ones(3)).shape == (2, 3)
        with pytest.raises(ml.errors.ShapeError, match=r"RowHypot cannot broadcast shapes \(2,\)"):
            RowHypot()(np.ones(2), np.ones(3))

    def test_without_names_of_inputs_a_rule_is_asked_for(self):
        with pytest.raises(DeclarationError, match="RowLine defines no infer_shape; say"):
            type("RowLine", (Primitive,), {"expression": "2 * x + exp(y)"})


class TestCompute:
    def test_self_is_the_primitive_of_the_call(self):
        class RowPower(Primitive):
            n: int = 2
            dtypes = "d"

            def infer_shape(self, x):
                return x

            def compute(self, x, *, n, out):
                assert self == RowPower(n)
                out[...] = x**self.n

        assert RowPower(3)(np.full(1, 2.0)).tolist() == [8.0]
        assert jit(RowPower(4))(np.full(1, 2.0)).tolist() == [16.0]

    def test_a_static_method_is_the_kernel_itself(self):
        class RowTwice(Primitive):
            like = "x"

            @staticmethod
            def compute(x, *, out):
                np.add(x, x, out=out)

        bodies = {str(e.signature): e.body for e in registry.table["RowTwice", "cpu"]}
        assert bodies["f->f"] is RowTwice.compute
        assert bodies["e->e"].__wrapped__ is RowTwice.compute
        assert RowTwice()(np.ones(1, np.float16)).tolist() == [2.0]

    def test_of_any_number_of_inputs_and_several_outputs(self):
        class RowEnds(Primitive):
            outputs = ("low", "high")

            def infer_shape(self, *xs):
                return xs[0], xs[0]

            def compute(self, *xs, out):
                np.minimum.reduce(xs, out=out[0])
                np.maximum.reduce(xs, out=out[1])

        low, high = RowEnds()(np.array([1.0]), np.array([3.0]), np.array([2.0]))
        assert (low.tolist(), high.tolist()) == ([1.0], [3.0])


class TestBprop:
    def test_a_base_class_may_have_it(self):
        class RowBase(ops.FloatUnary, abstract=True):
            numpy = "tanh"

            def bprop(self, x, out, dout):
                return (dout * 7.0,)

        class RowOfBase(RowBase):
            pass

        class RowOwn(RowOfBase):
            def bprop(self, x, out, dout):
                return (dout * 9.0,)

        assert float(grad(RowOfBase())(1.0)) == 7.0
        assert float(grad(RowOwn())(1.0)) == 9.0

    def test_one_from_outside_is_refused_until_it_is_unregistered(self):
        class RowSeven(ops.FloatUnary):
            numpy = "tanh"

            def bprop(self, x, out, dout):
                return (dout * 7.0,)

        def other(self):
            return lambda x, out, dout: (dout * 8.0,)

        with pytest.raises(DuplicateError, match=r"RowSeven has a bprop already, .*bprop at .*py:"):
            bprop_getters.register(RowSeven)(other)
        bprop_getters.unregister(RowSeven)
        bprop_getters.register(RowSeven)(other)
        assert float(grad(RowSeven())(1.0)) == 8.0

    def test_a_definition_without_it_has_none(self):
        def define(whole):
            class RowAgain(ops.FloatUnary):
                numpy = "tanh"
                if whole:

                    def bprop(self, x, out, dout):
                        return (dout * 7.0,)

            return RowAgain

        assert float(grad(define(True)())(1.0)) == 7.0
        with pytest.raises(ml.errors.BpropNotFoundError):
            grad(define(False)())(1.0)


class TestDefinedAgain:
    def test_a_cell_that_runs_again_replaces_all_of_it(self):
        def define(factor, text):
            class RowCell(ops.FloatUnary):
                if text:
                    expression = text

                def compute(self, x, *, out):
                    np.multiply(x, factor, out=out)

            return RowCell

        first, again = define(2.0, "x * 2"), define(3.0, "")
        assert again()(1.0).tolist() == 3.0
        with pytest.raises(DeclarationError, match="by define with another expression"):
            first()(1.0)
        assert len(registry.table["RowCell", "cpu"]) == 4
        assert not registry.table["RowCell", "cuda"]

    def test_a_kernel_that_moves_into_the_class_replaces_that_of_its_module(self):
        def define(**body):
            return type("RowMoved", (ops.FloatUnary,), {"__module__": __name__, **body})

        define()
        kernel("RowMoved", "cpu", "f->f", "d->d")(snake_kernel)
        elementwise_kernel("RowMoved", "x * 2", "d->d")
        again = define(numpy="tanh", dtypes="f")
        found = {str(e.signature): e.body for e in registry.table["RowMoved", "cpu"]}
        assert found == {"f->f": np.tanh, "d->d": snake_kernel}
        assert ("RowMoved", "d->d") in expressions
        assert again()(1.0).tolist() == ops.tanh(1.0).tolist()

    def test_a_kernel_from_outside_takes_the_place_of_an_inherited_one(self):
        class RowSine(ops.Sin):
            pass

        assert RowSine()(0.5).tolist() == ops.sin(0.5).tolist()

        @kernel("RowSine", "cpu", "f->f")
        def row_sine(x, *, out):
            out[...] = 7

        assert RowSine()(0.5).tolist() == 7.0
        with pytest.raises(DuplicateError, match=r"Sin has a kernel f->f on cpu .*elementwise\.py"):
            kernel("Sin", "cpu", "f->f")(row_sine)

    def test_one_from_outside_that_was_first_is_kept(self):
        elementwise_kernel("RowLate", "x * 2", "f->f")
        with pytest.raises(DuplicateError, match="RowLate has a kernel f->f on cuda"):
            type("RowLate", (ops.FloatUnary,), {"expression": "x * 3", "numpy": "tanh"})
        assert not registry.table.get(("RowLate", "cpu"))


def test_what_is_annotated_is_an_attribute():
    class RowText(Primitive):
        like = "x"
        expression: str = "a"
        numpy: str = "b"
        compute: int = 3
        bprop: int = 4

    assert repr(RowText("c")) == "RowText(expression='c', numpy='b', compute=3, bprop=4)"
    assert ("RowText", "cpu") not in registry.table
    assert bprop_getters.find(RowText) is None


def classic(**body):
    @prim_attr_register
    def init(self, alpha=1.0):
        pass

    return {"__init__": init, **body}


WRONG = {
    "an unknown name": ({"expression": "x + beta"}, r"names beta; the primitive has inputs x and"),
    "no expression": ({"expression": "x; y"}, "is not one C expression"),
    "an unknown function": ({"expression": "besselj(x)"}, "calls besselj; expressions know"),
    "a number": ({"expression": 3}, "says expression = 3; it is a string, or strings by type"),
    "no ufunc": ({"numpy": "tanhh"}, "numpy = 'tanhh', which is no ufunc of NumPy; .* tanh"),
    "no loop": ({"numpy": "gcd"}, r"np\.gcd computes no [eE]->"),
    "two inputs": ({"numpy": "add"}, r"np\.add computes no e->e"),
    "two outputs": ({"numpy": "tanh", "outputs": ("a", "b")}, r"np\.tanh computes no e->ee"),
    "attributes": ({"numpy": "tanh", "__annotations__": {"n": int}}, r"np\.tanh takes no attrib"),
    "two kernels": ({"numpy": "tanh", "compute": lambda self, x, *, out: None}, "and defines comp"),
    "dtypes": ({"numpy": "tanh", "dtypes": 3}, "says dtypes = 3; they are type codes, as in 'fd'"),
    "a type code": ({"numpy": "tanh", "dtypes": "fz"}, "type code 'z' is unknown"),
    "an attribute": ({"compute": lambda self, x, *, beta, out: None}, "asks for beta"),
    "an array": ({"compute": lambda self, *, out: None}, "takes 0 arrays by position"),
    "no out": ({"compute": lambda self, x: None}, "does not take out"),
    "no method": ({"compute": 3}, "compute is no method that a kernel can be"),
    "classic": (classic(compute=lambda self, x, *, out: None), r"it is a @staticmethod"),
    "a bprop": ({"bprop": lambda self, x, dout: None}, r"def bprop\(self, x, out, dout\)"),
    "no gradient": (
        {"bprop": lambda self, x, out, dout: None, "differentiable": False}, "differentiable = F"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_badly_declared_is_refused_when_it_is_defined(what):
    body, message = WRONG[what]
    with pytest.raises(DeclarationError, match=message):
        type("RowWrong", (Primitive,), {"like": "x", **body})
    assert ("RowWrong", "cpu") not in registry.table
    assert "RowWrong" not in registry.specs


def test_a_function_that_rebinds_out_is_refused():
    def compute(self, x, *, out):
        out = x  # noqa: F841

    with pytest.raises(DeclarationError, match=r"RowWrong kernel 'compute' rebinds out at"):
        type("RowWrong", (Primitive,), {"like": "x", "compute": compute})
