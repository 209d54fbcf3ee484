"""The checks that are relations, as a table: what must not matter, and what to do if it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...calls import Call
from ..session import Issue
from . import cotangents, in_c, programs, variants
from .comparison import Relation, any_order, broken, same_bits, same_numbers

_TWICE = "let nothing depend on whether two inputs are one array: no `x is y`, no shares_memory"
_OWN = "let kernels take attributes by keyword, and keep nothing from call to call"

RELATIONS: dict[str, tuple[Relation, ...]] = {
    "repeat": (
        Relation("again", variants.again, same_bits,
            "draw randomness from an input (a key), keep no state between launches, and leave no "
            "element unwritten"),
    ),
    "layouts": (
        Relation("strides", variants.in_other_layouts, any_order,
            "let the kernel follow strides, or begin with np.ascontiguousarray"),
    ),
    "integers": (
        Relation("wider", variants.in_a_wider_dtype, same_numbers,
            "compute in a wider dtype, and convert the result; should the width of the dtype be "
            "meant, as in a count of bits, give an OpInfo with a reference"),
    ),
    "infer_value": (
        Relation("known", variants.known_beforehand, same_numbers,
            "let infer_value give what the kernel gives, or None"),
    ),
    "batching": (
        Relation("rows", variants.row_by_row, same_numbers,
            "let no row depend on another, or take batch_axes out of the OpInfo"),
    ),
    "graph": (
        Relation("called", programs.called, same_numbers,
            "let infer_value and the kernels agree; keep no state outside the attributes"),
        Relation("compiled", programs.compiled, same_numbers,
            "let the kernel and the bprop depend on inputs and attributes only, not on when they "
            "run or are traced"),
        Relation("traced", programs.traced, same_numbers,
            "let the bprop not branch on values: use ops.select or ops.where; where only a pass "
            "changes it, correct the pass"),
    ),
    "threads": (
        Relation("kernel", variants.beside_another_thread, same_numbers,
            "keep no buffer outside of the call: allocate it, declare a workspace, or use "
            "threading.local()"),
    ),
    "one array twice": (
        Relation("kernel", programs.one_array_in_kernels, same_numbers, _TWICE),
        Relation("call", programs.one_tensor_in_calls, same_numbers, _TWICE),
        Relation("gradient", programs.one_tensor_in_gradients, same_numbers, _TWICE),
    ),
    "memory": (
        Relation("inplace", variants.in_place, same_bits,
            "read every element before it is overwritten, or do not declare inplace"),
    ),
    "in C": (
        Relation("numbers", in_c.beside_numpy, in_c.as_numpy,
            "let the expression and the kernel in NumPy compute the same"),
        Relation("memory", in_c.in_other_memory, same_bits,
            "let the kernel follow strides, or register it without strided=True"),
        Relation("threads", in_c.on_one_thread, same_bits,
            "let the parts of a kernel and the order of its sums depend on shapes alone"),
    ),
    "attributes": (Relation("kernel", programs.after_another, same_numbers, _OWN),),
    "gradient cotangents": (
        Relation("strided", cotangents.in_other_layouts, any_order,
            "let every kernel in the bprop follow strides"),
        Relation("not linear", cotangents.scaled, any_order,
            "let every term of the bprop have one factor of dout; clip gradients outside of it"),
        Relation("zero", cotangents.zero, same_numbers,
            "let every term of the bprop have a factor of dout"),
    ),
}  # fmt: skip


def related(name: str) -> Callable[[Call], Iterator[Issue]]:
    """The check of one row of the table."""

    def check(call: Call) -> Iterator[Issue]:
        for relation in RELATIONS[name]:
            yield from broken(call, relation)

    return check
