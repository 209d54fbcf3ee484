"""The families stand under the same names on all floors, and each primitive is in its own."""

from pathlib import Path

import pytest

import miniml
from miniml.core import FAMILIES
from miniml.core.primitive import primitives
from miniml.grad import bprop_getters

ROOT = Path(__file__).parents[2]
FAMILY_OF_PART = {part: family for family, parts in FAMILIES.items() for part in parts}
# What stands beside the families on a floor, and the families that have nothing there.
FLOORS = {
    "miniml/ops": (
        {"checks", "logic", "rules"},
        set(),
    ),
    "miniml/grad/rules": (set(), {"elementwise"}),
    "miniml/backends/cpu": ({"formats"}, set()),
    "miniml/backends/cuda/kernels": (set(), {"elementwise"}),
    "miniml/onnx/mapping": ({"quantized"}, set()),
    "tests/opinfo": ({"draws"}, set()),
}  # fmt: skip


@pytest.mark.parametrize("floor", FLOORS)
def test_every_family_has_a_module_where_it_has_something_to_say(floor):
    others, absent = FLOORS[floor]
    modules = {p.stem for p in (ROOT / floor).glob("*.py")} - {"__init__"}
    assert {*FAMILIES} - modules == absent
    assert modules - {*FAMILIES, *FAMILY_OF_PART} == others


def test_the_families_are_in_order():
    assert list(FAMILIES) == sorted(FAMILIES)
    assert not FAMILIES.keys() & FAMILY_OF_PART


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
        place = "ops" if family in ("elementwise", "logic") else "grad.rules"  # its rows are whole
        names = {f"miniml.{place}.{name}" for name in (family, FAMILY_OF_PART.get(family, family))}
        assert getter is None or getter.__module__ in names, primitive


def test_every_composed_function_runs_where_its_tensors_are():
    """In the folder that has no primitives all functions are decorated, but elementwise ones, many
    of which are of one tensor; of those and of the families the count says that none was lost, and
    the tests on two devices what each does."""
    public = [getattr(miniml.ops, name) for name in dir(miniml.ops)]
    functions = [f for f in public if getattr(f, "__module__", "").startswith("miniml.ops.")]
    modules = {f"miniml.ops.composed.{p.stem}" for p in (ROOT / "miniml/ops/composed").glob("*.py")}
    modules -= {"miniml.ops.composed.elementwise"}
    composed = [f for f in functions if f.__module__ in modules]
    assert len(composed) > 20
    bare = [f.__name__ for f in composed if not hasattr(f, "__wrapped__")]
    assert not bare, "decorate them with composition"
    assert sum(hasattr(f, "__wrapped__") for f in functions) >= 63


def test_a_family_has_primitives_and_the_composed_functions_none():
    for primitive in primitives.values():
        assert not primitive.__module__.startswith("miniml.ops.composed."), primitive
