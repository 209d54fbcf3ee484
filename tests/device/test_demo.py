"""The demo on a device: a few steps, which are those on the CPU."""

import re

import pytest

from miniml import cli
from miniml.cli import demo
from miniml.errors import MinimlError


@pytest.fixture
def few_digits(monkeypatch, tmp_path):
    """Four batches to learn from, eight digits to test with, and a folder of its own."""
    digits = demo.load_digits(0)
    few = digits._replace(
        images=digits.images[: 4 * demo.BATCH],
        labels=digits.labels[: 4 * demo.BATCH],
        test_images=digits.test_images[:8],
        test_labels=digits.test_labels[:8],
    )
    monkeypatch.setattr(demo, "load_digits", lambda seed: few)
    monkeypatch.chdir(tmp_path)
    return few


def test_the_demo_trains_and_agrees_with_the_cpu(device, few_digits, capsys):
    assert cli.main(["demo", "--device", device, "--epochs", "1"]) == 0
    message = capsys.readouterr().out
    assert f"1 epoch on {device}" in message
    apart = re.search(
        r"the losses of the first 4 steps are those on the CPU to (\S+) of them", message
    )
    assert float(apart[1]) < 1e-5
    assert "its predictions are equal" in message


def test_steps_that_differ_from_the_cpu_are_reported(few_digits):
    config = demo.Demo(device="cuda-sim", epochs=1)
    with pytest.raises(MinimlError, match=r"on cuda-sim, and \[2\..*please report it"):
        demo._compare(config, few_digits, [2.0, 2.0])


def test_the_simulator_is_given_fewer_epochs():
    assert demo.Demo(device="cuda-sim").rounds == 1
    assert demo.Demo(device="GPU").rounds == demo.Demo().rounds == 20
    assert demo.Demo(device="cuda-sim", epochs=3).rounds == 3
