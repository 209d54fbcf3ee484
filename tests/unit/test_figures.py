"""What is inside networks: outputs of layers, gradients, and their pictures."""

import sys

import numpy as np
import pytest

import miniml as ml
from miniml import nn, ops, viz
from miniml.errors import MinimlError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 1, 4, 4)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0])


def network():
    ml.manual_seed(0)
    relu = nn.ReLU()
    body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), relu)
    return nn.Sequential(body, nn.Flatten(), nn.Dropout(0.5), nn.Dense(8, 3), relu)


def state(net):
    arrays = [p.asnumpy() for p in net.get_parameters()]
    return [*arrays, ml.random_state.asnumpy()]


@pytest.mark.parametrize("mode", [ml.PYNATIVE_MODE, ml.GRAPH_MODE])
def test_activations_are_what_layers_give_and_change_nothing(mode):
    net = network()
    before = state(net)
    with ml.context(mode=mode):
        found = viz.activations(net, X)
    assert list(found) == [
        "0.0 (Conv2d)", "0.1 (BatchNorm2d)", "0.2 (ReLU)", "0.2 (ReLU) 2", "1 (Flatten)",
        "2 (Dropout)", "3 (Dense)",
    ]  # fmt: skip
    images = np.lib.stride_tricks.sliding_window_view(X[:, 0], (3, 3), axis=(1, 2))
    weight = net[0][0].weight.asnumpy()[:, 0]
    expected = np.einsum("nhwij,oij->nohw", images, weight)
    expected += net[0][0].bias.asnumpy()[:, None, None]
    np.testing.assert_allclose(found["0.0 (Conv2d)"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found["0.2 (ReLU) 2"], np.maximum(found["3 (Dense)"], 0))
    for now, then in zip(state(net), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert all(not cell._hooks for cell in net.cells())


def test_activations_of_layers_with_several_outputs_and_of_one_layer():
    found = viz.activations(nn.Sequential(nn.GRU(3, 2)), np.ones((5, 1, 3), np.float32))
    assert {name: array.shape for name, array in found.items()} == {
        "0 (GRU)": (5, 1, 2),
        "0 (GRU) 2": (1, 1, 2),
    }
    assert list(viz.activations(nn.ReLU(), X)) == ["(ReLU)"]
    with pytest.raises(MinimlError, match="activations got 3 of type int; give a network"):
        viz.activations(3)


def test_hooks_are_removed_where_a_call_fails():
    net = network()
    with pytest.raises(MinimlError):
        viz.activations(net, X[0])
    assert all(not cell._hooks for cell in net.cells())


def test_gradients_are_those_of_a_step_and_change_nothing():
    net = nn.Sequential(nn.Dense(3, 2), nn.BatchNorm1d(2))
    x, y = RNG.normal(size=(6, 3)).astype(np.float32), np.float32(RNG.normal(size=(6, 2)))
    before = state(net)
    found = viz.gradients(net, lambda out, y: (ops.sum(out * y), out), x, y)
    assert list(found) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    np.testing.assert_allclose(found["1.bias"], y.sum(0), rtol=1e-5)
    for now, then in zip(state(net), before, strict=True):
        np.testing.assert_array_equal(now, then)
    two = type("Two", (nn.Cell,), {"construct": lambda self, a, b: self.d(a) + b})()
    two.d = nn.Dense(3, 2)
    found = viz.gradients(two, lambda out, y: ops.sum(out * y), (x, y), y)
    np.testing.assert_allclose(found["d.weight"], x.T @ y, rtol=1e-5, atol=1e-5)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_histograms_say_what_they_leave_out():
    values = {"a": np.array([0, 0, 1, 3.0]), "b": np.array([1, np.nan, np.inf]), "c": np.ones(0)}
    figure = viz.histograms(values, title="Outputs")
    first, second, third = [axes for axes in figure.axes if axes.axison]
    assert figure.get_suptitle() == "Outputs"
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert first.get_xlabel() == "mean 1, deviation 1.22\n50% are 0"
    assert sum(bar.get_height() for bar in first.patches) == 4
    assert (first.get_title(), first.get_ylabel()) == ("a", "count")
    assert second.get_title() == "b: 2 not finite"
    assert third.get_xlabel() == "no finite number"
    with pytest.raises(MinimlError, match="got 0 arrays; give 1 to 48"):
        viz.histograms({})
    with pytest.raises(MinimlError, match=r"got ndarray; give a dict, as viz\.activations"):
        viz.histograms(np.ones(3))
    with pytest.raises(MinimlError, match="gradients got ndarray for the loss"):
        viz.gradients(nn.Dense(1, 1), np.ones((2, 1)), np.ones((2, 1)))


def test_pictures_are_drawn_of_numbers_without_a_scale():
    whole = viz.histograms({"a": np.full(100, 1e16), "b": np.array([1e16, 1e16 + 4]), "c": [0.0]})
    assert [sum(b.get_height() for b in axes.patches) for axes in whole.axes[:3]] == [100, 2, 1]
    for gradients in ({"w": np.zeros(3)}, {"w": np.full(3, 5e-324)}, {"w": np.full(2, 1e300)}):
        assert viz.gradient_flow(gradients)._repr_png_().startswith(b"\x89PNG")
    for counts in ([[5]], [[0]]):
        assert viz.confusion_matrix(counts)._repr_png_()


def test_gradient_flow_shows_means_maxima_and_what_has_none():
    (axes,) = viz.gradient_flow(
        {"w": np.array([-4.0, 2.0]), "dead": np.zeros(3), "bad": np.array([np.nan, 1.0])}
    ).axes
    assert [bar.get_width() for bar in axes.patches] == [4, 0, 0, 3, 0, 0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["w", "dead", "bad"]
    assert texts(axes) == ["is 0", "not finite"]
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "absolute value of the gradient"
    with pytest.raises(MinimlError, match="got no gradients"):
        viz.gradient_flow({})
    with pytest.raises(MinimlError, match=r"got list; give a dict, as viz\.gradients"):
        viz.gradient_flow([np.ones(3)])


def test_feature_maps_share_a_scale():
    maps = RNG.normal(size=(70, 3, 4))
    figure = viz.feature_maps(maps, title="conv")
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 64
    assert {axes.images[0].get_clim() for axes in panels} == {(maps.min(), maps.max())}
    assert figure.get_suptitle() == "conv: 3 x 4, the first 64 of 70"
    with pytest.raises(MinimlError, match=r"got shape \(3, 4\); give the images"):
        viz.feature_maps(maps[0])


def test_a_confusion_matrix_has_counts_names_and_the_share_that_is_right():
    counts = np.array([[3, 1], [0, 4]])
    axes, _ = viz.confusion_matrix(counts, ["cat", "dog"]).axes
    assert axes.get_title() == "87.5% of 8 are right"
    assert texts(axes) == ["3", "1", "", "4"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "true")
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0.75, 0.25], [0, 1]])
    metric = ml.train.confusion_matrix(30)
    assert texts(viz.confusion_matrix(np.zeros(metric.shape, int)).axes[0]) == []
    with pytest.raises(MinimlError, match=r"got shape \(2, 2\) and 1 names; give counts"):
        viz.confusion_matrix(counts, ["cat"])
    for wrong in (counts * np.nan, -counts, 5):
        with pytest.raises(MinimlError, match="give counts of shape"):
            viz.confusion_matrix(wrong)


def test_without_matplotlib_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MinimlError, match="drawn with matplotlib, which is not installed"):
        viz.histograms({"a": [1.0]})
