"""The simulation of data parallel steps, against times worked out by hand, and its command."""

import xml.etree.ElementTree as ET

import pytest

from miniml.cli import main
from miniml.cli.scale import (
    NETWORKS,
    Network,
    Workload,
    all_reduce_seconds,
    pays_until,
    remedies,
    simulate,
    sweep,
)
from miniml.errors import MinimlError

NET = Network(alpha=1.0, beta=0.5, gamma=0.0)
WORK = Workload(batch=48, row=1.0, fixed=2.0, buckets=(4, 8))


@pytest.mark.parametrize(
    ("algorithm", "ranks", "seconds"),
    [
        ("ring", 4, 2 * 3 * (1 + 3 * 0.5)),  # six messages of a quarter of 12 bytes
        ("tree", 4, 2 * 2 * (1 + 12 * 0.5)),  # up and down two storeys, 12 bytes each time
        ("tree", 5, 2 * 3 * (1 + 12 * 0.5)),
        ("direct", 2, 1 + 1 + 12 * 0.5),  # the ranks agree, and exchange all
        ("direct", 4, 2 + 2 * 3 * (1 + 3 * 0.5)),
        ("ring", 1, 0.0),
    ],
)
def test_an_all_reduce_takes_the_seconds_of_its_messages(algorithm, ranks, seconds):
    assert all_reduce_seconds(12, NET, ranks, algorithm) == pytest.approx(seconds)


def test_a_step_without_overlap_computes_and_then_reduces_all():
    step = simulate(WORK, NET, 4, "ring")
    assert step.computing == pytest.approx(12 + 2)
    assert step.seconds == pytest.approx(12 + 2 + 6 * (1 + 3 * 0.5))


def test_overlapping_buckets_wait_for_the_backward_pass_and_for_each_other():
    """12 seconds, of which the backward pass has the last 8: buckets at 8 and at 12. The first
    takes 6 (1 + 1 * 0.5) = 9 until 17, the second 6 (1 + 2 * 0.5) = 12 until 29; and 2 at the
    end."""
    step = simulate(WORK, NET, 4, "ring", overlap=True)
    assert step.seconds == pytest.approx(29 + 2)
    quick = simulate(WORK, Network(0.01, 0.0, 0.0), 4, "ring", overlap=True)
    assert quick.seconds == pytest.approx(12 + 2 + 6 * 0.01)  # all but the last bucket is hidden


def test_all_wait_for_the_slowest():
    spread = Workload(batch=4096, row=1e-3, fixed=0.0, buckets=(4,), spread=0.1)
    free = Network(0.0, 0.0, 0.0)
    few, many = (simulate(spread, free, n, steps=50).seconds * n for n in (2, 1024))
    assert 1.02 < few / 4.096 < 1.10  # of two draws the larger is 0.56 deviations above the mean
    assert 1.28 < many / 4.096 < 1.38  # of 1,024 3.2


def test_where_more_ranks_stop_paying():
    steps = sweep(WORK, NET, "ring")
    assert [s.ranks for s in steps] == [1, 2, 4, 8, 16, 32]  # no rank without a row
    best = pays_until(steps)
    after = steps[steps.index(best) + 1]
    assert after.seconds > 0.9 * best.seconds
    free = sweep(WORK, Network(0.0, 0.0, 0.0), "ring", ranks=(1, 2))
    assert pays_until(free).ranks == 2


def test_remedies_name_what_holds_the_step_up():
    slow_to_start = remedies(WORK, Network(5.0, 0.0, 0.0), "ring", 16)
    by_name = dict(slow_to_start)
    assert by_name["a tenth of the latency"] > 5
    assert by_name["ten times the bandwidth"] == pytest.approx(1.0)
    narrow = dict(remedies(WORK, Network(0.0, 5.0, 0.0), "ring", 16))
    assert narrow["ten times the bandwidth"] > 3 > narrow["a tenth of the latency"]
    assert [gain for _, gain in slow_to_start] == sorted(by_name.values(), reverse=True)


def test_up_to_4096_ranks_of_every_network():
    large = Workload(8192, 1e-4, 1e-4, (10**6,) * 4)
    for network in NETWORKS.values():
        steps = sweep(large, network, "tree", overlap=True)
        assert len(steps) == 13
        assert steps[-1].ranks == 4096


def test_what_is_refused():
    with pytest.raises(MinimlError, match="49 ranks for a batch of 48 rows"):
        simulate(WORK, NET, 49)
    with pytest.raises(MinimlError, match="seconds >= 0"):
        Network(-1.0, 0.0)


def test_the_command_prints_a_line_for_each_number_of_ranks_and_draws(tmp_path, capsys):
    target = tmp_path / "scale.svg"
    assert main(["scale", "--network", "1e-5,1e9", "--picture", str(target)]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert [int(line.split()[0]) for line in lines[1:14]] == [2**i for i in range(13)]
    assert "Data parallel stops paying at" in out
    assert "would help" in out
    root = ET.fromstring(target.read_text("utf-8"))
    shapes = [child.tag.rpartition("}")[2] for child in root]
    assert shapes.count("polyline") == 3
    assert shapes.count("circle") == 1
    assert "stops paying" in " ".join(t for t in root.itertext())


@pytest.mark.parametrize(
    ("given", "says"),
    [(["--network", "pigeons"], "give one of shared-memory"), (["--batch", "0"], "above 0")],
)
def test_the_command_refuses(given, says, capsys):
    assert main(["scale", *given]) == 2
    assert says in capsys.readouterr().err
