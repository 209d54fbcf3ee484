"""The table of reductions: their identity, element, combination and final step in C."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A reduction in C. x is an element, i its index among the n elements that are reduced; a and b
    are accumulators: `value`, and `other` where a reduction keeps two.

    identity, element, combine: value and other of an accumulator. finish: the result from a.
    value, other: their types; "C" is that in which an element is computed, "S" that of sums.
    LOWEST and HIGHEST are the ends of the elements' dtype.
    """

    identity: tuple[str, ...]
    element: tuple[str, ...]
    combine: tuple[str, ...]
    finish: str
    value: str = "C"
    other: str = "int"


_ARG = "0x7fffffffffffffffLL"
_SUM = Row(("S(0)",), ("S(x)",), ("a.value + b.value",), "a.value", "S")
_MAX = Row(("LOWEST",), ("x",), ("nan_max(a.value, b.value)",), "a.value")
_MIN = Row(("HIGHEST",), ("x",), ("nan_min(a.value, b.value)",), "a.value")
_BETTER = (
    "(b.value {0} a.value || (is_nan(b.value) && !is_nan(a.value)) || (!(a.value {0} b.value) && "
    "(is_nan(a.value) == is_nan(b.value)) && b.other < a.other))"
)


def _arg(row: Row, relation: str) -> Row:
    wins = _BETTER.format(relation)
    combine = (f"{wins} ? b.value : a.value", f"{wins} ? b.other : a.other")
    return Row((*row.identity, _ARG), ("x", "i"), combine, "a.other", "C", "long long")


ROWS: dict[str, Row] = {
    "Sum": _SUM,
    "SumTo": _SUM,
    "Mean": _SUM._replace(finish="a.value / S(n)"),
    "Prod": Row(("S(1)",), ("S(x)",), ("a.value * b.value",), "a.value", "S"),
    "Max": _MAX,
    "Min": _MIN,
    "Any": Row(("0",), ("x != C(0)",), ("a.value | b.value",), "a.value != 0", "int"),
    "All": Row(("1",), ("x != C(0)",), ("a.value & b.value",), "a.value != 0", "int"),
    "ArgMax": _arg(_MAX, ">"),
    "ArgMin": _arg(_MIN, "<"),
    # value: the largest x; other: the sum of exp(x - value)
    "LogSumExp": Row(
        ("-INFINITY", "C(0)"),
        ("x", "C(1)"),
        ("nan_max(a.value, b.value)", "scaled_sum(a.value, a.other, b.value, b.other)"),
        "is_inf(a.value) ? a.value : a.value + log(a.other)",
        "C",
        "C",
    ),
}
