"""What Hypothesis chooses for one call, and how it is asked for many."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Choices:
    """The choices of one example, each made of coin tosses.

    For numbers, Hypothesis takes now and then a constant from the source of the modules that
    happen to be imported, and then equal seeds would give other calls in another program. For
    booleans it does not.
    """

    def __init__(self, toss: Callable[[], bool]):
        self._toss = toss

    def below(self, n: int) -> int:
        """A whole number from 0 to n - 1, all of them nearly equally often."""
        number = 0
        for _ in range((n - 1).bit_length() + (n & (n - 1) > 0)):
            number = 2 * number + self._toss()
        return number % n

    def of(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.below(len(values))]


def explore(body: Callable[[Choices], None], examples: int, seed: int | None) -> None:
    """Run `body` with choices of Hypothesis's. Equal seeds give equal choices; None is a seed."""
    import hypothesis
    from hypothesis import strategies as st

    @st.composite
    def example(draw: Any) -> None:
        body(Choices(lambda: draw(coin)))

    coin = st.booleans()
    settings = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        backend="hypothesis",
        phases=(hypothesis.Phase.generate,),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run = hypothesis.seed(seed or 0)(settings(hypothesis.given(example())(lambda _: None)))
    with warnings.catch_warnings():  # what a primitive does to `random` is told by a check
        warnings.simplefilter("ignore", hypothesis.errors.HypothesisDeprecationWarning)
        run()
