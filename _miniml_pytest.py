"""The pytest plugin's door: it is loaded in every run, and miniml only when it is asked for."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("miniml", "checks of primitives")
    group.addoption(
        "--miniml-opcheck",
        metavar="MODULE",
        action="append",
        default=[],
        help="check every primitive that this module defines (name or path of the file; may be "
        "given several times), one test each; OpInfos found in the module are used",
    )
    group.addoption(
        "--miniml-opcheck-budget",
        metavar="SECONDS",
        type=float,
        default=None,
        help="seconds for one primitive (8 by default)",
    )


def pytest_configure(config: Any) -> None:
    if config.getoption("--miniml-opcheck"):
        from miniml.testing.pytest_plugin import Primitives

        config.pluginmanager.register(Primitives(config), "miniml-opcheck")


@pytest.fixture
def gradcheck() -> Any:
    """miniml.testing.gradcheck: `gradcheck(f, *inputs)` raises GradientError for a wrong
    gradient of a function of miniml's tensors, torch's or JAX's arrays."""
    from miniml.testing import gradcheck as check

    return check


@pytest.fixture
def opcheck() -> Any:
    """miniml.testing.opcheck: `opcheck(Op())`, or `opcheck(op, inputs=(x,))` for an operator of
    torch.library, raises OpCheckError where it finds a fault."""
    from miniml.testing import opcheck as check

    return check
