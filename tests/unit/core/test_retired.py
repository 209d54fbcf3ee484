"""Spellings that were replaced go on for two versions, say what to write, and then have to go."""

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import miniml as ml
from miniml import data, nn, optim, train
from miniml.core import hints
from miniml.errors import ArityError, MinimlError, RetiredWarning

ROOT = Path(__file__).resolve().parents[3]
X = np.zeros((6, 2), np.float32)


def model():
    net = nn.Dense(2, 3)
    return train.Model(net, nn.MSELoss(), optim.SGD(net.trainable_params(), lr=0.1))


def test_an_old_keyword_works_and_warns_on_the_callers_line():
    fitted = model()
    with pytest.warns(RetiredWarning, match=r"predict\(size=\) is predict\(batch_size=\)") as seen:
        got = fitted.predict(X, size=4)
    assert np.array_equal(got, fitted.predict(X, batch_size=4))
    assert (seen[0].filename, seen[0].lineno) == (__file__, line_of("size=4)"))
    assert issubclass(RetiredWarning, FutureWarning)


def line_of(text):
    return next(
        i for i, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line
    )


def test_arguments_that_went_by_position_do_so_for_now():
    loader = data.DataLoader(X, np.ones((6, 3), np.float32), size=3)
    with pytest.warns(RetiredWarning, match=r"fit\(data, 3\) is fit\(data, epochs=3\)"):
        rows = model().fit(loader, 2, loader, show=False)
    assert len(rows) == 2
    assert "val_loss" in rows[0]


def test_new_spellings_do_not_warn():
    fitted = model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(X, 4)
        fitted.fit(X, np.ones((6, 3), np.float32), epochs=1, show=False)
    assert list(inspect.signature(train.Model.predict).parameters) == ["self", "x", "batch_size"]


def test_both_spellings_at_once_are_refused():
    with pytest.raises(ArityError, match="size= and batch_size="):
        model().predict(X, size=4, batch_size=4)
    with pytest.raises(MinimlError, match="DataLoader got a int"):
        model().fit(X, 3, epochs=1, show=False)


def minor(version):
    major, minor, *_ = version.split(".")
    return 100 * int(major) + int(minor)


def over(version):
    return [one.old for one in hints.RETIRED if minor(version) - minor(one.since) > 1]


def test_what_was_retired_two_versions_ago_is_gone():
    assert not over(ml.__version__)
    assert "predict(size=)" in over("0.4.0")
    assert not over("0.3.1")


def test_the_page_on_stability_lists_them():
    page = (ROOT / "docs" / "stability.md").read_text("utf-8")
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert sorted(row[:3] for row in rows) == sorted((r.old, r.new, r.since) for r in hints.RETIRED)
    assert all(minor(until) - minor(since) == 1 for *_, since, until in rows)
