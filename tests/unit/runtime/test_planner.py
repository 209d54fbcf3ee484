"""The memory planner: what is alive together never overlaps; the arena is near its bound."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from miniml.runtime.memory import ALIGNMENT, Lifetime, Plan, plan, rounded

lifetimes = st.lists(
    st.builds(
        lambda nbytes, start, length: Lifetime(nbytes, start, start + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    max_size=40,
)


def overlaps(buffers: list[Lifetime], made: Plan) -> list[tuple[int, int]]:
    """Pairs of buffers alive at one step whose bytes overlap."""
    found = []
    for i, j in itertools.combinations(range(len(buffers)), 2):
        a, b = buffers[i], buffers[j]
        together = a.start <= b.end and b.start <= a.end
        apart = (
            made.offsets[i] + a.nbytes <= made.offsets[j]
            or made.offsets[j] + b.nbytes <= made.offsets[i]
        )
        if together and not apart and a.nbytes and b.nbytes:
            found.append((i, j))
    return found


@given(lifetimes)
def test_buffers_alive_together_never_overlap(buffers: list[Lifetime]) -> None:
    made = plan(buffers)
    assert overlaps(buffers, made) == []
    assert all(o % ALIGNMENT == 0 for o in made.offsets)
    assert all(o + b.nbytes <= made.size for o, b in zip(made.offsets, buffers, strict=True))


@given(lifetimes)
def test_the_peak_is_the_largest_sum_alive_at_a_step(buffers: list[Lifetime]) -> None:
    by_step = [sum(rounded(b.nbytes) for b in buffers if b.start <= t <= b.end) for t in range(42)]
    made = plan(buffers)
    assert made.peak == max(by_step)
    assert made.size >= made.peak


def test_a_chain_of_any_length_needs_two_buffers() -> None:
    made = plan([Lifetime(100, i, i + 1) for i in range(10_000)])
    assert made.size == made.peak == 2 * 128


def test_the_pattern_of_a_training_step_fits_its_peak() -> None:
    """Activations live until their gradient is taken, in reverse order: a stack."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 100, 30) * 64
    forward = [Lifetime(int(n), i, 60 - i) for i, n in enumerate(sizes)]
    backward = [Lifetime(int(n), 60 - i, 61 - i) for i, n in enumerate(sizes)]
    made = plan(forward + backward)
    assert made.size <= 1.1 * made.peak


def test_the_check_of_overlaps_finds_a_planted_fault() -> None:
    buffers = [Lifetime(128, 0, 2), Lifetime(128, 1, 3)]
    assert overlaps(buffers, Plan((0, 64), 192, 256)) == [(0, 1)]
