"""Transforms of images and text: what they give, by seed, and what they refuse."""

import numpy as np
import pytest

from miniml import data
from miniml.errors import MinimlError, ShapeError, ValueRefusedError

IMAGES = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
PIXELS = np.zeros((1, 1, 2, 2), np.uint8)


def draw(seed=0):
    return np.random.default_rng(seed)


def test_normalize_and_pad():
    found = data.normalize([1.0, 2.0, 3.0], 2.0)(IMAGES, draw())
    assert found.dtype == np.float32
    assert np.array_equal(found[:, 1], (IMAGES[:, 1] - 2) / 2)
    assert data.normalize(128, 64)(IMAGES.astype(np.uint8), draw()).dtype == np.float32
    padded = data.pad_images(2, value=-1.0)(IMAGES, draw())
    assert padded.shape == (2, 3, 8, 9)
    assert np.array_equal(padded[:, :, 2:-2, 2:-2], IMAGES)
    assert (padded[:, :, :2] == -1).all()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float16", "float32", "float64"])
def test_normalized_images_are_float32(dtype):
    images = np.full((1, 1, 2, 2), 6, dtype)
    found = data.normalize(4.0, 0.5)(images, draw())
    assert found.dtype == np.float32
    assert np.array_equal(found, np.full((1, 1, 2, 2), 4.0))


def test_a_crop_is_a_window_at_each_place_alike_often():
    many = np.arange(20.0).reshape(1, 1, 4, 5).repeat(6000, 0)
    found = data.random_crop((3, 2))(many, draw())
    corners = found[:, 0, 0, 0].astype(int)
    for row, corner in zip(found[:50, 0], corners[:50], strict=True):
        assert np.array_equal(row, many[0, 0, corner // 5 :, corner % 5 :][:3, :2])
    places, counts = np.unique(corners, return_counts=True)
    assert places.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
    assert abs(counts / 6000 - 1 / 8).max() < 5 * np.sqrt(1 / 8 * 7 / 8 / 6000)
    assert data.random_crop(4, padding=1)(IMAGES, draw()).shape == (2, 3, 4, 4)


def test_a_flip_turns_its_share_of_whole_images():
    many = IMAGES[:1].repeat(4000, 0)
    found = data.random_flip(0.25)(many, draw())
    turned = (found == many[..., ::-1]).all((1, 2, 3))
    assert (turned | (found == many).all((1, 2, 3))).all()
    assert abs(turned.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)


def test_a_loader_draws_by_seed_epoch_and_batch():
    def first(seed=1, epoch=0, start=0, images=IMAGES):
        steps = data.chain(data.random_crop(3), data.random_flip(), data.normalize(9.0, 2.0))
        loader = data.DataLoader(
            images.repeat(16 // len(images), 0), np.arange(16), size=4, seed=seed, transform=steps
        )
        return list(loader.batches(epoch, start))

    whole = first()
    assert whole[0][0].shape == (4, 3, 3, 3)
    for a, b in zip(first(start=2), whole[2:], strict=True):
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])
    assert not np.array_equal(first(epoch=1)[0][0], whole[0][0])
    same = first(images=IMAGES[:1])
    assert not np.array_equal(same[0][0], same[1][0])
    assert not np.array_equal(first(seed=2)[0][0], whole[0][0])


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ShapeError, match=r"random_flip got \(4, 5\); expected images \(N, C, H, W\)"
    ):
        data.random_flip()(IMAGES[0, 0], draw())
    with pytest.raises(ShapeError, match=r"windows of \(6, 6\); give a smaller size, or padding"):
        data.random_crop(6)(IMAGES, draw())
    with pytest.raises(ShapeError, match=r"2 means and 1 stds .* each of 3 channels"):
        data.normalize([1.0, 2.0], 1.0)(IMAGES, draw())
    for call, message in (
        (lambda: data.normalize(0.0, 0.0), "std=0.0; expected a number > 0"),
        (lambda: data.random_flip(1.5), "p=1.5"),
        (lambda: data.pad_images(-1), "width=-1"),
        (lambda: data.pad_images(1, -1)(PIXELS, draw()), "value=-1 for images of uint8"),
        (lambda: data.pad_images(1, 0.5)(PIXELS, draw()), "value=0.5 for images of uint8"),
        (lambda: data.Vocabulary(("a",), by="bytes"), "by='bytes'; expected one of 'characters'"),
        (lambda: data.Vocabulary(("a", "a")), "differ"),
        (lambda: data.Vocabulary.of("ab").encode("abc"), "of 2 characters lacks 'c'; make it of"),
        (lambda: data.Vocabulary.of("ab").decode([0, -1]), "from -1 to 0; .* tokens 0 to 1"),
        (lambda: data.Vocabulary.of("ab", size=1, special="pu"), "size=1; expected an int >= 2"),
        (lambda: data.pad_sequences([[1]], length=-1), "length=-1"),
        (lambda: data.pad_sequences("ab"), "each of one axis"),
    ):
        with pytest.raises(MinimlError, match=message):
            call()
    with pytest.raises(ValueRefusedError, match="of 3 got length=3; expected an int from 1 to 2"):
        data.next_tokens(np.arange(3), 3)
    with pytest.raises(ShapeError, match="at least one"):
        data.pad_sequences([])


def test_a_vocabulary_goes_there_and_back():
    text = "to be, or not to be?"
    letters = data.Vocabulary.of(text)
    assert letters.decode(letters.encode(text)) == text
    assert letters.tokens[:3] == (" ", "o", "t")
    words = data.Vocabulary.of(text, "words", size=5, special=["<pad>"], unknown="?")
    assert words.tokens == ("<pad>", "?", "be", "to", ",")
    assert words.encode("to be or be").tolist() == [3, 2, 1, 2]
    assert words.decode([3, 2]) == "to be"
    assert data.Vocabulary(words.tokens, "words", "?") == words
    assert repr(words) == "Vocabulary(5 words)"


def test_sequences_are_padded_and_cut():
    padded, lengths = data.pad_sequences([[1, 2, 3], [], np.array([4])], value=9)
    assert padded.tolist() == [[1, 2, 3], [9, 9, 9], [4, 9, 9]]
    assert padded.dtype == np.int64
    assert lengths.tolist() == [3, 0, 1]
    assert data.pad_sequences([[1], []], value=0.5)[0].tolist() == [[1.0], [0.5]]
    assert data.next_tokens([1, 2, 3], 2)[1].tolist() == [[2, 3]]
    padded, lengths = data.pad_sequences([[1, 2, 3], [4]], length=2)
    assert padded.tolist() == [[1, 2], [4, 0]]
    assert lengths.tolist() == [2, 1]
    x, y = data.next_tokens(np.arange(6), 3)
    assert x.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert np.array_equal(y, x + 1)
    assert np.shares_memory(x, y)
