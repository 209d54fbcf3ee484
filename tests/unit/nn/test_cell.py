"""Cells: names, training flags, what is refused, copies, and when programs are made anew."""

import copy
import pickle

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, optim
from miniml.errors import AttributeRefusedError, DeviceError, MinimlError, ShapeError
from miniml.grad import grad
from miniml.runtime.jit import compiled

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Block(nn.Cell):
    """Two layers, one parameter of its own, and one layer used twice."""

    def __init__(self):
        self.first = nn.Dense(3, 3)
        self.scale = ml.Parameter(np.ones(3, np.float32))
        self.again = self.first
        self.layers = nn.CellList([nn.Dense(3, 2, bias=False), nn.Dropout(0.5)])

    def construct(self, x):
        x = self.again(self.first(x)) * self.scale
        for layer in self.layers:
            x = layer(x)
        return x


def test_parameters_are_found_by_path_and_named_by_it():
    block = Block()
    found = block.parameters_dict()
    assert list(found) == ["scale", "first.weight", "first.bias", "layers.0.weight"]
    assert [p.name for p in block.get_parameters()] == list(found)
    assert found["first.weight"] is block.first.weight
    outer = nn.Sequential(nn.ReLU(), block)
    assert outer.trainable_params()[1].name == "1.first.weight"


def test_a_shared_parameter_appears_once():
    a, b = nn.Dense(2, 2), nn.Dense(2, 2)
    b.weight = a.weight
    assert list(nn.Sequential(a, b).parameters_dict()) == ["0.weight", "0.bias", "1.bias"]


def test_trainable_params_leave_out_running_statistics():
    net = nn.BatchNorm2d(2)
    assert [p.name for p in net.trainable_params()] == ["weight", "bias"]
    assert len(net.get_parameters()) == 4


def test_set_train_reaches_every_cell_and_gives_the_cell_back():
    block = Block()
    assert block.training
    assert block.set_train(False) is block
    assert not any(cell.training for cell in block.cells())
    assert all(cell.training for cell in block.set_train().cells())


def test_super_init_may_be_forgotten_and_construct_not():
    assert Block().parameters_dict()

    class Empty(nn.Cell):
        pass

    with pytest.raises(MinimlError, match="Empty defines no construct"):
        Empty()(1.0)

    class Torch(nn.Cell):
        def forward(self, x):
            return x

    with pytest.raises(MinimlError, match="forward is called construct here"):
        Torch()(1.0)


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_that_would_hide_parameters_are_refused(kind):
    class Hidden(nn.Cell):
        def __init__(self):
            self.layers = kind([nn.Dense(2, 2)])

    with pytest.raises(AttributeRefusedError, match=r"Hidden\.layers is a .* use nn\.CellList"):
        Hidden()


def test_sequential_is_a_list_of_cells():
    net = nn.Sequential(nn.Dense(3, 2), nn.ReLU())
    assert len(net) == 2
    assert net[-1] is net[1]
    assert net.append(nn.Dense(2, 1)) is net
    assert [type(c).__name__ for c in net] == ["Dense", "ReLU", "Dense"]
    assert net(X).shape == (2, 1)
    with pytest.raises(AttributeRefusedError, match="of type function; use a layer"):
        net.append(lambda x: x)
    with pytest.raises(AttributeRefusedError, match="of type ReLU, an operation; use a layer"):
        net.append(ops.relu)
    with pytest.raises(AttributeRefusedError, match=r"give its cells, \*cells\.values\(\)"):
        nn.Sequential({"relu": nn.ReLU()})


def test_cells_of_a_container_may_be_replaced_and_taken_away():
    net = nn.Sequential(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
    compiled = ml.jit(net)
    assert compiled(X).shape == (2, 2)
    net[-1] = nn.Dense(4, 5)
    assert compiled(X).shape == (2, 5)
    last = net[2]
    del net[1]
    assert list(net.parameters_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert net[1] is last
    assert compiled(X).shape == (2, 5)
    del net[1:]
    assert net(X).shape == (2, 4)
    assert len(net.append(nn.Tanh())) == 2


def test_names_of_one_s_own_stay_when_cells_before_them_are_taken_away():
    class Headed(nn.Sequential):
        def __init__(self):
            super().__init__(nn.ReLU(), nn.Tanh())
            self.head = nn.Dense(3, 2)
            self.append(nn.Sigmoid())

    net = Headed()
    _, tanh, head, last = net
    del net[0]
    assert [*net] == [tanh, head, last]
    assert net.head is head
    assert [*net.parameters_dict()] == ["head.weight", "head.bias"]
    del net[1]
    assert [*net] == [tanh, last]


def test_what_is_appended_takes_nobody_s_place():
    net = nn.Sequential(nn.ReLU(), nn.Tanh(), last := nn.Dense(3, 2))
    delattr(net, "1")
    net.append(added := nn.Sigmoid())
    assert [*net] == [net[0], last, added]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda net: net[2], IndexError, "Sequential of 2 cells has none at 2"),
        (lambda net: net["0"], TypeError, "Sequential got the index '0'; expected an int"),
        (lambda net: net.__setitem__(2, nn.ReLU()), IndexError, "has none at 2"),
        (lambda net: net.__setitem__(0, ops.relu), TypeError, "Sequential holds cells"),
        (lambda net: net.__delitem__(-3), IndexError, "has none at -3"),
    ],
)
def test_positions_that_a_container_lacks_are_refused(wrong, error, message):
    with pytest.raises(error, match=message) as caught:
        wrong(nn.Sequential(nn.ReLU(), nn.Tanh()))
    assert isinstance(caught.value, MinimlError)


def test_what_a_class_holds_is_refused_as_nobody_would_find_it():
    with pytest.raises(AttributeRefusedError, match=r"Shared\.dense .* self\.dense = "):

        class Shared(nn.Cell):
            dense = nn.Dense(3, 2)


def test_a_property_that_fails_says_what_it_lacks():
    class Late(nn.Cell):
        @property
        def head(self):
            return self.absent

    with pytest.raises(AttributeError, match="Late has no attribute 'absent'"):
        Late().head  # noqa: B018


def test_cells_that_know_the_one_around_them_can_be_shown():
    net = nn.Sequential(nn.Dense(3, 2))
    net[0].owner = net
    assert repr(net) == "Sequential(\n  (0): Dense(3, 2\n    (owner): ...\n  )\n)"
    assert net(X).shape == (2, 2)


def test_repr_shows_the_tree():
    assert repr(nn.Sequential(nn.Dense(3, 2), nn.Sequential(nn.Dropout(0.5)))) == (
        "Sequential(\n  (0): Dense(3, 2)\n  (1): Sequential(\n    (0): Dropout(0.5)\n  )\n)"
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_copies_are_equal_and_independent(copied):
    block = Block()
    other = copied(block.set_train(False))
    assert type(other) is Block
    assert not other.training
    assert other.first is other.again
    assert np.array_equal(other(X).asnumpy(), block(X).asnumpy())
    other.scale.set_data(np.zeros(3, np.float32))
    assert block.scale.asnumpy().all()
    assert not other(X).asnumpy().any()


def test_to_keeps_what_is_there_and_names_an_absent_device():
    net = nn.Dense(3, 2)
    weight = net.weight
    assert net.to("CPU") is net
    assert net.weight is weight
    with pytest.raises(DeviceError, match="cuda"):
        net.to("cuda")


def test_equal_seeds_give_equal_weights():
    def drawn(seed):
        ml.manual_seed(seed)
        return [p.asnumpy() for p in Block().get_parameters()]

    assert all(np.array_equal(a, b) for a, b in zip(drawn(3), drawn(3), strict=True))
    assert not np.array_equal(drawn(3)[1], drawn(4)[1])


class Moody(nn.Cell):
    """Counts how often it is traced; its factor and its mode are read while tracing."""

    def __init__(self):
        self.factor = 2.0
        self.inner = nn.Sequential(nn.Dropout(0.0))

    def construct(self, x):
        traced.append(1)
        return x * self.factor if self.inner[0].training else -x


traced: list[int] = []


def test_graph_mode_compiles_once_until_something_changes():
    net = Moody()
    traced.clear()
    with ml.context(mode=ml.GRAPH_MODE):
        for _ in range(3):
            assert np.array_equal(net(X).asnumpy(), 2 * X)
        assert len(traced) == 1
        net.factor = 3.0
        assert np.array_equal(net(X).asnumpy(), 3 * X)
        net.inner[0].set_train(False)  # a grandchild that is not even called
        assert np.array_equal(net(X).asnumpy(), -X)
        net.set_train(True)
        assert np.array_equal(net(X).asnumpy(), 3 * X)
        assert len(traced) <= 4
        net(X)
        assert len(traced) <= 4
        other = copy.deepcopy(net)
        other.factor = 5.0
        assert np.array_equal(other(X).asnumpy(), 5 * X)
        assert np.array_equal(net(X).asnumpy(), 3 * X)


def test_a_parameter_that_learns_no_more_is_seen():
    net = nn.Sequential(nn.Dense(3, 2), nn.Dense(2, 1))
    loss = ml.jit(lambda x: grad(lambda: ops.sum(net(x)), None, weights=net)())
    step = ml.train_step(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))
    labels = np.ones((len(X), 1), np.float32)
    assert len(loss(X)) == 4
    step(X, labels)
    net[1].bias.requires_grad = False
    assert len(loss(X)) == 3
    before = net[1].bias.tolist()
    with pytest.raises(MinimlError, match=r"SGD for 1.bias, which do not learn"):
        step(X, labels)
    assert net[1].bias.tolist() == before
    net[1].bias.requires_grad = True
    assert len(loss(X)) == 4
    step(X, labels)
    assert net[1].bias.tolist() != before


def test_a_new_parameter_is_seen_and_new_data_need_no_program():
    net = nn.Dense(3, 1, bias=False)
    with ml.context(mode=ml.GRAPH_MODE):
        net(X)
        count = len(compiled(net._entry).recompilations)
        net.weight.set_data(np.ones((3, 1), np.float32))
        assert np.array_equal(net(X).asnumpy(), X.sum(1, keepdims=True))
        assert len(compiled(net._entry).recompilations) == count
        net.weight = ml.Parameter(np.zeros((3, 1), np.float32))
        assert not net(X).asnumpy().any()


def test_graph_mode_equals_eager():
    block = Block().set_train(False)
    eager = block(X).asnumpy()
    with ml.context(mode=ml.GRAPH_MODE):
        assert np.allclose(block(X).asnumpy(), eager, rtol=1e-6)


def test_a_refusal_names_the_layer_and_shows_the_line():
    net = nn.Sequential(nn.Dense(4, 2))
    with pytest.raises(ShapeError, match=r"Dense\(4, 2\) got input of shape \(2, 3\)") as caught:
        net(X)
    assert "net(X)" in "".join(caught.value.__notes__)
    with ml.context(mode=ml.GRAPH_MODE), pytest.raises(ShapeError, match=r"expected \(\.\.\., 4\)"):
        net(X)


def test_cells_take_gradients_with_respect_to_inputs():
    net = nn.Dense(3, 2, bias=False)
    slope = ml.grad.grad(lambda x: ops.sum(net(x)))(X)
    assert np.allclose(slope.asnumpy(), np.tile(net.weight.asnumpy().sum(1), (2, 1)))


class Growing(nn.Cell):
    """Adds to its parameter by assignment, as NumPy's users would."""

    def __init__(self):
        self.w, self.act = ml.Parameter(np.ones(3, np.float32)), nn.ReLU()

    def construct(self, x):
        self.w += 1
        return self.act(x * self.w)


@pytest.mark.parametrize(
    "value", [np.zeros(3, np.float32), ml.Tensor([1.0]), 0.0, [1.0], nn.ReLU()], ids=repr
)
def test_a_parameter_is_replaced_by_parameters_only(value):
    net = Growing()
    before, w = net.signature, net.w
    message = r"Growing\.w is a Parameter, which .* cannot replace.*use \.w\.set_data\(value\), "
    with pytest.raises(AttributeRefusedError, match=message):
        net.w = value
    assert (net.w, net.signature) == (w, before)
    net.w.set_data(np.zeros(3, np.float32))
    net.w = other = ml.Parameter(np.zeros(2, np.float32))
    assert net.trainable_params() == [other]
    net.w = None
    assert net.trainable_params() == []
    net.w = other
    del net.w
    net.w = value
    assert net.w is value


@pytest.mark.parametrize("run", [lambda f: f, ml.jit, ml.grad.jacobian], ids=["eager", "jit", "gr"])
def test_a_parameter_augmented_in_construct_is_refused_with_what_would_do(run):
    message = r"Tensor .* cannot replace.*inside construct ops\.assign\(self\.w, value\)"
    with pytest.raises(AttributeRefusedError, match=message) as caught:
        run(Growing())(X)
    assert "self.w += 1" in "".join(caught.value.__notes__)


def test_a_child_is_replaced_by_cells_only():
    net = Growing()
    with pytest.raises(AttributeRefusedError, match=r"Growing\.act is a Cell.*; give a Cell, or"):
        net.act = ops.relu
    net.act = nn.Tanh()
    assert len(list(net.cells())) == 2
    net.act = None
    assert len(list(net.cells())) == 1
    stack = nn.Sequential(nn.ReLU())
    with pytest.raises(AttributeRefusedError, match=r"Sequential\.0 is a Cell"):
        setattr(stack, "0", np.tanh)


class Configured(nn.Cell):
    """Plain attributes, a layer, a parameter and a list."""

    def __init__(self):
        self.width, self.name, self.keep = 3, "body", True
        self.extents, self._hidden = [1, 2], 4
        self.dense, self.w = nn.Dense(3, 3), ml.Parameter(np.ones(2))

    def construct(self, x):
        return self.dense(x)


def test_own_cells_show_their_plain_attributes():
    assert repr(Configured()) == (
        "Configured(width=3, name='body', keep=True\n  (dense): Dense(3, 3)\n)"
    )


def test_a_slice_of_a_container_is_one_of_the_same_cells():
    net = nn.Sequential(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 2))
    body = net[:2]
    assert type(body) is nn.Sequential
    assert list(body) == [net[0], net[1]]
    assert body(X).shape == (2, 4)

    class Stack(nn.Sequential):
        def __init__(self, width):
            super().__init__(nn.Dense(3, width), nn.ReLU())

    assert Stack(5)[:1](X).shape == (2, 5)
    cells = nn.CellList(net)[::2]
    assert type(cells) is nn.CellList
    assert list(cells.parameters_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
