"""Layouts by name: the strides they give, and that the numbers stay."""

import numpy as np
import pytest

from miniml.testing import calls as layouts


class Last:
    """Chooses the last value, always."""

    def of(self, values):
        return values[-1]


@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize(
    "layout",
    [
        "contiguous", "Fortran-ordered", "axes swapped", "reversed", "sliced", "offset",
        "reversed along axis 1", "Fortran-ordered, sliced along axis 0, reversed, offset",
    ],
)  # fmt: skip
def test_a_layout_moves_elements_and_changes_none(shape, layout):
    a = np.random.default_rng(0).normal(size=shape)
    assert np.array_equal(layouts.lay(a, layout), a)


def test_strides_are_what_the_words_say():
    a = np.zeros((2, 3), np.float32)
    strides = {
        "contiguous": (12, 4), "Fortran-ordered": (4, 8), "reversed along axis 0": (-12, 4),
        "sliced": (48, 8), "broadcast along axis 1": (4, 0), "broadcast": (0, 4),
        "Fortran-ordered, reversed": (-4, -8),
    }  # fmt: skip
    assert {name: layouts.lay(a, name).strides for name in strides} == strides


def test_what_is_broadcast_is_the_first_entry_and_read_only():
    a = np.arange(6.0).reshape(2, 3)
    laid = layouts.lay(a, "broadcast along axis 1")
    assert np.array_equal(laid, np.repeat(a[:, :1], 3, axis=1))
    assert not laid.flags.writeable
    indices = np.arange(3)
    assert np.array_equal(layouts.lay(indices, "broadcast"), indices)  # they may have to differ


def test_layouts_are_words_that_can_be_taken_away():
    assert layouts.drawn_layouts(Last(), (2,)) == (
        "axes swapped, broadcast along axis 0, broadcast along axis 1, offset",
    )
    assert layouts.simpler_layouts("reversed, offset") == ("contiguous", "offset", "reversed")
    assert layouts.simpler_layouts("contiguous") == ()
    assert not layouts.is_layout("sideways")
    assert not layouts.is_layout("offset along axis 1")
    assert all(map(layouts.is_layout, layouts.USUAL))


def test_usual_layouts_stand_beside_each_other_in_every_pair():
    pairs = set(layouts.usual_layouts(2))
    assert len(pairs) == len(layouts.USUAL) ** 2
    assert list(layouts.usual_layouts(1)) == [(name,) for name in layouts.USUAL]
