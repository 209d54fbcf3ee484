"""Memory formats: networks in each of them, kernels of users' own, and what is refused."""

import numpy as np
import pytest

import miniml as ml
from miniml import Kernel, KernelAttr, kernel, nn, ops, optim
from miniml.core.abstract import FORMATS, stored
from miniml.errors import DeclarationError, KernelNotFoundError, MinimlError
from miniml.grad import grad
from tests.unit.core.kernels import primitive

FORMS = ("NHWC", "CHWN", "NC16HW")
EPS = np.finfo(np.float32).eps


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def explained(fn, *args):
    """The choices of a program, as (primitive, its kernel)."""
    return [(c.primitive.split("(")[0], c.kernel) for c in ml.explain(fn, *args).rows]


def relu_of_conv(x, w, bias):
    return ops.max_pool2d(ops.relu(ops.conv2d(x, w, bias, padding=1)), 2)


@pytest.mark.parametrize("provider", ["miniml", "cc"])
@pytest.mark.parametrize("form", FORMS)
def test_one_stretch_from_end_to_end(form, provider):
    """Convolution, bias, ReLU and pooling lie in the format, and what leaves is row-major."""
    args = draw(2, 3, 8, 6), draw(20, 3, 3, 3, seed=1), draw(20, seed=2)
    with ml.context(providers=("miniml",)):
        expected = ml.jit(relu_of_conv)(*args)
    with ml.context(providers=(provider,), formats=(form,), verify_passes=True):
        got = ml.jit(relu_of_conv)(*args)
        chosen = explained(relu_of_conv, *args)
    assert chosen[-1][0] == "Convert"
    assert [k for p, k in chosen if p == "MaxPool2D"] == [f"f->fl {form}->{form},{form}"]
    assert got.asnumpy().flags.c_contiguous
    np.testing.assert_allclose(got.asnumpy(), expected.asnumpy(), rtol=0, atol=64 * EPS)


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Dense(16, 10),
    )  # fmt: skip


class Residual(nn.Cell):
    """Two convolutions with batch norm, and the way around them."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels)

    def construct(self, x):
        y = ops.relu(self.norm1(self.conv1(x)))
        return ops.relu(x + self.norm2(self.conv2(y)))


def resnet():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), Residual(16),
        nn.MaxPool2d(4), nn.Flatten(), nn.Dense(16 * 16, 10),
    )  # fmt: skip


def trained(make, providers, forms):
    """The loss, the parameters after a step, and the outputs of the network afterwards."""
    ml.manual_seed(3)
    net = make()
    x, y = draw(3, 1, 16, 16), np.array([1, 7, 2])
    with ml.context(providers=providers, formats=forms):
        step = ml.train_step(
            net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.125)
        )
        loss = step(x, y)
        parameters = [p.asnumpy() for p in net.trainable_params()]
        net.set_train(False)
        return [loss.asnumpy(), *parameters, ml.jit(net)(x).asnumpy()]


@pytest.mark.parametrize("make", [lenet, resnet])
@pytest.mark.parametrize("provider", ["miniml", "cc"])
def test_a_network_is_the_same_in_every_format(make, provider):
    """Sums may be taken in another order: up to 64 ulp of the largest number of an array."""
    expected = trained(make, ("miniml",), ())
    for form in FORMS:
        for got, right in zip(trained(make, (provider,), (form,)), expected, strict=True):
            far = np.abs(got - right).max() / np.abs(right).max()
            assert far <= 64 * EPS, (form, far / EPS)


def test_the_text_of_the_graph_says_where_images_change_their_order():
    x, w = draw(1, 3, 6, 6), draw(16, 3, 3, 3)
    with ml.context(providers=("miniml",), formats=("NHWC",)):
        text = str(ml.jit(ops.conv2d).compiled(x, w).program.graph)
    assert "float32[1, 3, 6, 6] NHWC = Convert(format='NHWC') %0" in text
    assert "float32[1, 16, 4, 4] NHWC = Conv2D" in text
    assert "float32[1, 16, 4, 4] = Convert(format='NCHW')" in text


def test_formats_are_ranked():
    x, w = draw(1, 3, 6, 6), draw(16, 3, 3, 3)
    for ranked in (("NCHW",), ("NCHW", "NHWC")):
        with ml.context(providers=("miniml",), formats=ranked):
            assert [p for p, _ in explained(ops.conv2d, x, w)] == ["Conv2D"]
    with ml.context(providers=("miniml",), formats="CHWN"):
        assert ("Conv2D", "ff->f CHWN,NCHW->CHWN") in explained(ops.conv2d, x, w)
    with ml.context(providers=("miniml",)):
        assert [p for p, _ in explained(ops.conv2d, x, w)] == ["Conv2D"]


def test_one_image_with_many_channels_lies_in_blocks():
    """Where the batch fills no lines, and there are channels to fill a block."""
    w = draw(32, 32, 3, 3)
    with ml.context(providers=("cc",)):
        assert ("Conv2D", "ff->f NC16HW,NCHW->NC16HW") in explained(
            ops.conv2d, draw(1, 32, 9, 9), w
        )
        assert ("Conv2D", "ff->f CHWN,NCHW->CHWN") in explained(ops.conv2d, draw(16, 32, 9, 9), w)
        assert ("Conv2D", "ff->f") in explained(ops.conv2d, draw(1, 20, 9, 9), draw(20, 20, 3, 3))


def test_a_network_of_many_wide_images_lies_in_blocks_and_keeps_one_format():
    """Wide: of 64 channels, of which all images have more in a window than stays near. Filters of
    one pixel follow."""

    def fn(x, v, w):
        return ops.conv2d(ops.conv2d(x, v), w)

    def formats(images, channels, size=3, outputs=16):
        v, w = draw(channels, 3, size, size), draw(outputs, channels, 3, 3)
        found = explained(fn, draw(images, 3, 9, 9), v, w)
        return [name.partition(" ")[2] for primitive, name in found if primitive == "Conv2D"]

    with ml.context(providers=("cc",)):
        for many in (formats(64, 64), formats(64, 64, 1)):
            assert many == ["NCHW,NCHW->NC16HW", "NC16HW,NCHW->NC16HW"]
        for few in (formats(48, 64), formats(128, 48), formats(128, 16, outputs=64)):
            assert few == ["CHWN,NCHW->CHWN"] * 2
        alone = explained(ops.conv2d, draw(64, 64, 9, 9), draw(128, 64, 1, 1))
        assert ("Conv2D", "ff->f NC16HW,NCHW->NC16HW") in alone


def test_bias_and_activation_are_the_epilogue_of_a_convolution_in_blocks():
    x, w, bias = draw(1, 16, 9, 9), draw(32, 16, 3, 3, seed=1), draw(32, seed=2)

    def fn(x, w, bias):
        return ops.conv2d(ops.relu(ops.conv2d(x, w, bias)), draw(16, 32, 3, 3, seed=3))

    with ml.context(providers=("cc",)):
        assert "conv2d_add_relu" in str(ml.explain(fn, x, w, bias))
        got = ml.jit(fn)(x, w, bias)
    with ml.context(providers=("miniml",)):
        expected = ml.jit(fn)(x, w, bias)
    np.testing.assert_allclose(got.asnumpy(), expected.asnumpy(), rtol=0, atol=1e-3)


def test_what_lies_beside_the_last_channel_reaches_no_result():
    """exp(0) = 1 fills the block, 1 / 0 is infinite; a mean of 20 channels is one of 20."""
    x, w = draw(1, 20, 5, 5), draw(20, 20, 3, 3, seed=1)

    def fn(x, w):
        y = ops.exp(ops.conv2d(x, w, padding=1))
        y = 1.0 / (y + ops.cast(ops.equal(y, 0.0), ml.float32))
        z = ops.log(ops.square(ops.conv2d(y * 0.0 + 1.0, w, padding=1)))
        return ops.mean(z, (0, 2, 3)), ops.mean(z), ops.conv2d(z, w)

    for provider in ("miniml", "cc"):
        with ml.context(providers=(provider,), formats=("NC16HW",)):
            got = ml.jit(fn)(x, w)
        with ml.context(providers=("miniml",)):
            for one, right in zip(got, ml.jit(fn)(x, w), strict=True):
                np.testing.assert_allclose(one.asnumpy(), right.asnumpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("provider", ["miniml", "cc"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
def test_what_a_user_converts_is_converted(form, provider, dtype):
    x = np.arange(2 * 17 * 3 * 5).reshape(2, 17, 3, 5).astype(dtype)

    def fn(x):
        return ops.Convert(form)(x) * 2, grad(lambda y: ops.sum(ops.square(ops.Convert(form)(y))))(
            ops.cast(x, ml.float32)
        )

    with ml.context(providers=(provider,), verify_passes=True):
        twice, slope = ml.jit(fn)(x)
        assert "Convert" in [p for p, _ in explained(fn, x)]
    assert (twice.asnumpy() == x * 2).all()
    assert (slope.asnumpy() == 2 * x).all()
    assert (ops.Convert(form)(x).asnumpy() == x).all()


@pytest.fixture
def doubled(tables_as_before):
    """A primitive for 2 x without a kernel."""
    return primitive("FormatDoubled")()


def attr(*formats):
    takes, gives = formats
    return KernelAttr().add_input_attr(ml.float32, takes).add_output_attr(ml.float32, gives)


@pytest.mark.parametrize("form", FORMS)
def test_a_kernel_of_one_format_gets_its_array(form, doubled):
    """The only kernel: the program converts whatever the setting is."""
    seen = []

    @kernel("FormatDoubled", "cpu", attr(form, form))
    def fill(x, *, out):
        seen.append((x.shape, out.shape))
        np.add(x, x, out=out)

    x = draw(2, 17, 3, 4)
    assert (ml.jit(doubled)(x).asnumpy() == 2 * x).all()
    assert seen == [(stored(x.shape, form),) * 2]


def test_a_class_selects_formats_for_its_node(doubled):
    """From what its input has: NHWC in, and what it gives is row-major."""
    asked = []

    @kernel("FormatDoubled", "cpu", "f->f", attr("NHWC", None))
    class Twice(Kernel):
        @classmethod
        def select_format(cls, node):
            asked.append(node.inputs[0].format)
            return (node.inputs[0].format,), (None,)

        def prepare(self, node):
            self.call = self.transposed if node.inputs[0].format else self.plain

        def transposed(self, x, *, out):
            np.multiply(x.transpose(0, 3, 1, 2), 2, out=out)

        def plain(self, x, *, out):
            np.multiply(x, 2, out=out)

    x, w = draw(1, 3, 6, 6), draw(4, 3, 3, 3)

    def fn(x, w):
        return doubled(ops.conv2d(x, w))

    with ml.context(providers=("miniml",)):
        expected = ml.jit(fn)(x, w)
        assert ("FormatDoubled", "f->f") in explained(fn, x, w)
    with ml.context(providers=("miniml",), formats=("NHWC",)):
        np.testing.assert_allclose(ml.jit(fn)(x, w), expected, rtol=1e-5)
        assert ("FormatDoubled", "f->f NHWC->NCHW") in explained(fn, x, w)
        assert [p for p, _ in explained(fn, x, w)].count("Convert") == 1
    assert {None, "NHWC"} <= {*asked}


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        (
            (("NHWC",), ("NHWC",)),
            "Wrong: select_format gave NHWC->NHWC, for which no kernel is registered",
        ),
        ((("N4CX",), ("NHWC",)), "select_format: memory format 'N4CX' is unknown; the formats are"),
        ((("NHWC",), ()), "gave .* for 1 inputs and 1 outputs; it gives a format for each"),
        ("NHWC", "gave 'NHWC' for 1 inputs and 1 outputs; it gives a format for each"),
        (("NHWC", "NHWC"), "it gives a format for each, as in"),
    ],
)
@pytest.mark.parametrize("others", [(), (attr("CHWN", "CHWN"),)])
def test_what_a_class_may_not_select(answer, refusal, others, doubled):
    @kernel("FormatDoubled", "cpu", "f->f", *others)
    class Wrong(Kernel):
        @classmethod
        def select_format(cls, node):
            return answer

    with pytest.raises((DeclarationError, KernelNotFoundError), match=refusal):
        ml.jit(doubled)(draw(2, 3, 4, 5))


def test_unknown_formats_are_refused_by_name():
    known = "the formats are NCHW, NHWC, CHWN, NC16HW"
    with pytest.raises(MinimlError, match=f"memory format 'NCWH' is unknown; {known}"):
        ml.context(formats=("NHWC", "NCWH")).__enter__()
    with pytest.raises(DeclarationError, match=f"KernelAttr: .*'N16CX' is unknown; {known}"):
        KernelAttr().add_input_attr(ml.float32, "N16CX")


def test_a_kernel_of_other_formats_alone_is_refused_where_nothing_converts(doubled):
    kernel("FormatDoubled", "cpu", attr("NHWC", "NHWC"))(lambda x, *, out: None)
    with pytest.raises(KernelNotFoundError, match=r"in memory format NCHW on cpu; .*ml.jit"):
        doubled(draw(2, 3, 4, 5))


@pytest.mark.parametrize("form", FORMATS)
def test_programs_of_no_images_are_as_they_were(form):
    x = draw(0, 3, 5, 5)
    with ml.context(providers=("miniml",), formats=(form,)):
        assert ml.jit(relu_of_conv)(x, draw(4, 3, 3, 3), draw(4)).shape == (0, 4, 2, 2)
        assert "Convert" not in str(ml.explain(lambda x: ops.relu(x) + 1, draw(2, 3, 4, 4)))
