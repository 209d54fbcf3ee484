"""Checked labels: what a cross entropy refuses, apart from its arithmetic, which cannot fail."""

from __future__ import annotations

import numpy as np

from ...backends.cpu.norm import check_labels
from ...backends.kernel import Array
from ...backends.registry import kernel
from ...backends.typecodes import INT, same
from ...primitive import Primitive


class CheckedLabels(Primitive):
    """The labels, of which all are in [0, classes); else OutOfRangeError."""

    differentiable = False
    classes: int
    like = "labels"


@kernel("CheckedLabels", "cpu", *same(1, INT))
def checked_labels(labels: Array, *, classes: int, out: Array) -> None:
    check_labels(labels, classes)
    np.copyto(out, labels)
