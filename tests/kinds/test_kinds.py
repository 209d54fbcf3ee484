"""Every fault of every kind is found by its checker, and no right one is called wrong."""

import re
import secrets

import pytest

from ..conftest import HAS_CXX
from . import gradients_right, gradients_wrong, kernels, primitives_right, primitives_wrong
from .kind import Kind

FAULTS = gradients_wrong.FAULTS + primitives_wrong.FAULTS + kernels.FAULTS
RIGHTS = gradients_right.RIGHTS + primitives_right.RIGHTS + kernels.RIGHTS
SEEDS = 10


def kinds(table: list[Kind], *marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """A test for each kind, which -k chooses by its checker and name."""
    return pytest.mark.parametrize("kind", [pytest.param(k, id=str(k), marks=marks) for k in table])


def first_rows(table: list[Kind]) -> pytest.MarkDecorator:
    """Those that opcheck finds by differences, or by whatever it does, take seconds: for the deep
    run."""

    def marks(kind: Kind) -> list[pytest.MarkDecorator]:
        slow = kind.checker == "opcheck" and re.fullmatch(kind.says or ".*", "gradient")
        return [pytest.mark.deep] * bool(slow)

    return pytest.mark.parametrize(
        "kind", [pytest.param(k, id=str(k), marks=marks(k)) for k in table]
    )


def needs_its_compiler(kind: Kind) -> None:
    if kind.checker == "simulator" and not HAS_CXX:
        pytest.skip("no C++ compiler on this machine")


@first_rows(FAULTS)
def test_the_first_fault_of_a_kind_is_found(kind):
    needs_its_compiler(kind)
    judgement = kind.judge(kind.rows[0], seed=0, only=True)
    assert judgement.found, judgement.text
    assert judgement.named, judgement.text


@first_rows(RIGHTS)
def test_the_first_right_one_of_a_kind_passes(kind):
    needs_its_compiler(kind)
    judgement = kind.judge(kind.rows[0], seed=0, budget=0.3)
    assert not judgement.found, judgement.text


def rate(kind: Kind, wanted: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """All rows of a kind at ten fresh seeds. Prints how many were judged as wanted, and named."""
    needs_its_compiler(kind)
    first = secrets.randbits(31)
    judged = [(v, s, kind.judge(v, s)) for v in kind.rows for s in range(first, first + SEEDS)]
    bad = [f"{kind}{v}, seed {s}:\n{j.text}" for v, s, j in judged if j.found != wanted]
    named = f", {sum(j.named for *_, j in judged)} named" if wanted else ""
    with capsys.disabled():
        verb = "found" if wanted else "passed"
        print(f"\n{kind}: {len(judged) - len(bad)} of {len(judged)} {verb}{named}")
    assert not bad, "\n\n".join(bad)


@pytest.mark.rates
@pytest.mark.timeout(3600)
@kinds(FAULTS)
def test_faults_of_a_kind_at_fresh_seeds(kind, capsys):
    rate(kind, True, capsys)


@pytest.mark.rates
@pytest.mark.timeout(3600)
@kinds(RIGHTS)
def test_right_ones_of_a_kind_at_fresh_seeds(kind, capsys):
    rate(kind, False, capsys)


def test_the_corpus_is_as_large_as_it_says():
    for table in (FAULTS, RIGHTS):
        assert len({str(kind) for kind in table}) == len(table) >= 40
        assert sum(len(set(kind.rows)) for kind in table) >= 150
