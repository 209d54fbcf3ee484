"""What people new to miniml do wrong, and what they are told."""

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, kernel, nn, ops, optim
from miniml.core.primitive import primitives
from miniml.errors import (
    ArityError,
    AttributeRefusedError,
    BpropError,
    CheckpointError,
    DeclarationError,
    DTypeError,
    DuplicateError,
    GradientArgumentError,
    MinimlError,
    ShapeError,
    TracedValueError,
    ValueRefusedError,
)
from miniml.grad import bprop_getters, grad, jvp, vjp

X = np.ones((2, 3), np.float32)
LABELS = np.array([0, 1])

NET = nn.Dense(3, 2)


def sgd(net):
    return optim.SGD(net.trainable_params(), lr=0.1)


@pytest.mark.parametrize(
    ("mistake", "error", "told"),
    [
        (lambda: ops.concat(X, X), ArityError, r"in one list; write ops.concat\(\[x, y\]"),
        (lambda: ops.sum(X, np.ones((9, 9))), ShapeError, r"axis \(1.0.*\.\.\.\); an axis is"),
        (lambda: ops.sum(X, keepdims=LABELS), AttributeRefusedError, "it is declared keepdims: bo"),
        (lambda: ops.matmul(X, X, LABELS), AttributeRefusedError, "it is declared transpose_x: bo"),
        (lambda: ops.arange(2**70), DTypeError, "which int64 cannot hold"),
        (lambda: ops.arange(10**400), ShapeError, "the numbers must be finite"),
        (lambda: ops.pad(X, ((0, 0), (1, 0)), 10**400), DTypeError, "which float32 cannot hold"),
        (lambda: ops.leaky_relu(X, 10**400), AttributeRefusedError, "it is declared slope: float"),
        (lambda: ops.uniform((2**70,)), ShapeError, r"blocks; arrays have less than 2\*\*63 bytes"),
        (lambda: ops.Reshape(6)(X), AttributeRefusedError, "shape=6; it is declared shape: tuple"),
        (lambda: ops.Slice(0, 1, 1)(X), AttributeRefusedError, "it is declared begin: tuple"),
        (lambda: ops.custom(np.sin, bprop=3), AttributeRefusedError, "bprop=3 .* give a function"),
        (lambda: ops.reshape(X, (4, -1)), ShapeError, "no extent follows for -1 beside 4"),
        (lambda: ops.relu(X, X), ArityError, r"ReLU takes 1 input \(x\); got 2"),
        (lambda: ops.einsum("ij,jk->ik", X), ShapeError, "got 1 operands; give one for each"),
        (lambda: nn.ParameterList(2.5), AttributeRefusedError, "got float; expected a list of P"),
        (lambda: nn.TransformerEncoder(4), AttributeRefusedError, "got int; .*EncoderLayer"),
        (lambda: nn.Conv1d(1, 2, 3, padding=np.ones(2)), ValueRefusedError, "padding=array"),
        (lambda: nn.Sequential([nn.ReLU()]), AttributeRefusedError, r"one by one, as \*cells"),
        (lambda: nn.Sequential(nn.ReLU), AttributeRefusedError, r"make one: ReLU\(\.\.\.\)"),
        (lambda: nn.Sequential(ops.relu), AttributeRefusedError, r"use a layer, such as nn.ReLU"),
        (lambda: nn.CrossEntropyLoss()(LABELS, X), ShapeError, "logits .* first, then labels"),
        (lambda: ops.cross_entropy(X, LABELS[:, None]), ShapeError, r"; labels\[:, 0\] has that"),
        (lambda: ops.cross_entropy(np.ones((2, 5, 7)), np.ones((2, 5), int)), ShapeError, "-1, 1"),
        (
            lambda: ml.train_step(NET, nn.MSELoss, sgd(NET)),
            MinimlError,
            r"got the class MSELoss; make one, as in MSELoss\(\)",
        ),
        (lambda: nn.CellDict({"a": NET})(X), MinimlError, r"CellDict is not called.*\['a'\]"),
        (lambda: nn.CellDict({"a": NET})["b"], KeyError, "CellDict has no 'b'; it has a"),
        (lambda: nn.CellList([NET])(X), MinimlError, r"CellList is not called.*cells\[0\]"),
        (lambda: optim.SGD(nn.Dense(2, 3), lr=0.1), GradientArgumentError, "got Dense for its par"),
        (lambda: ml.set_context(mode="GRAPH_MODE"), MinimlError, "use ml.GRAPH_MODE or"),
        (lambda: ml.manual_seed("7"), AttributeRefusedError, "seed='7'; expected an int"),
        (lambda: ops.expand_dims(X, 5), ShapeError, "got axis 5 of a result of rank 3; its axes"),
        (lambda: jvp(ops.exp, X, X), GradientArgumentError, r"got ndarray .* as in jvp\(f, \(x,\)"),
        (lambda: grad(ops.exp, argnums="x")(X), GradientArgumentError, "argnums is 'x'; it is an"),
        (grad(ops.exp), GradientArgumentError, "Exp was called with 0 of them"),
        (lambda: grad(ops.sum)([1, 2]), GradientArgumentError, r"as np\.array\(\["),
        (lambda: grad(ops.sum(X))(X), GradientArgumentError, r"as in grad\(f\)\(x\)"),
        (lambda: optim.Adam([ml.Parameter(X)], betas=(0.9,)), MinimlError, r"got betas=\(0.9,\)"),
        (lambda: ops.LeakyReLU(a=1), AttributeRefusedError, "declared by an annotation in the cl"),
        (lambda: ops.hypot(2**70, LABELS), DTypeError, "number 1180591.*, which int64 cannot hold"),
        (lambda: ops.sum(np.int8), DTypeError, "got <class 'numpy.int8'> of type type for a ten"),
        (lambda: ops.stack([np.int8]), DTypeError, "got <class 'numpy.int8'> of type type for"),
        (lambda: ops.nanmax(np.int8), DTypeError, "got <class 'numpy.int8'> of type type for a"),
        (lambda: ops.zeros(2, "float32, x"), DTypeError, "dtype 'float32, x' is unknown"),
        (lambda: ml.trace(3), MinimlError, "trace got 3, of type int; give a function"),
        (lambda: ml.explain(X), MinimlError, "of type ndarray; give a function"),
        (lambda: ops.hypot(np.ones(2, np.uint8), -1), DTypeError, "-1, which uint8 cannot hold"),
        (lambda: optim.clip_by_value(3.0, 1.0), GradientArgumentError, r"one float; .* as \[g\]"),
        (lambda: ml.jit(ops.sum)(X, X[0]), AttributeRefusedError, "inputs; give a Python value"),
        (lambda: ml.jit(np.sum)(X), TracedValueError, r"np\.sum on a traced .*; use ops\.sum"),
        (lambda: ml.save_checkpoint(nn.ReLU(), "no/such/x"), CheckpointError, "there is no folder"),
        (lambda: ml.load_checkpoint(nn.ReLU(), "x"), CheckpointError, r"load_checkpoint\(path, ob"),
    ],
)  # fmt: skip
def test_the_message_says_what_would_do(mistake, error, told):
    with pytest.raises(error, match=told):
        mistake()


@pytest.mark.parametrize("leave", [float, lambda t: t.item(), lambda t: 2 * int(t)])
def test_a_number_taken_out_of_a_gradient_is_not_its_result(leave):
    with pytest.raises(GradientArgumentError, match="leaves the gradient behind"):
        grad(lambda x: leave(ops.sum(x)))(X)
    with pytest.raises(GradientArgumentError, match="leaves the gradient behind"):
        vjp(lambda x: (x, leave(ops.sum(x))), X)


def test_a_number_that_only_decides_may_be_taken_out():
    def hinge(x):
        return ops.sum(x) if float(ops.sum(x)) > 0 else 0.0

    assert np.array_equal(grad(hinge)(X).asnumpy(), X)
    assert np.array_equal(grad(lambda x: 1.0)(X).asnumpy(), 0 * X)


def twice():
    class TwiceHere(Primitive):
        def infer_shape(self, x):
            return x

        def infer_dtype(self, x):
            return x

    return TwiceHere()


def test_a_kernel_without_out_is_refused():
    op = twice()

    @kernel("TwiceHere", "cpu", "f->f", provider="no out")
    def takes_no_out(x):
        return x + x

    with (
        pytest.raises(DeclarationError, match="'takes_no_out' does not take out; a kernel fills"),
        ml.context(providers=("no out",)),
    ):
        op(X)


def test_a_kernel_that_returns_its_result_is_refused():
    op = twice()

    @kernel("TwiceHere", "cpu", "f->f", provider="returns")
    def returns_it(x, *, out):
        return x + x

    with (
        pytest.raises(DeclarationError, match="'returns_it' returned an array; a kernel fills"),
        ml.context(providers=("returns",)),
    ):
        op(X)


def test_a_primitive_whose_dtype_nothing_gives_is_refused_where_it_is_defined():
    with pytest.raises(DeclarationError, match="NoDType defines no infer_dtype and has no tensor"):

        class NoDType(Primitive):
            def infer_shape(self):
                return ()


def test_a_gradient_filed_by_name_for_a_class_that_has_one_is_refused():
    message = r"Exp has a bprop already, Exp\.bprop at .*/elementwise\.py:"
    with pytest.raises(DuplicateError, match=message):

        @bprop_getters.register("Exp")
        def another(self):
            return lambda x, out, dout: (dout,)


def test_a_gradient_of_a_primitive_without_one_is_refused_in_either_order():
    message = "says differentiable = False, so its bprop .* would never be used; take that out"
    for key in (ops.Round, "Round"):
        with pytest.raises(DeclarationError, match=f"^Round {message}"):
            bprop_getters.register(key)(lambda self: lambda x, out, dout: (dout,))
    bprop_getters.register("StepHere")(lambda self: lambda x, out, dout: (dout,))
    rules = {"infer_shape": lambda self, x: x, "infer_dtype": lambda self, x: x}
    with pytest.raises(DeclarationError, match=f"^StepHere {message}"):
        type("StepHere", (Primitive,), {**rules, "differentiable": False})
    assert "StepHere" not in primitives
    type("StepHere", (Primitive,), rules)
    bprop_getters.unregister("StepHere")


def test_a_bprop_in_place_of_its_getter_is_refused():
    with pytest.raises(DeclarationError, match=r"bprop\(x, out, dout\) is no getter of a bprop"):

        @bprop_getters.register("NoSuchHere")
        def bprop(x, out, dout):
            return (dout,)


def test_the_decorator_wants_a_class_or_a_name():
    with pytest.raises(DeclarationError, match=r"write @bprop_getters.register\(Class\)"):

        @bprop_getters.register
        def getter(self):
            return None


def test_a_bprop_that_takes_other_arguments_is_told_what_it_gets():
    op = twice()

    @bprop_getters.register(type(op))
    def getter(self):
        return lambda x, dout: (dout,)

    @kernel("TwiceHere", "cpu", "f->f", provider="right")
    def fills(x, *, out):
        np.add(x, x, out=out)

    with (
        pytest.raises(BpropError, match=r"bprop takes \(x, dout\); it gets \(x, out, dout\)"),
        ml.context(providers=("right",)),
    ):
        grad(lambda x: ops.sum(op(x)))(X)


def test_train_step_refuses_arguments_in_another_order():
    net = nn.Dense(3, 2)
    with pytest.raises(MinimlError, match="got Dense, SGD and CrossEntropyLoss; it takes a net"):
        ml.train_step(net, sgd(net), nn.CrossEntropyLoss())


def test_train_step_refuses_the_optimizer_of_another_net():
    with pytest.raises(MinimlError, match="none of which Dense has; make it with"):
        ml.train_step(nn.Dense(3, 2), nn.CrossEntropyLoss(), sgd(nn.Dense(3, 2)))


def test_a_batch_given_as_one_tuple_is_refused():
    net = nn.Dense(3, 2)
    step = ml.train_step(net, nn.CrossEntropyLoss(), sgd(net))
    with pytest.raises(ArityError, match=r"a tuple of 2 for the inputs of Dense: too many pos"):
        step((X, LABELS))
    with pytest.raises(ArityError, match=r"a list of 2 where it takes one tensor; pass them one"):
        step([X, ml.Tensor(X)], LABELS)


def test_a_graph_names_the_parameters_of_a_net_that_nobody_asked_for():
    text = str(ml.trace(nn.Sequential(nn.Dense(3, 4), nn.Dense(4, 2)), X))
    assert "state %0.weight: float32[3, 4]" in text
    assert "state %1.bias: float32[2]" in text
