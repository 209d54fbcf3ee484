"""`pytest --miniml-opcheck MODULE`: one test for each primitive that a module defines."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from _pytest.runner import collect_one_node

from ..core.errors import ArityError
from ..core.primitive import Primitive
from .calls import OpInfo
from .opchecks import OpCheckError, opcheck


class Primitives:
    """Adds the tests to the paths given to pytest; without paths only these tests run."""

    def __init__(self, config: pytest.Config):
        self.modules: list[str] = config.getoption("--miniml-opcheck")
        if config.args_source is not pytest.Config.ArgsSource.ARGS:
            config.args = []

    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        for name in self.modules:
            parent: Any = Definitions.from_parent(session, name=name, nodeid=name)
            report = collect_one_node(parent)
            parent.ihook.pytest_collectreport(report=report)  # counts them, or shows the error
            items.extend(i for i in report.result or () if isinstance(i, pytest.Item))


class Definitions(pytest.Collector):
    """The primitives of one module."""

    def collect(self) -> list[PrimitiveTest]:
        module = load(self.name)
        found = [PrimitiveTest.of(self, *row) for row in primitives_of(module)]
        if not found:
            raise self.CollectError(f"--miniml-opcheck {self.name}: it defines no primitive")
        return found


class PrimitiveTest(pytest.Item):
    """opcheck of one primitive."""

    subject: type[Primitive] | Primitive
    info: OpInfo | None

    @classmethod
    def of(
        cls, parent: pytest.Collector, name: str, subject: Any, info: OpInfo | None
    ) -> PrimitiveTest:
        item: PrimitiveTest = cls.from_parent(parent, name=name)
        item.subject, item.info = subject, info
        return item

    def runtest(self) -> None:
        budget = self.config.getoption("--miniml-opcheck-budget")
        try:
            opcheck(self.subject, self.info, budget)
        except ArityError as error:
            pytest.skip(f"{error}; give an instance or an OpInfo in the module")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The report alone: opcheck's own traceback tells nothing more."""
        if isinstance(excinfo.value, OpCheckError):
            return str(excinfo.value.report)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int | None, str]:
        return self.parent.name if self.parent else "", None, f"opcheck {self.name}"


def load(name: str) -> ModuleType:
    """A module by its name or by the path of its file; CollectError if there is none."""
    path = Path(name)
    if path.suffix != ".py":
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # the module exists, but imports one that does not
            raise pytest.Collector.CollectError(
                f"--miniml-opcheck {name}: there is no module {error.name} where Python looks; "
                "install it, run `python -m pytest` in its folder, or give the path of its file"
            ) from None
    if not path.exists():
        raise pytest.Collector.CollectError(f"--miniml-opcheck {name}: there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def primitives_of(module: ModuleType) -> list[tuple[str, Any, OpInfo | None]]:
    """(name, primitive, OpInfo or None): each class the module defines, or its instances there."""
    rows = [v for v in vars(module).values() if isinstance(v, OpInfo)]
    for value in vars(module).values():
        if isinstance(value, (tuple, list)):
            rows += [v for v in value if isinstance(v, OpInfo)]
    infos = {row.primitive: row for row in rows}
    found: list[tuple[str, Any, OpInfo | None]] = []
    for name, value in vars(module).items():
        if isinstance(value, Primitive):
            found.append((name, value, infos.get(type(value))))
    made = {type(subject) for _, subject, _ in found}
    for name, value in vars(module).items():
        defined = isinstance(value, type) and issubclass(value, Primitive)
        if defined and value.__module__ == module.__name__ and value not in made:
            if "defined_at" in vars(value):  # not an abstract base
                found.append((name, value, infos.pop(value, None)))
    found += [(cls.__name__, cls, row) for cls, row in infos.items() if cls not in made]
    return found
