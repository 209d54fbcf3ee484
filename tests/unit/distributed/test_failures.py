"""Ranks that fail, end early, hang or do different things: all of them end, with a sentence."""

import sys
import time

import numpy as np
import pytest

import miniml as ml
from miniml import distributed
from miniml.distributed import loopback, ranks
from miniml.errors import DistributedError


def both(first, second):
    """Rank 0 calls the first function, rank 1 the second; the errors of both."""
    errors = {}

    def fn(group):
        try:
            return (second if group.rank else first)()
        except Exception as error:
            errors[group.rank] = error
            raise

    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one, the tests say
        loopback(fn, 2, timeout=0.2)
    return errors, raised.value


def reduce():
    return distributed.all_reduce(np.ones(3))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (lambda: distributed.all_reduce(np.ones(4)), r"rank 1: all_reduce sum of float64\[4\]"),
        (
            lambda: distributed.all_reduce(np.ones(3, np.float32)),
            r"rank 1: all_reduce sum of float32\[3\]",
        ),
        (lambda: distributed.all_reduce(np.ones(3), "max"), "rank 1: all_reduce max"),
        (lambda: distributed.all_gather(np.ones(3)), r"rank 1: all_gather of float64\[3\]"),
        (lambda: distributed.broadcast(np.ones(3), 1), "rank 1: broadcast from 1"),
    ],
)
def test_ranks_that_do_different_things(other, says):
    errors, _ = both(reduce, other)
    for rank in (0, 1):
        assert isinstance(errors[rank], DistributedError)
        with pytest.raises(DistributedError, match=rf"rank 0: all_reduce sum.*{says}"):
            raise errors[rank]


def test_a_rank_that_raises_ends_the_others():
    def fails():
        raise ValueError("bad luck")

    errors, raised = both(reduce, fails)
    assert raised is errors[1]  # the cause, not what follows from it
    assert "on rank 1 of 2" in raised.__notes__[-1]
    assert str(errors[0]).startswith("rank 1 raised ValueError: bad luck, while rank 0")


def test_a_rank_that_ends_early_ends_the_others():
    errors, _ = both(reduce, lambda: None)
    assert "rank 1 has ended, while rank 0 of 'world' is at all_reduce sum" in str(errors[0])


def test_a_rank_that_hangs_is_waited_for_so_long():
    errors, _ = both(reduce, lambda: time.sleep(0.5))
    assert "rank 0 of 'world' waited 0.2 s at all_reduce sum" in str(errors[0])
    assert "for rank 1" in str(errors[0])


def test_without_mpi4py_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(DistributedError, match=r"init needs mpi4py.*pip install 'miniml\[mpi\]'"):
        loopback(lambda group: ranks.launched("other", 1.0), 1)


def test_the_error_of_a_compiled_call_stands_on_its_line():
    errors, _ = both(ml.jit(lambda: distributed.all_reduce(np.ones(3))), lambda: None)
    assert "AllReduce was called at" in "\n".join(errors[0].__notes__)
