"""Transforms of images and text: what they give, by seed, and what they refuse."""

import colorsys

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
    for tokens in (np.ones((2, 3), int), [1]):
        with pytest.raises(ShapeError, match=r"next_tokens got tokens \(.*; expected \(T,\)"):
            data.next_tokens(tokens, 1)
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


def test_affine_maps_are_those_of_scipy():
    ndimage = pytest.importorskip("scipy.ndimage")
    images = np.random.default_rng(1).normal(size=(4, 2, 7, 9))
    options = {"degrees": 30.0, "translate": 0.2, "scale": (0.7, 1.4), "shear": 20.0}
    found = data.random_affine(**options, value=0.5)(images, draw(5))
    same = draw(5)  # the draws in their order
    turn = np.deg2rad(same.uniform(-30, 30, 4))
    down, right = same.uniform(-0.2, 0.2, 4) * 7, same.uniform(-0.2, 0.2, 4) * 9
    size, lean = same.uniform(0.7, 1.4, 4), np.tan(np.deg2rad(same.uniform(-20, 20, 4)))
    centre = np.array([3.0, 4.0])  # of rows and columns, which grow downwards and to the right
    for i in range(4):
        cos, sin = np.cos(turn[i]), np.sin(turn[i])
        shear = np.array([[1, 0], [lean[i], 1]])
        forward = size[i] * np.array([[cos, -sin], [sin, cos]]) @ shear
        back = np.linalg.inv(forward)
        offset = centre - back @ (centre + [down[i], right[i]])
        for c in range(2):
            # A margin of the value, so that pixels beside the edge are mixed with it there, too.
            wide = np.pad(images[i, c], 2, constant_values=0.5)
            expected = ndimage.affine_transform(
                wide, back, offset + 2 - back @ [2, 2], wide.shape, order=1, cval=0.5
            )[2:-2, 2:-2]
            np.testing.assert_allclose(found[i, c], expected, 1e-9, 1e-9)


def test_a_positive_angle_turns_counterclockwise_and_integers_are_rounded():
    image = np.zeros((1, 1, 5, 5), np.uint8)
    image[0, 0, 2, 4] = 200  # on the right

    class Up:
        def uniform(self, low, high, n):
            return np.full(n, high)

    found = data.random_affine(90.0)(image, Up())
    assert found.dtype == np.uint8
    assert np.argwhere(found[0, 0]).tolist() == [[0, 2]]  # at the top
    assert np.array_equal(data.random_affine()(image, draw()), image)


COLORS = np.random.default_rng(5).random((6, 3, 4, 5)).astype(np.float32)


class Highest:
    """Draws the upper end of every range."""

    def uniform(self, low, high, size):
        return np.full(size, high)


def test_hue_and_saturation_are_those_of_colorsys():
    found = data.random_color(hue=0.2)(COLORS, Highest())
    grey = data.random_color(saturation=1.0)(COLORS * 0.25, Highest())
    for i, y, x in np.ndindex(6, 4, 5):
        h, s, v = colorsys.rgb_to_hsv(*map(float, COLORS[i, :, y, x]))
        np.testing.assert_allclose(
            found[i, :, y, x], colorsys.hsv_to_rgb((h + 0.2) % 1, s, v), atol=1e-6
        )
        pixel = COLORS[i, :, y, x].astype(np.float64) / 4
        middle = pixel @ [0.299, 0.587, 0.114]
        np.testing.assert_allclose(grey[i, :, y, x], np.clip(2 * pixel - middle, 0, 1), atol=1e-6)


def test_brightness_and_contrast_are_factors_within_the_range():
    bright = data.random_color(brightness=0.5)(COLORS, Highest())
    np.testing.assert_allclose(bright, np.minimum(1.5 * COLORS, 1), 1e-6)
    image = np.array([0.0, 100.0, 200.0, 255.0]).astype(np.uint8).reshape(1, 1, 2, 2)
    found = data.random_color(contrast=0.5)(image, Highest())
    assert found.dtype == np.uint8
    middle = image.mean()
    expected = np.clip(np.rint(middle + 1.5 * (image - middle)), 0, 255)
    assert np.array_equal(found, expected)
    assert np.array_equal(data.random_color()(image, draw()), image)


def test_colors_are_drawn_by_image_and_come_again_by_batch():
    steps = data.chain(data.random_color(0.4, 0.4, 0.4, 0.1), data.normalize(0.5, 0.5))
    loader = data.DataLoader(COLORS, np.arange(6), size=3, seed=0, transform=steps)
    (first, _), (second, _) = loader.batches(0)
    assert np.array_equal(next(loader.batches(0, 1))[0], second)
    assert not np.array_equal(next(loader.batches(1))[0], first)
    same = data.random_color(0.4)(np.repeat(COLORS[:1] / 2, 400, 0), draw()) / (COLORS[:1] / 2)
    factors = same.mean((1, 2, 3))
    assert np.ptp(same, axis=(1, 2, 3)).max() < 1e-5
    assert 0.6 <= factors.min() < 0.62 < 1.38 < factors.max() <= 1.4001
    assert abs(factors.mean() - 1) < 5 * 0.8 / np.sqrt(12 * 400)


def test_erased_rectangles_have_their_area_and_ratio():
    many = np.ones((3000, 1, 40, 40), np.float32)
    found = data.random_erase(0.5, (0.1, 0.2), (0.5, 2.0), value=-1.0)(many, draw())[:, 0] < 0
    chosen = found.any((1, 2))
    assert abs(chosen.mean() - 0.5) < 5 * np.sqrt(0.25 / 3000)
    rows, columns = found[chosen].any(2).sum(1), found[chosen].any(1).sum(1)
    assert np.array_equal(rows * columns, found[chosen].sum((1, 2)))  # a rectangle
    shares = rows * columns / 1600
    assert 0.09 < shares.min() < 0.105 < 0.195 < shares.max() < 0.21
    assert abs(shares.mean() - 0.15) < 0.003
    assert 0.45 < (rows / columns).min() < 0.55 < 1.8 < (rows / columns).max() < 2.2
    assert (
        abs(
            found[chosen].mean(0)[18:22, 18:22].mean()
            - found[chosen].mean(0)[:, ::-1][18:22, 18:22].mean()
        )
        < 0.05
    )


def test_mixed_images_have_mixed_labels():
    images = np.random.default_rng(2).normal(size=(50, 2, 8, 8)).astype(np.float32)
    labels = np.arange(50) % 5
    mixed, shares, extra = data.mixup(5, 0.4)((images, labels, labels), draw(1))
    same = draw(1)
    s, other = same.beta(0.4, 0.4, 50), same.permutation(50)
    expected = s[:, None, None, None] * images + (1 - s[:, None, None, None]) * images[other]
    np.testing.assert_allclose(mixed, expected, 1e-5, 1e-6)
    onehot = np.eye(5)[labels]
    np.testing.assert_allclose(
        shares, s[:, None] * onehot + (1 - s[:, None]) * onehot[other], 1e-5, 1e-6
    )
    assert shares.dtype == np.float32
    assert extra is labels


def test_pasted_rectangles_count_by_their_pixels():
    labels = np.arange(200) % 4
    images = np.broadcast_to(np.float32(labels)[:, None, None, None], (200, 1, 10, 10))
    mixed, shares = data.cutmix(4)((images, labels), draw())
    for image, share in zip(mixed[:, 0], shares, strict=True):
        counted = np.bincount(image.astype(int).ravel(), minlength=4) / 100
        np.testing.assert_allclose(share, counted, atol=1e-6)
    np.testing.assert_allclose(shares.sum(1), 1, 1e-6)
    assert (
        abs(shares[np.arange(200), labels].mean() - 0.625) < 0.1
    )  # 1/2, and a quarter of the rest


def test_a_loader_mixes_what_it_makes_of_seed_epoch_and_number():
    images = np.random.default_rng(3).normal(size=(20, 1, 4, 4)).astype(np.float32)
    loader = data.DataLoader(images, np.arange(20) % 3, size=5, seed=0, mix=data.mixup(3))
    first, again = ([a for batch in loader.batches(0) for a in batch] for _ in range(2))
    assert all(map(np.array_equal, first, again))
    assert np.array_equal(next(loader.batches(0, 2))[0], first[4])
    assert not np.array_equal(next(loader.batches(1))[0], first[0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: data.random_affine(scale=1.5), ValueRefusedError, r"scale=1.5; expected two numb"),
        (lambda: data.random_affine(scale=(2, 1)), ValueRefusedError, "low first"),
        (lambda: data.random_color(hue=0.6), ValueRefusedError, "hue=0.6"),
        (lambda: data.random_color(hue=0.1)(PIXELS, draw()), ShapeError, "expected 3 channels"),
        (lambda: data.random_color(0.1)(IMAGES, draw()), MinimlError, "before normalize"),
        (lambda: data.random_erase(area=(0.1, 2)), ValueRefusedError, r"area\[1\]=2"),
        (lambda: data.random_affine(value=0.5)(PIXELS, draw()), MinimlError, "do not hold it"),
        (
            lambda: data.mixup(2)(IMAGES, draw()),
            MinimlError,
            "transform= is given the images alone",
        ),
        (lambda: data.mixup(2)((IMAGES, [0, 2]), draw()), MinimlError, "from 0 to 2 for 2 classes"),
        (lambda: data.cutmix(2)((IMAGES, [0.5, 1]), draw()), MinimlError, "expected ints"),
        (lambda: data.cutmix(2)((IMAGES, [0]), draw()), ShapeError, r"expected \(N,\)"),
    ],
)
def test_what_does_not_fit_an_augmentation_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
