"""The cut that decides which nodes take part in a memory format: against all choices there are."""

import itertools

import numpy as np
import pytest

from miniml.runtime.formats import Value, taking_part


def bytes_converted(values, chosen):
    """What is converted where those nodes take part."""

    def part(node):
        return node in chosen or node is True

    total = 0
    for cost, source, readers in values:
        total += cost * (not part(source) and any(map(part, readers)))
        total += cost * (part(source) and not all(map(part, readers)))
    return total


def least(values, nodes):
    """The least that is converted, and the most nodes that take part in that."""
    choices = [{*c} for k in range(len(nodes) + 1) for c in itertools.combinations(nodes, k)]
    return min((bytes_converted(values, c), -len(c)) for c in choices)


@pytest.mark.parametrize("seed", range(40))
def test_it_finds_the_least_bytes_of_random_graphs(seed):
    """Values go to later nodes, some are read by several, ends are given."""
    rng = np.random.default_rng(seed)
    names = "abcdefgh"[: int(rng.integers(1, 9))]
    part = {n: bool(rng.integers(2)) if rng.random() < 0.4 else n for n in names}
    values = []
    for i, name in enumerate(names):
        later = [part[n] for n in names[i + 1 :] if rng.random() < 0.5]
        readers = (*later, False) if rng.random() < 0.4 else tuple(later)
        values.append(Value(int(rng.integers(0, 9)), part[name], readers))
    nodes = [n for n in names if part[n] == n]
    chosen = taking_part(values)
    cost, most = least(values, nodes)
    assert bytes_converted(values, chosen) == cost
    connected = {n for v in values if v.cost for n in (v.source, *v.readers)}.intersection(nodes)
    assert len(chosen.intersection(connected)) <= -most


def test_a_value_is_converted_once_however_many_read_it():
    """For each of its readers it would be more than their results are."""
    values = [Value(10, False, ("a", "b", "c")), *(Value(4, n, (True,)) for n in "abc")]
    assert taking_part(values) == {*"abc"}


def test_of_equal_choices_the_format_goes_on():
    assert taking_part([Value(3, True, ("a",)), Value(3, "a", (False,))]) == {"a"}


def test_nothing_takes_part_where_nobody_asks():
    assert taking_part([Value(3, False, ("a",)), Value(3, "a", (False,))]) == set()
