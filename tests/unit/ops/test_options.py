"""Options of composed functions: numbers of NumPy count as numbers, others are refused by name."""

import numpy as np
import pytest

from miniml import ops
from miniml.errors import AttributeRefusedError, ValueRefusedError

X, IMAGE, TAPS = np.ones((2, 3)), np.ones((2, 4, 6, 6)), np.ones((4, 4, 3, 3))
FRAMES, ONES = np.zeros((5, 2, 3)), [[1], [1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.group_norm(IMAGE, 2.5), "group_norm got num_groups=2.5; expected an int"),
        (lambda: ops.group_norm(IMAGE, 2, eps="a"), "group_norm got eps='a'; expected a number"),
        (lambda: ops.rms_norm(X, X[0], eps=np.inf), "rms_norm got eps=inf; expected a finite"),
        (lambda: ops.cosine_similarity(X, X, eps=-1), "cosine_similarity got eps=-1; expected"),
        (lambda: ops.huber_loss(X, X, delta="a"), "huber_loss got delta='a'; expected a number"),
        (lambda: ops.huber_loss(X, X, delta=X), "huber_loss got delta=array.*expected a number"),
        (lambda: ops.cross_entropy(X, [0, 1], label_smoothing="a"), "got label_smoothing='a'; e"),
        (lambda: ops.cross_entropy(X, [0, 1], ignore_index=1.5), "got ignore_index=1.5; expected"),
        (lambda: ops.nll_loss(X, [0, 1], ignore_index="a"), "nll_loss got ignore_index='a'; e"),
        (lambda: ops.ctc_loss(FRAMES, ONES, [5, 5], [1, 1], 0.5), "ctc_loss got blank=0.5; expec"),
        (lambda: ops.conv2d(IMAGE, TAPS, groups="a"), "conv2d got groups='a'; expected an int"),
        (lambda: ops.conv_transpose2d(IMAGE, TAPS, groups=1.0), "groups=1.0; expected an int"),
        (lambda: ops.rotary_embedding(IMAGE, base=-1.0), "rotary_embedding got base=-1.0; expec"),
        (lambda: ops.sinusoidal_positions(2, 4, base=0), "got base=0; expected a number > 0"),
        (lambda: ops.sinusoidal_positions(2, 4, start=0.5), "got start=0.5; expected an int"),
    ],
)
def test_what_is_no_number_is_refused_by_name(call, message):
    with pytest.raises((AttributeRefusedError, ValueRefusedError), match=message):
        call()


@pytest.mark.parametrize("sizes", [(-1, 4), (2, -4), (2.5, 4), (2, "a")])
def test_sinusoidal_positions_need_two_extents(sizes):
    says = r"sinusoidal_positions got \(length, d\)=.*; expected two ints >= 0"
    with pytest.raises((AttributeRefusedError, ValueRefusedError), match=says):
        ops.sinusoidal_positions(*sizes)


def test_numbers_and_arrays_of_numpy_are_options_too():
    two, pair = np.int64(2), np.array([2, 2])
    for n in (two, pair):
        assert ops.conv2d(IMAGE, TAPS, stride=n, padding=n, dilation=n).shape == (2, 4, 3, 3)
        assert ops.max_pool2d(IMAGE, n).shape == ops.adaptive_avg_pool2d(IMAGE, 3 * n // 2).shape
        assert ops.resize(IMAGE, n).shape == (2, 4, 2, 2)
    assert ops.conv2d(IMAGE, TAPS[:, :2], padding=np.array([[0, 1], [1, 0]]), groups=two).ndim == 4
    assert ops.group_norm(IMAGE, two, eps=np.float32(0.1)).shape == IMAGE.shape
    assert ops.sinusoidal_positions(two, np.int32(0)).shape == (2, 0)
