"""The tool that asks for older processors: what it turns off, and what it says it cannot."""

import os

import pytest

from tools import other_cpus
from tools.other_cpus import PROCESSORS, TESTS, Processor, imitate, probe


@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda p: p.name)
def test_what_is_asked_for_takes_effect_or_is_left_out_in_a_sentence(processor):
    added, left_out = imitate(processor)
    assert len(added) + len(left_out) == 2
    used, cores = probe({**os.environ, **added})
    assert not any(map(processor.lacks, used))
    if "OPENBLAS_CORETYPE" in added:
        assert cores == [processor.core.lower()]


def test_what_the_machine_has_not_is_left_out(monkeypatch, capfd):
    unknown = Processor("of another make", lambda feature: False, "NoSuchCore")
    monkeypatch.setattr(other_cpus, "PROCESSORS", (unknown,))
    assert other_cpus.main(["-c", "raise SystemExit(1)"]) == 0
    shown = capfd.readouterr().out
    assert "of another make, left out: NumPy uses no more than that here" in shown
    assert "of another make, left out: OpenBLAS cannot compute as for NoSuchCore here" in shown


def test_a_run_that_fails_is_counted(monkeypatch):
    asked = ({"OPENBLAS_CORETYPE": "Haswell"}, [])
    monkeypatch.setattr(other_cpus, "imitate", lambda processor: asked)
    assert other_cpus.main(["-c", "raise SystemExit(1)"]) == len(PROCESSORS)
    assert other_cpus.main(["-c", "import os; assert 'OPENBLAS_CORETYPE' in os.environ"]) == 0


def test_the_folders_are_there():
    assert all(map(os.path.exists, TESTS))
