"""The families stand under the same names on all floors, and each primitive is in its own."""

from pathlib import Path

import pytest

import miniml
from miniml.bprop import bprop_getters
from miniml.families import FAMILIES
from miniml.primitive import primitives

ROOT = Path(__file__).parents[2]
SCALAR = {"activation", "arithmetic", "compare", "create", "exponential", "trigonometric"}
# What stands beside the families on a floor, and the families that have nothing there.
FLOORS = {
    "miniml/ops": ({"custom", "function", "getitem", "rules", "validator"}, set()),
    "miniml/grad/rules": ({"call", "formulas"}, {"create", "random"}),
    "miniml/backends/cpu": (None, {"scan"}),
    "miniml/backends/expressions": (
        {"functions", "rows", "table", "types"}, {*FAMILIES} - SCALAR - {"reduce"}
    ),
    "miniml/backends/cuda/kernels": (None, SCALAR - {"create"} | {"control", "scan"}),
    "miniml/onnx/mapping": (set(), set()),
    "tests/opinfo": ({"draws"}, set()),
}  # fmt: skip


@pytest.mark.parametrize("floor", FLOORS)
def test_every_family_has_a_module_where_it_has_something_to_say(floor):
    others, absent = FLOORS[floor]
    modules = {p.stem for p in (ROOT / floor).glob("*.py")} - {"__init__"}
    assert {*FAMILIES} - modules == absent
    if others is not None:
        assert modules - {*FAMILIES} <= others


def test_the_families_are_in_order():
    assert list(FAMILIES) == sorted(set(FAMILIES))


def library():
    """The primitives that `ops` has, by family."""
    for primitive in primitives.values():
        package, _, family = primitive.__module__.rpartition(".")
        own = getattr(miniml.ops, primitive.__name__, None) is primitive  # docstrings define others
        if package == "miniml.ops" and own:
            yield primitive, family


def test_the_gradient_of_a_primitive_stands_in_its_family():
    for primitive, family in library():
        getter = bprop_getters.find(primitive) if primitive.differentiable else None
        assert getter is None or getter.__module__ == f"miniml.grad.rules.{family}", primitive


def test_every_composed_function_runs_where_its_tensors_are():
    composed = [
        value
        for name in dir(miniml.ops)
        if getattr(value := getattr(miniml.ops, name), "__module__", "").startswith(
            "miniml.ops.composed."
        )
    ]
    assert len(composed) > 40
    bare = [f.__name__ for f in composed if not hasattr(f, "__wrapped__")]
    assert not bare, "decorate them with on_one_device"
