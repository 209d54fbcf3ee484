"""Primitives, functions and networks in PyTorch, and its functions and modules here."""

import copy
import doctest
import pickle
from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest

import miniml as ml
from miniml import Primitive, nn, ops, optim
from miniml.errors import ArityError, DTypeError, GraphError, MinimlError
from miniml.grad import grad, hessian, value_and_grad
from miniml.testing import gradcheck

torch = pytest.importorskip("torch", reason="no torch")
interop = pytest.importorskip("miniml.interop.pytorch")
from miniml.interop import from_torch, import_torch, to_torch, torch_functions  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


class InteropSnake(Primitive):
    """x + sin(alpha x)^2 / alpha."""

    alpha: float = 1.0
    elementwise = True
    expression = "x + sin(alpha * x) * sin(alpha * x) / alpha"

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x

    def bprop(self, x, out, dout):
        return (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)

    def compute(self, x, *, alpha, out):
        np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)


def expected(x, alpha=0.5):
    return x + torch.sin(alpha * x) ** 2 / alpha


class InteropScale(Primitive):
    """x times a const input, which counts 100 where it is True, and a factor."""

    factor: float = 1.0
    const_inputs = ("by",)

    def infer_shape(self, x, by):
        return x

    def infer_dtype(self, x, by):
        return x

    def compute(self, x, *, by, factor, out):
        np.multiply(x, (100.0 if by is True else by) * factor, out=out)


class InteropFactor(Primitive):
    """x times a factor."""

    factor: float = 1.0
    like = "x"

    def compute(self, x, *, factor, out):
        np.multiply(x, factor, out=out)


SNAKE = to_torch(InteropSnake(0.5))
X = torch.linspace(-2, 2, 7, dtype=torch.float64)


def wanted(x=X):
    return x.clone().requires_grad_()


@pytest.mark.parametrize("module", [interop, torch_functions])
def test_examples_of_the_docstrings(module):
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_schema_and_instances_of_a_class():
    assert (
        str(SNAKE.overload._schema) == "miniml::InteropSnake(Tensor x, *, float alpha=1.) -> Tensor"
    )
    assert torch.equal(to_torch(InteropSnake)(X, alpha=0.5), SNAKE(X))
    assert torch.equal(torch.ops.miniml.InteropSnake(X, alpha=0.5), SNAKE(X))
    assert to_torch(InteropSnake(0.25)).overload is SNAKE.overload


def test_torchs_own_checkers_pass():
    torch.library.opcheck(SNAKE.overload, (wanted(),), {"alpha": 0.5})
    assert torch.autograd.gradcheck(SNAKE, wanted())
    assert torch.autograd.gradgradcheck(SNAKE, wanted())
    assert torch.autograd.gradgradcheck(
        lambda v: torch.ops.miniml.InteropSnake(v, alpha=0.5), wanted()
    )


@pytest.mark.parametrize("dynamic", [None, True])
def test_compile(dynamic):
    def f(x):
        return (SNAKE(x) ** 2).sum()

    x, y = wanted(), wanted()
    torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=dynamic)(x).backward()
    (expected(y) ** 2).sum().backward()
    assert torch.allclose(x.grad, y.grad)


def test_transforms_of_torch_func():
    def f(x):
        return (SNAKE(x) ** 2).sum()

    def g(x):
        return (expected(x) ** 2).sum()

    rows = torch.randn(3, 7, dtype=torch.float64)
    assert torch.allclose(torch.func.vmap(SNAKE)(rows), expected(rows))
    per_row = torch.func.vmap(torch.func.grad(f))(rows)
    assert torch.allclose(per_row, torch.func.vmap(torch.func.grad(g))(rows))
    assert torch.allclose(torch.func.hessian(f)(X), torch.func.hessian(g)(X))
    assert torch.allclose(torch.func.jacrev(torch.func.grad(f))(X), torch.func.hessian(g)(X))
    twice = torch.func.vmap(torch.func.vmap(to_torch(ops.Mul()), (0, None)), (None, 0))
    assert torch.allclose(twice(rows, rows), rows * rows[:, None])


def test_export():
    class Net(torch.nn.Module):
        def forward(self, x):
            return SNAKE(x)

    program = torch.export.export(Net(), (X,))
    names = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert names == ["miniml.InteropSnake.default"]


@pytest.mark.parametrize("name", ["Neg", "Add"])
def test_export_with_open_extents(name):
    """The operators of elementwise primitives do not fix the extents that torch leaves open."""
    operator = to_torch(getattr(ops, name)())
    count = 1 if name == "Neg" else 2

    class Net(torch.nn.Module):
        def forward(self, x):
            return operator(*[x] * count) + 1

    program = torch.export.export(
        Net(), (torch.ones(4, 3),), dynamic_shapes={"x": {0: torch.export.Dim("n")}}
    )
    x = torch.randn(9, 3)
    assert torch.equal(program.module()(x), Net()(x))


def same(found, expected):
    """True for arrays of one dtype that are equal bit by bit."""
    found, expected = np.asarray(found), np.asarray(expected)
    return (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())


def test_numbers_that_python_calls_equal_are_told_apart():
    """A factor of each kind in turn, after the others: bit by bit as eagerly without torch."""
    numbers, ones, x = (1, 1.0, True, 0.0, -0.0), np.ones(2, np.int64), np.ones(2)
    multiply, back = to_torch(lambda x, n: x * n), from_torch(lambda x, n: x * n)
    scale, factor = to_torch(InteropScale()), to_torch(InteropFactor)
    for n in numbers * 2:
        by = 100.0 if n is True else n
        assert same(multiply(torch.from_numpy(ones), n), (ml.Tensor(ones) * n).asnumpy())
        assert same(back(ones, n).asnumpy(), torch.from_numpy(ones) * n)
        assert same(scale(torch.ones(2, dtype=torch.float64), n), x * by)
        if isinstance(n, float):
            assert same(factor(torch.ones(2, dtype=torch.float64), factor=n), x * n)
            alone = to_torch(InteropFactor(n))
            assert same(alone(torch.ones(2, dtype=torch.float64)), x * n)


def test_dicts_keep_the_order_of_the_call():
    joined = from_torch(lambda nodes: torch.stack(list(nodes[0].values())))
    x, y = np.ones(2), np.zeros(2)
    for node in (list, deque):
        for named in ({"x": x, "y": y}, {"y": y, "x": x}) * 2:
            found = joined(node([named])).asnumpy()
            np.testing.assert_array_equal(found, np.stack(list(named.values())))


@dataclass(unsafe_hash=True)
class Sized(nn.Cell):
    """Equal to all others of its size."""

    size: int

    def __post_init__(self):
        self.by = 1.0

    def construct(self, x):
        return x * self.by


def test_equal_cells_among_the_arguments_are_told_apart():
    cells = Sized(2), Sized(2)
    cells[1].by = 3.0
    scaled = to_torch(lambda x, cell: cell(x))
    assert [scaled(torch.ones(1), cell).item() for cell in cells] == [1.0, 3.0]


def test_a_function_whose_structure_depends_on_types_is_refused():
    named = from_torch(lambda x: {"wide" if x.dtype == torch.float64 else "narrow": x})
    assert list(named(np.ones(2))) == ["wide"]
    with pytest.raises(MinimlError, match=r"returned .*narrow.*; for arguments .*wide"):
        named(np.ones(2, np.float32))
    assert list(named(np.ones(2))) == ["wide"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int32", "int64"])
def test_dtypes_strides_and_shapes(dtype):
    neg, x = to_torch(ops.Neg()), torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    for given in (x, x.T, x[:, ::2], x[:0], x[0, 0], x.expand(4, 2, 3)):
        found = neg(given)
        assert found.dtype == x.dtype
        assert torch.equal(found, -given)
    assert torch.equal(to_torch(ops.LogicalNot())(x > 2), ~(x > 2))


def test_memory_is_shared_on_the_way_in_and_owned_on_the_way_out():
    x = torch.arange(6.0)
    assert interop.tensor_in(x)._data.ctypes.data == x.data_ptr()
    y = to_torch(ops.Reshape((2, 3)))(x)
    y[0, 0] = 7.0
    assert x[0] == 0.0
    constant = ml.Tensor(np.ones(3))
    to_torch(lambda x: constant)(X).zero_()
    assert constant.tolist() == [1.0, 1.0, 1.0]


def test_several_outputs_and_integers():
    top = to_torch(lambda x: ops.topk(x, 2))
    x = wanted()
    values, indices = top(x)
    assert indices.tolist() == [6, 5]
    assert not indices.requires_grad
    values.sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 0, 0, 1, 1]


class InteropParts(Primitive):
    """x^k, and the sine of x."""

    k: int = 2
    flip: bool = False
    outputs = ("power", "sine")
    batch = "leading"

    def infer_shape(self, x):
        return x, x

    def infer_dtype(self, x):
        return x, x

    def bprop(self, x, out, dout):
        power, sine = dout
        sine = -sine if self.flip else sine
        return (power * (self.k * x ** (self.k - 1)) + sine * ops.cos(x),)

    def compute(self, x, *, k, flip, out):
        np.power(x, k, out=out[0])
        np.sin(-x if flip else x, out=out[1])


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("flip", [False, True])
def test_a_primitive_of_two_outputs_and_integer_attributes(k, flip):
    """Against the same formula in torch: eager, compiled, mapped over any axis, twice derived."""
    parts, every = to_torch(InteropParts(k, flip)), to_torch(InteropParts)

    def formula(x):
        return x**k, torch.sin(-x if flip else x)

    draw = torch.Generator().manual_seed(k)
    for shape in ((4, 3), (1,), (2, 0, 3), ()):
        x = torch.randn(shape, generator=draw, dtype=torch.float64)
        weights = [torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(2)]
        compiled = [_compiled(parts)] if (k, shape) == (2, (4, 3)) else []
        for call in (parts, lambda x: every(x, k=k, flip=flip), *compiled):
            a, b = wanted(x), wanted(x)
            for outs in zip(call(a), formula(b), strict=True):
                assert torch.allclose(*outs)
            for keep in ((0,), (1,), (0, 1)):  # of the outputs, those that a gradient comes from
                found = [
                    torch.autograd.grad(sum((f(v)[i] * weights[i]).sum() for i in keep), v)[0]
                    for f, v in ((call, a), (formula, b))
                ]
                assert torch.allclose(*found)
        for axis in range(len(shape) if x.numel() else 0):
            outs = torch.func.vmap(parts, axis, axis)(x)
            assert all(map(torch.allclose, outs, formula(x)))
    x = torch.randn(3, generator=draw, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(parts, wanted(x))
    assert torch.allclose(
        torch.func.hessian(lambda x: sum(parts(x)).sum())(x),
        torch.func.hessian(lambda x: sum(formula(x)).sum())(x),
    )
    for j, expected_j in zip(
        torch.func.jacfwd(parts)(x), torch.func.jacrev(formula)(x), strict=True
    ):
        assert torch.allclose(j, expected_j)


def _compiled(fn):
    return torch.compile(lambda x: tuple(fn(x)), fullgraph=True, backend="aot_eager")


def test_operators_and_functions_are_copied_and_pickled():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3).double(), CalledModule(to_torch(PARTS)))
    x = torch.randn(2, 3, dtype=torch.float64)
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(again(x), module(x))
        assert torch.equal(torch.compile(again, fullgraph=True, backend="aot_eager")(x), module(x))
    f = copy.deepcopy(to_torch(ops.leaky_relu))
    assert torch.equal(f(X), torch.nn.functional.leaky_relu(X, 0.01))
    net = from_torch(torch.nn.Linear(3, 2), torch.ones(1, 3))
    net.trainable_params()[1].requires_grad = False
    for cell in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert [p.requires_grad for p in cell.get_parameters()] == [True, False]
        cell.trainable_params()[0].set_data(np.zeros((2, 3), np.float32))
        assert not cell.module.weight.any()
        assert net.module.weight.all()
    for sine in (
        copy.deepcopy(from_torch(torch.sin)),
        pickle.loads(pickle.dumps(from_torch(torch.sin))),
    ):
        np.testing.assert_allclose(sine(np.ones(2)).asnumpy(), np.sin(np.ones(2)))


PARTS = InteropParts(3)


class CalledModule(torch.nn.Module):
    """The first output of an operator, as a layer."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)[0]


def test_none_in_a_result_is_part_of_its_structure():
    f = to_torch(lambda a: {"out": ops.exp(a), "state": None})
    assert f(X)["state"] is None
    assert torch.allclose(f(X)["out"], X.exp())
    with pytest.raises(DTypeError, match="ends without return"):
        to_torch(lambda a: None)(X)


def test_function_of_trees():
    f = to_torch(lambda a, b: {"s": ops.sin(a) @ b["m"], "t": (a * 2.0).sum()}, name="tree_of_two")
    a, b = torch.randn(3, 4).double().requires_grad_(), torch.randn(4, 2).double().requires_grad_()
    assert torch.allclose(f(a, {"m": b})["s"], torch.sin(a) @ b)

    def flat(a, b):
        return tuple(f(a, {"m": b}).values())

    assert torch.autograd.gradcheck(flat, (a, b))
    assert torch.autograd.gradgradcheck(flat, (a, b))
    compiled = torch.compile(lambda a, b: f(a, {"m": b})["s"], fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(a, b), torch.sin(a) @ b)


def small_net():
    ml.manual_seed(1)
    return nn.Sequential(
        nn.Dense(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Dense(8, 2)
    )


def test_network_shares_memory_both_ways():
    net = small_net()
    module = to_torch(net)
    assert list(module.state_dict()) == list(net.parameters_dict())
    assert [n for n, _ in module.named_parameters()] == [p.name for p in net.trainable_params()]
    x, y = torch.randn(16, 3), torch.randint(0, 2, (16,))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    before = net.state_dict()
    torch.nn.functional.cross_entropy(module(x), y).backward()
    optimizer.step()
    after = net.state_dict()
    same = {n for n in after if np.array_equal(after[n], before[n])}
    assert same <= {"0.bias"}  # which the normalization takes out; statistics have moved, too
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))
    step(x.numpy(), y.numpy())
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), net.state_dict()[name])


@pytest.mark.parametrize(
    ("layer", "sizes", "shape"),
    [(nn.Conv2d, (16, 32, 3), (1, 16, 6, 6)), (nn.Dense, (130, 300), (1, 130))],
    ids=("filters", "a matrix"),
)
def test_writes_of_torch_are_seen_by_programs_that_keep(layer, sizes, shape):
    net = layer(*sizes)
    answer, x = ml.jit(net), np.ones(shape, np.float32)
    with ml.context(providers=("cc",)):
        for _ in range(4):
            answer(x)
        module = to_torch(net)
        for _ in range(4):
            with torch.no_grad():
                module.weight.mul_(2.0)
            expected = module(torch.tensor(x)).detach().numpy()
            np.testing.assert_array_equal(answer(x).asnumpy(), ml.jit(net)(x).asnumpy())
            np.testing.assert_allclose(answer(x).asnumpy(), expected, rtol=1e-5, atol=1e-5)


def test_mode_and_gradients_of_a_network():
    net = small_net()
    module = to_torch(net).eval()
    assert not any(c.training for c in net.cells())
    x = torch.randn(4, 3)
    np.testing.assert_allclose(module(x).detach().numpy(), net(x.numpy()).asnumpy(), rtol=1e-6)
    module(x).sum().backward()
    ours = grad(lambda: ops.sum(net(x.numpy())), None, weights=net)()
    for theirs, mine in zip(module.parameters(), ours, strict=True):
        np.testing.assert_allclose(theirs.grad.numpy(), mine.asnumpy(), rtol=1e-5, atol=1e-6)
    module.train()
    assert net.training
    assert not torch.equal(module(x), module(x))  # dropout
    zeros = {n: torch.zeros_like(p) for n, p in module.named_parameters()}
    module.eval()
    assert not torch.func.functional_call(module, zeros, (x,)).any()


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("how", ["copy", "pickle"])
def test_copies_of_a_network_share_with_a_cell_of_their_own(how, moved):
    module = to_torch(nn.Sequential(nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dense(4, 2)))
    module.get_parameter("0.bias").requires_grad_(False)
    if moved:
        module.double()
    other = copy.deepcopy(module) if how == "copy" else pickle.loads(pickle.dumps(module))
    assert [(n, p.requires_grad) for n, p in other.named_parameters()] == [
        (n, p.requires_grad) for n, p in module.named_parameters()
    ]
    x = torch.randn(5, 3, dtype=torch.float64 if moved else torch.float32)
    module.eval(), other.eval()
    assert torch.equal(other(x), module(x))
    with torch.no_grad():
        other.get_parameter("3.weight").zero_()
    assert other(x).eq(other.get_parameter("3.bias")).all()
    assert module(x).ne(other(x)).any()


class Head(nn.Cell):
    """A network whose attributes have the names that a module of torch, and ours, use."""

    def __init__(self):
        super().__init__()
        self.cell, self.type, self._layers = nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2)
        self.half = ml.Parameter(np.full(2, 0.5, np.float32), name="half")
        self.float = ml.Parameter(np.full(2, 2.0, np.float32), name="float", requires_grad=False)

    def construct(self, x):
        return self._layers(self.type(self.cell(x))) * self.half + self.float


def test_errors_of_a_module_show_the_line_of_the_user():
    module = to_torch(nn.Dense(3, 2))
    for called in (module, torch.nn.Sequential(module)):
        with pytest.raises(MinimlError, match="expected") as caught:
            called(torch.ones(1, 4))  # here
        assert "called(torch.ones(1, 4))  # here" in "".join(caught.value.__notes__)


def test_a_parameter_that_the_network_got_later_is_refused():
    net = nn.Dense(3, 2)
    module, x = to_torch(net), torch.ones(1, 3)
    module(x)
    net.weight = ml.Parameter(np.zeros((3, 2), np.float32), name="newer")
    with pytest.raises(
        MinimlError, match=r"^to_torch of Dense does not hold .*newer.*to_torch\(net\)"
    ):
        module(x)
    assert to_torch(net)(x).shape == (1, 2)


def test_a_network_may_name_its_layers_as_a_module_names_its_own():
    net = Head()
    module = to_torch(nn.Sequential(net))
    assert list(module.state_dict()) == [f"0.{path}" for path in net.parameters_dict()]
    x = torch.randn(5, 3)
    for each in (module, copy.deepcopy(module), to_torch(net)):
        each(x).sum().backward()
        assert np.array_equal(each(x).detach().numpy(), net(ml.Tensor(x.numpy())).asnumpy())
        assert all(p.grad is not None for p in each.parameters())
        assert each.eval().double() is each
    with torch.no_grad():
        to_torch(net).state_dict()["cell.weight"].zero_()
    assert not net.cell.weight.asnumpy().any()


def test_parameters_of_a_network_can_be_reparametrized():
    module = to_torch(nn.Sequential(nn.Dense(3, 4)))
    x = torch.randn(5, 3)
    before = module(x).detach()
    torch.nn.utils.parametrizations.weight_norm(module.get_submodule("0"), "weight", dim=0)
    assert torch.allclose(module(x), before, atol=1e-6)
    module(x).sum().backward()
    assert all(p.grad is not None for n, p in module.named_parameters() if "weight" in n)


def test_network_compiled():
    module = to_torch(small_net())
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 3)
    before = module.state_dict()["1.running_mean"].clone()
    assert not torch.equal(compiled(x), compiled(x))
    assert not torch.equal(module.state_dict()["1.running_mean"], before)
    module.eval()
    assert torch.allclose(compiled(x), module(x))


def test_refusals():
    neg = to_torch(ops.Neg())
    with pytest.raises(
        DTypeError, match=r"Neg got a float; it takes torch tensors, as torch.as_te"
    ):
        neg(1.0)
    with pytest.raises(ArityError, match=r"Neg takes 1 tensors \(x\); got 0"):
        neg()
    with pytest.raises(DTypeError, match=r"of layout torch.sparse_coo; it takes dense tensors of"):
        neg(torch.ones(2).to_sparse())
    weight = ml.Parameter(np.ones(7), "w")
    with pytest.raises(GraphError, match=r"reads 'w', which would be a constant there"):
        to_torch(lambda x: x * weight)(X)
    with pytest.raises(ArityError, match=r"attributes of the class"):
        SNAKE(X, alpha=0.5)


# --- from_torch -----------------------------------------------------------------------------------


def test_function_of_torch_here():
    f = from_torch(lambda x, y: (torch.sin(x) @ y["m"], {"s": (x * x).sum()}))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    first, rest = f(x, {"m": y})
    np.testing.assert_allclose(first.asnumpy(), np.sin(x) @ y)
    np.testing.assert_allclose(float(rest["s"]), (x * x).sum())
    assert gradcheck(lambda a, b: f(a, {"m": b})[0], x, y, order=2).ok
    compiled = ml.jit(lambda a: f(a, {"m": y})[1]["s"] * 2.0)
    np.testing.assert_allclose(float(compiled(x)), 2 * (x * x).sum())
    assert len(ml.trace(lambda a: f(a, {"m": y})[0], x).nodes) == 1


def test_second_derivatives_and_own_functions_of_autograd():
    cube = from_torch(lambda t: (t**3).sum())
    np.testing.assert_allclose(hessian(cube)(np.array([1.0, 2.0])).asnumpy(), [[6, 0], [0, 12]])

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, d):
            return 2 * ctx.saved_tensors[0] * d

    found = grad(lambda v: from_torch(Square.apply)(v).sum())(np.array([1.0, 2.0]))
    np.testing.assert_allclose(found.asnumpy(), [2.0, 4.0])
    both = grad(lambda v: from_torch(to_torch(ops.Tanh()))(v).sum())(np.zeros(2))
    np.testing.assert_allclose(both.asnumpy(), [1.0, 1.0])


def test_module_trains_here():
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    net = from_torch(module, torch.ones(5, 3))
    assert list(net.parameters_dict()) == list(module.state_dict())
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.5))
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    losses = [float(step(x, (x[:, 0] > 0).astype(int))) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    np.testing.assert_allclose(
        module(torch.from_numpy(x)).detach().numpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6
    )


def test_a_module_that_changes_later_is_seen():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(), torch.nn.Tanh())
    net, x = from_torch(module.eval(), torch.ones(4, 3)), np.ones((4, 3), np.float32)
    ways = net, ml.jit(net)

    def agree():
        expected = module(torch.from_numpy(x)).detach().numpy()
        return [np.allclose(way(x).asnumpy(), expected) for way in ways] == [True, True]

    assert agree()
    module[2] = torch.nn.ReLU()
    assert agree()
    module.train()
    for way in ways:
        with pytest.raises(GraphError, match=r"draws random numbers: .*module.eval"):
            way(x)
    module.eval()
    assert agree()
    old = module[0].weight
    module[0].weight = torch.nn.Parameter(torch.ones(2, 3))
    for way in ways:
        with pytest.raises(
            MinimlError, match=r"Sequential does not share 0.weight, .*again, from_"
        ):
            way(x)
    module[0].weight = old
    assert agree()


def test_from_torch_refuses_effects():
    with pytest.raises(GraphError, match=r"Dropout, which draws random numbers: .*module.eval"):
        from_torch(torch.nn.Dropout(), torch.ones(3))
    norm = torch.nn.BatchNorm1d(3)
    with pytest.raises(GraphError, match=r"BatchNorm1d, which writes to the buffer running_"):
        from_torch(norm, torch.ones(4, 3))
    assert not norm.running_mean.any()
    with pytest.raises(GraphError, match=r"writes to argument 0: .*return the values"):
        from_torch(lambda t: t.add_(1))(np.ones(3))
    with pytest.raises(DTypeError, match=r"returned a int; from_torch takes functions that return"):
        from_torch(lambda t: 3)(np.ones(3))
    with pytest.raises(MinimlError, match=r"from_torch got 3; it takes a function of tensors"):
        from_torch(3)


# --- Modules as graphs ----------------------------------------------------------------------------


class _Tied(torch.nn.Module):
    """One matrix that is both ends, and a constant one."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Embedding(10, 4)
        self.last = torch.nn.Linear(4, 10, bias=False)
        self.last.weight = self.first.weight
        self.register_buffer("shift", torch.ones(10))

    def forward(self, i):
        return self.last(self.first(i)) + self.shift


MODULES = {
    "mlp": lambda: (
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)),
        torch.randn(3, 4),
    ),
    "cnn": lambda: (
        torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
        ),
        torch.randn(2, 1, 5, 5),
    ),
    "gru": lambda: (torch.nn.GRU(3, 4, bidirectional=True), torch.randn(5, 2, 3)),
    "tied": lambda: (_Tied(), torch.randint(0, 10, (2, 3))),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_becomes_a_graph_that_trains(name):
    pytest.importorskip("onnx", reason="no onnx")
    module, x = MODULES[name]()
    module.eval()
    graph = import_torch(module, x)
    names = [p.name for p in graph.trainable_params()]
    assert len(names) == len([*module.parameters()])  # tied ones have one of their names
    assert {*names} <= {n for n, _ in module.named_parameters(remove_duplicate=False)}

    def first(out):
        return out[0] if isinstance(out, tuple) else out

    def loss(values):
        return ops.mean(ops.square(first(graph(values))))

    value, gradients = ml.jit(value_and_grad(loss, None, weights=graph))(x.numpy())
    wanted_value = first(module(x)).square().mean()
    wanted_value.backward()
    assert float(value) == pytest.approx(float(wanted_value.detach()), rel=1e-5)
    for parameter, gradient in zip(graph.trainable_params(), gradients, strict=True):
        theirs = module.get_parameter(parameter.name)
        np.testing.assert_array_equal(parameter.asnumpy(), theirs.detach().numpy())
        np.testing.assert_allclose(gradient.asnumpy(), theirs.grad.numpy(), 1e-4, 1e-6)
    assert not module.training


def test_what_a_module_does_not_train_is_not_trained_here():
    pytest.importorskip("onnx", reason="no onnx")
    module = torch.nn.Linear(3, 2).eval()
    module.bias.requires_grad_(False)
    graph = import_torch(module, np.ones((4, 3), np.float32))
    assert [p.name for p in graph.trainable_params()] == ["weight"]


def test_import_torch_says_what_it_lacks():
    pytest.importorskip("onnx", reason="no onnx")
    with pytest.raises(MinimlError, match="got Linear and 0 arguments; the call is import_torch"):
        import_torch(torch.nn.Linear(3, 2))
    with pytest.raises(MinimlError, match="cannot export Linear: torch's exporter says"):
        import_torch(torch.nn.Linear(3, 2), torch.ones(4, 5))


@pytest.mark.parametrize("make", [to_torch, from_torch])
def test_constants_that_cannot_be_hashed_are_refused(make):
    x = torch.ones(2) if make is to_torch else np.ones(2)
    with pytest.raises(GraphError, match=r"got \{1, 2\} of type set, .* nor hashable; pass"):
        make(lambda x, chosen: x)(x, {1, 2})


@pytest.mark.parametrize(
    "obj", [ops.matmul, ops.MatMul(), ops.MatMul], ids=["function", "instance", "class"]
)
def test_gradients_are_those_of_the_autocast_of_the_call(obj):
    """Torch asks for them anywhere, as outside of the context in which the loss was computed."""
    product = to_torch(obj)
    for casts in (True, False, True):
        a = torch.full((2, 2), 0.1, requires_grad=True)
        with ml.context(autocast=ml.float16 if casts else False):
            out = product(a, a)
        assert out.dtype == (torch.float16 if casts else torch.float32)
        with ml.context(autocast=False if casts else ml.float16):
            out.sum().backward()
        assert a.grad.dtype == torch.float32
        torch.testing.assert_close(a.grad, torch.full((2, 2), 0.4), rtol=1e-3, atol=0)
