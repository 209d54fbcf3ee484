"""Layers that convolve, pool and resize: numbers of PyTorch 2.13, its weights, and refusals."""

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops
from miniml.errors import AttributeRefusedError, ShapeError, ValueRefusedError
from miniml.grad import value_and_grad

from .test_recurrent import fill

SHAPES = {1: (2, 4, 7), 2: (2, 4, 5, 6), 3: (2, 4, 4, 3, 5)}
# Of a layer as it is called: the output's shape; the sum of the output times numbers of fill, that
# of the gradient in the input of the sum of out + out^3, and those in weight and bias.
GOLDEN = {
    "Conv1d(4, 6, 3, stride=2, padding=1, groups=2)":
        ((2, 6, 4), [-0.295703, -0.780121, -0.860051, 9.325599]),
    "Conv2d(4, 2, (2, 3), padding=(1, 0), dilation=(1, 2))":
        ((2, 2, 6, 2), [-0.23264, 5.129751, 4.897168, 29.611117]),
    "Conv3d(4, 2, (2, 1, 3), stride=(1, 2, 1), padding=1, bias=False)":
        ((2, 2, 5, 3, 5), [-7.034033, -42.803911, -47.580885]),
    "Conv1d(4, 6, 3, padding=2, padding_mode='wrap')":
        ((2, 6, 9), [-0.102436, -10.687394, -10.522674, 21.22425]),
    "Conv2d(4, 2, 3, stride=2, padding=(2, 1), padding_mode='reflect')":
        ((2, 2, 4, 3), [-1.485954, 22.632015, 30.90976, 48.51983]),
    "Conv2d(4, 2, (2, 3), padding='same', dilation=2, padding_mode='edge')":
        ((2, 2, 5, 6), [-7.698533, 64.779774, 68.727633, 121.558737]),
    "ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)":
        ((2, 6, 14), [-0.95066, -1.142939, -1.806069, 33.899638]),
    "ConvTranspose2d(4, 2, (2, 3), stride=(2, 1), padding=(1, 0), dilation=(1, 2))":
        ((2, 2, 8, 10), [-3.198759, 90.311669, 89.560298, 229.985939]),
    "ConvTranspose3d(4, 2, (2, 1, 3), (1, 2, 1), 1, (0, 1, 0), bias=False)":
        ((2, 2, 3, 4, 5), [0.552116, -5.710814, -5.197439]),
    "MaxPool1d(3, 2, 1, dilation=2, ceil_mode=True)": ((2, 4, 3), [-0.152759, 9.745129]),
    "MaxPool2d((2, 3), stride=2, padding=1)": ((2, 4, 3, 3), [0.874588, 37.902712]),
    "MaxPool3d(2, 1, 1, ceil_mode=True)": ((2, 4, 5, 4, 6), [-4.735499, 501.36282]),
    "AvgPool1d(3, 2, 1, ceil_mode=True)": ((2, 4, 4), [-0.335093, 0.162094]),
    "AvgPool2d((2, 3), 2, (1, 0), ceil_mode=True, count_include_pad=False)":
        ((2, 4, 3, 3), [-0.151853, 0.103864]),
    "AvgPool3d(2, 2, 1)": ((2, 4, 3, 2, 3), [0.214598, 0.141834]),
    "LPPool1d(2, 3, 2)": ((2, 4, 3), [0.389042, 29.937169]),
    "LPPool2d(2.5, (2, 3))": ((2, 4, 2, 2), [0.152633, 61.323076]),
    "LPPool3d(4, 2, 1)": ((2, 4, 3, 2, 4), [-0.415063, 276.014663]),
    "AdaptiveAvgPool1d(3)": ((2, 4, 3), [-0.264525, 0.139612]),
    "AdaptiveAvgPool2d((2, None))": ((2, 4, 2, 6), [-0.003917, 0.006635]),
    "AdaptiveAvgPool3d((3, 2, 1))": ((2, 4, 3, 2, 1), [0.006427, 0.000417]),
    "AdaptiveMaxPool1d(3)": ((2, 4, 3), [-0.147432, 8.579712]),
    "AdaptiveMaxPool2d((None, 4))": ((2, 4, 5, 4), [-0.257695, 27.850021]),
    "AdaptiveMaxPool3d(2)": ((2, 4, 2, 2, 2), [-0.269166, 51.872498]),
    "Upsample(scale_factor=2.5)": ((2, 4, 17), [-0.116656, -0.120806]),
    "Upsample((7, 4), mode='linear', align_corners=True)": ((2, 4, 7, 4), [-0.80195, 1.557893]),
    "Upsample((7, 4), mode='cubic')": ((2, 4, 7, 4), [-0.770702, 1.42713]),
    "Upsample((7, 4, 3), mode='linear')": ((2, 4, 7, 4, 3), [-1.237787, 2.95438]),
}  # fmt: skip


def layer_of(call):
    return eval(f"nn.{call}", {"nn": nn})


def sampled(array, k):
    return (array.asnumpy().astype(np.float64) * fill(array.shape, k)).sum()


@pytest.mark.parametrize("call", GOLDEN)
def test_numbers_and_weights_are_those_of_pytorch(call):
    shape, (total, *slopes) = GOLDEN[call]
    layer = layer_of(call)
    state = {n: fill(p.shape, k + 1) for k, (n, p) in enumerate(layer.parameters_dict().items())}
    assert list(state) == ["weight", "bias"][: len(slopes) - 1]
    nn.load_torch_state(layer, state)
    x = ml.Tensor(fill(SHAPES[len(shape) - 2], 0))

    def loss(x):
        out = layer(x)
        return ops.sum(out + out**3), out

    derived = value_and_grad(loss, has_aux=True, weights=layer.trainable_params())
    (_, out), (dx, dws) = derived(x)
    assert out.shape == shape
    found = [sampled(out, 5), sampled(dx, 6), *(sampled(dw, 7) for dw in dws)]
    np.testing.assert_allclose(found, [total, *slopes], rtol=1e-4, atol=1e-4)
    assert layer_of(repr(layer)).describe() == repr(layer)


def test_every_layer_has_its_numbers():
    kinds = {c.partition("(")[0] for c in GOLDEN}
    named = ("Conv", "Pool", "Upsample")
    here = {n for n in dir(nn) if any(part in n for part in named)}
    assert here - kinds == {"GlobalAvgPool", "GlobalMaxPool"}


def test_global_pools():
    x = fill((2, 3, 4, 5), 1)
    np.testing.assert_allclose(nn.GlobalAvgPool()(x).asnumpy(), x.mean((2, 3)), 1e-5, 1e-6)
    np.testing.assert_array_equal(nn.GlobalMaxPool()(x[..., 0]).asnumpy(), x[..., 0].max(2))


def test_pixels_become_channels_and_back():
    x = fill((2, 3, 4, 6), 1)
    apart = nn.PixelUnshuffle(2)(x)
    assert apart.shape == (2, 12, 2, 3)
    np.testing.assert_array_equal(nn.PixelShuffle(2)(apart).asnumpy(), x)
    assert repr(nn.PixelShuffle(3)) == "PixelShuffle(3)"
    with pytest.raises(ShapeError, match=r"PixelShuffle\(2\) got input of shape \(3, 4\)"):
        nn.PixelShuffle(2)(x[0, :, :, 0])


def test_first_values_and_what_is_not_learnt():
    layer = nn.ConvTranspose2d(16, 6, (2, 3), groups=2)
    assert layer.weight.shape == (16, 3, 2, 3)
    bound = 1 / np.sqrt(3 * 2 * 3)
    for p in (layer.weight, layer.bias):
        assert bound / 2 < np.abs(p.asnumpy()).max() <= bound
    assert nn.Conv3d(2, 4, 3, bias=False).trainable_params()[0].shape == (4, 2, 3, 3, 3)
    assert repr(nn.Conv1d(2, 4, 3, padding="same", bias=False)) == (
        "Conv1d(2, 4, kernel_size=(3,), padding='same', bias=False)"
    )


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_a_network_of_them_learns(mode):
    ml.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(1, 4, 3, padding="same"), nn.ReLU(), nn.MaxPool1d(2),
        nn.ConvTranspose1d(4, 4, 2, stride=2), nn.Upsample(scale_factor=2, mode="linear"),
        nn.AdaptiveAvgPool1d(5), nn.GlobalAvgPool(), nn.Dense(4, 1),
    )  # fmt: skip
    x, y = fill((6, 1, 12), 0), fill((6, 1), 0)
    step = ml.train_step(net, nn.MSELoss(), ml.optim.Adam(net.trainable_params(), 0.02))
    with ml.context(mode=mode):
        losses = [float(step(x, y)) for _ in range(40)]
    assert losses[-1] < losses[0] / 2


def notes(net, x):
    with pytest.raises((ShapeError, ValueRefusedError)) as caught:
        net(x)
    return str(caught.value), caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("layer", "shape", "says"),
    [
        (nn.Conv1d(3, 4, 5), (2, 2, 9), r"Conv1d(3, 4, kernel_size=(5,)) got input of shape (2, 2"),
        (nn.Conv1d(3, 4, 5), (2, 3, 9, 9), "expected (N, 3, L)"),
        (nn.Conv1d(3, 4, 5), (2, 3, 4), "4 + 0 + 0 = 4 pixels for a window of 5"),
        (nn.Conv3d(3, 4, 2), (2, 3, 9), "expected (N, 3, D, H, W)"),
        (nn.ConvTranspose2d(3, 4, 2), (2, 3, 9), "expected (N, 3, H, W)"),
        (nn.ConvTranspose2d(3, 4, 2, padding=9), (2, 3, 9, 9), "pad less"),
        (nn.MaxPool1d(2), (2, 3, 4, 4), "expected (N, C, L)"),
        (nn.AvgPool3d(2), (2, 3, 4, 4), "expected (N, C, D, H, W)"),
        (nn.AdaptiveAvgPool2d(1), (3, 4), "expected (N, C, H, W)"),
        (nn.GlobalAvgPool(), (3, 4), "expected (N, C, ...), with axes behind"),
        (nn.Upsample(3), (3, 4), "expected (N, C, ...), with one to three axes behind"),
        (nn.Upsample((3, 4)), (3, 4, 5), "size=(3, 4); expected one int"),
    ],
)
def test_inputs_that_do_not_fit_name_the_layer_by_its_path(layer, shape, says):
    net = nn.Sequential(nn.Identity(), nn.Sequential(layer))
    message, note = notes(net, np.ones(shape, np.float32))
    assert says in message
    assert note == f"in layer 1.0 ({type(layer).__name__})"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: nn.Conv1d(3, 4, (3, 3)), r"Conv1d got kernel_size=\(3, 3\); expected one int"),
        (lambda: nn.Conv3d(3, 4, 3, groups=2), "groups=2 for 3 channels in and 4 out"),
        (lambda: nn.ConvTranspose1d(4, 3, 3, groups=2), "groups=2 for 4 channels in and 3 out"),
        (lambda: nn.ConvTranspose2d(4, 3, 3, padding="same"), "ConvTranspose2d got padding='same'"),
        (lambda: nn.ConvTranspose2d(4, 3, 3, output_padding=-1), "output_padding"),
        (
            lambda: nn.Conv2d(3, 4, 3, padding_mode="circular"),
            "'circular'; .* its 'circular' 'wrap'",
        ),
        (lambda: nn.Conv2d(3, 4, 3, padding_mode=1), "Conv2d got padding_mode=1; expected one of"),
        (lambda: nn.LPPool1d(0.5, 2), "LPPool1d got p=0.5; expected a number >= 1"),
        (lambda: nn.PixelShuffle(0), "PixelShuffle got upscale_factor=0; expected an int >= 1"),
        (lambda: nn.PixelUnshuffle(2.0), "PixelUnshuffle got downscale_factor=2.0; expected"),
        (lambda: nn.MaxPool3d(2, dilation=0), r"MaxPool3d got dilation=\(0, 0, 0\)"),
        (lambda: nn.MaxPool1d(2, ceil_mode=1), "ceil_mode=1; expected True or False"),
        (lambda: nn.AdaptiveMaxPool2d((2, 0)), r"output_size=\(2, 0\)"),
        (lambda: nn.AdaptiveAvgPool1d("5"), "output_size"),
        (nn.Upsample, "size=None and scale_factor=None"),
        (lambda: nn.Upsample(2, mode="bilinear"), "Upsample got mode='bilinear'; .* are 'linear'"),
        (lambda: nn.Upsample(2, align_corners=True), "align_corners=True for mode='nearest'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(make, says):
    with pytest.raises((AttributeRefusedError, ShapeError, ValueRefusedError), match=says):
        make()
