"""Orders of rows: shares, strata and lengths; collated samples; streams; and what is refused."""

from functools import partial

import numpy as np
import pytest

import miniml as ml
from miniml import data, nn, optim
from miniml.data import DataLoader, Stream
from miniml.errors import MinimlError, ShapeError, ValueRefusedError

ROWS = np.arange(90)
LABELS = np.repeat([0, 1, 2], [60, 20, 10])


def order(sampler, size=9, epoch=0, **options):
    return [
        x.tolist()
        for (x,) in DataLoader(ROWS, size=size, seed=3, sampler=sampler, **options).batches(epoch)
    ]


def joined(batches):
    return [row for batch in batches for row in batch]


SAMPLERS = {
    "weighted": data.weighted(np.ones(90)),
    "stratified": data.stratified(LABELS),
    "bucketed": data.bucketed(ROWS % 7),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_order_is_fixed_by_seed_and_epoch_and_goes_on_anywhere(name):
    sampler = SAMPLERS[name]
    first = order(sampler)
    assert order(sampler) == first != order(sampler, epoch=1)
    loader = DataLoader(ROWS, size=9, seed=3, sampler=sampler)
    assert [x.tolist() for (x,) in loader.batches(0, 4)] == first[4:]
    assert [x.tolist() for (x,) in loader.every_row()] == ROWS.reshape(-1, 9).tolist()
    if name != "weighted":
        assert sorted(joined(first)) == ROWS.tolist()


def test_rows_are_drawn_with_their_weights():
    weights = data.class_weights(LABELS)[LABELS]
    drawn = [
        row for e in range(40) for batch in order(data.weighted(weights), epoch=e) for row in batch
    ]
    shares = np.bincount(LABELS[drawn]) / len(drawn)
    assert abs(shares - 1 / 3).max() < 5 * np.sqrt(2 / 9 / len(drawn))
    assert 0 not in joined(order(data.weighted(ROWS > 0)))


def test_weights_of_classes_are_those_of_scikit_learn():
    weight = pytest.importorskip("sklearn.utils.class_weight")
    expected = weight.compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    np.testing.assert_allclose(data.class_weights(LABELS), expected, 1e-6)
    assert data.class_weights([0, 0, 2], 4).tolist() == [0.375, 0.0, 0.75, 0.0]


@pytest.mark.parametrize("size", [7, 9, 30])
def test_strata_have_their_share_in_each_batch(size):
    for epoch in range(5):
        for batch in order(SAMPLERS["stratified"], size=size, epoch=epoch):
            share = np.bincount(LABELS)[None] * size / 90
            assert abs(np.bincount(LABELS[batch], minlength=3) - share).max() < 2


def test_buckets_hold_rows_of_like_length_and_are_shuffled():
    lengths = np.random.default_rng(0).integers(1, 100, 90)
    spreads = [np.ptp(lengths[b]) for b in order(data.bucketed(lengths, pool=10))]
    assert np.mean(spreads) < 0.3 * np.mean([np.ptp(lengths[b]) for b in order(None)])
    firsts = [lengths[b].min() for b in order(data.bucketed(lengths, pool=10))]
    assert firsts != sorted(firsts)
    ragged = order(data.bucketed(lengths), size=40, drop_last=False)
    assert [len(b) for b in ragged] == [40, 40, 10]


def padded(samples):
    words, labels = zip(*samples, strict=True)
    return data.pad_sequences(words)[0], np.array(labels)


def test_samples_are_collated():
    words, labels = [[1], [2, 2], [3, 3, 3], [4]], np.array([0, 1, 0, 1])
    pairs = list(zip(words, labels, strict=True))
    for sources in ((words, labels), (pairs,)):
        x, y = next(iter(DataLoader(*sources, size=4, collate=padded)))
        assert x.tolist() == [[1, 0, 0], [2, 2, 0], [3, 3, 3], [4, 0, 0]]
        assert y.tolist() == labels.tolist()
    doubled = DataLoader(words, labels, size=4, collate=padded, transform=lambda x, draw: 2 * x)
    assert next(iter(doubled))[0][2].tolist() == [6, 6, 6]
    with pytest.raises(MinimlError, match=r"got a list from collate|got a dict from collate"):
        list(DataLoader(words, size=4, collate=lambda samples: {"x": samples}))


def numbers(epoch, n=10):
    return ((np.float32(i), i % 2) for i in range(100 * epoch, 100 * epoch + n))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_stream_shuffles_in_a_buffer_and_goes_on_anywhere(prefetch):
    plain = Stream(numbers, size=3, drop_last=False, prefetch=prefetch)
    assert [x.tolist() for x, _ in plain] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert next(iter(plain))[0].tolist() == [100, 101, 102]  # the next epoch
    whole = Stream(numbers, size=3, prefetch=prefetch)  # by default without a smaller batch
    assert [x.tolist() for x, _ in whole] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    stream = Stream(partial(numbers, n=40), size=4, buffer=8, seed=1, prefetch=prefetch)
    batches = [x.tolist() for x, _ in stream.batches(2)]
    assert sorted(joined(batches)) == list(range(200, 240)) != joined(batches)
    assert [x.tolist() for x, _ in stream.batches(2, 6)] == batches[6:]
    assert all(abs(i - (x - 200)) < 40 for i, x in enumerate(joined(batches)))
    assert max(x - 200 - i for i, x in enumerate(joined(batches))) <= 8  # no further ahead


def test_a_fit_of_a_stream_resumes_to_the_same_bits(tmp_path):
    def samples(epoch):
        draw = np.random.default_rng(epoch)
        return ((draw.normal(size=3).astype(np.float32), i % 2) for i in range(20))

    class Stops(ml.train.Callback):
        def on_steps(self, run, losses):
            if run.steps == 7:
                raise RuntimeError("stopped")

    def fit(path, callbacks=()):
        ml.manual_seed(0)
        net = nn.Dense(3, 2)
        model = ml.train.Model(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params()))
        stream = Stream(samples, size=4, buffer=6)
        model.fit(stream, epochs=3, save_every=1, resume=path, callbacks=callbacks, show=False)
        return net.weight.asnumpy()

    straight = fit(tmp_path / "straight")
    with pytest.raises(RuntimeError, match="stopped"):
        fit(tmp_path / "cut", [Stops()])
    assert np.array_equal(straight, fit(tmp_path / "cut"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: data.weighted([1.0, -1.0]), ValueRefusedError, "numbers >= 0, not all 0"),
        (
            lambda: data.stratified([0.5, 1.0]),
            ShapeError,
            r"labels float64\[2\]; expected \(N,\) ints",
        ),
        (lambda: data.class_weights([0, 3], 3), ValueRefusedError, "label 3 for 3 classes"),
        (lambda: data.bucketed([[1]]), ShapeError, r"bucketed got lengths int64\[1, 1\]"),
        (lambda: data.bucketed([1], 0), ValueRefusedError, "pool=0"),
        (lambda: order(data.weighted([1.0])), ShapeError, "expected 90 row numbers"),
        (lambda: order(lambda size: 1), MinimlError, "the size of a batch and a NumPy Generator"),
        (lambda: Stream(iter([1]), size=1), MinimlError, "begins anew each"),
        (lambda: Stream(3, size=1), MinimlError, "got a int; give an iterable"),
        (lambda: Stream([1], size=0), ValueRefusedError, "size=0"),
    ],
)
def test_what_gives_no_order_and_no_stream_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
