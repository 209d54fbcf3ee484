"""Collectives: primitives that have a `group` and its `size`, as calls of several ranks.

The ranks are threads of a loop-back group, each with inputs of its own. On them a collective is
checked for its gradient, which is that of the sum of all ranks' outputs, and for its results under
`jit` and `vmap`, which are those of a call by itself. On one rank, where the other checks run it, a
gradient that does not pass through the group looks right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends.group import Group
from ...core.dtype import float64, is_float
from ...core.errors import MinimlError
from ...core.primitive import Primitive
from ...core.tensor import Tensor
from ...distributed.loopback import loopback
from ...grad import vmap
from ...ops import stack
from ...runtime.jit import jit
from ..calls import Array, Arrays, Call, as_tuple
from ..gradchecks.run import gradcheck
from ..report import GradReport
from .draws import signatures
from .session import Issue

_SIZES = 2, 3
_WAITED = 20.0  # seconds; a rank that makes other calls than the rest is found at once
_NAME = "world"  # of the loop-back group


def is_collective(primitive: Primitive) -> bool:
    """True for a primitive that says for which group of ranks it is, and how many these are."""
    named = {"group": str, "size": int}
    attributes = primitive.attributes
    return all(isinstance(attributes.get(name), kind) for name, kind in named.items())


def of_several(primitive: Primitive) -> bool:
    """True for a collective of more than one rank, which only ranks can call."""
    return is_collective(primitive) and primitive.attributes["size"] > 1


def calls_of_ranks(primitive: Primitive, seed: int | None) -> list[Call]:
    """Calls of a collective of several ranks: arrays that its rules take."""
    rng = np.random.default_rng(0 if seed is None else seed)
    n = primitive.attributes["size"]
    calls = []
    for dtypes in signatures(primitive):
        for shape in ((2 * n, 3), (n,), ()):
            arrays = tuple([np.asarray(rng.normal(size=shape) * 4).astype(d) for d in dtypes])
            call = Call(primitive, arrays)
            if _taken(call):
                calls.append(call)
    return calls


def across_ranks(call: Call) -> Iterator[Issue]:
    """The issues of one call on a group of each size, on inputs made of its own."""
    primitive = call.primitive
    if primitive.effect != "ordered":
        yield Issue(
            "effect",
            f"{primitive!r} is a collective with effect {primitive.effect!r}, so that programs may "
            "drop or reorder its calls on some ranks",
            'declare effect = "ordered"',
        )
        return
    size = primitive.attributes["size"]
    for n in (size,) if size > 1 else _SIZES:
        several = _for(call, n)
        found = [] if several is None else list(_on(several, n))
        yield from found
        if found:
            return


def _for(call: Call, n: int) -> Call | None:
    """The call for a group of n, repeated along its first axis where that makes it valid; None
    where it never is."""
    attributes = {**call.primitive.attributes, "group": _NAME, "size": n}
    try:
        primitive = call.primitive.with_attributes(attributes)
    except MinimlError:  # other attributes speak of ranks that this group lacks
        return None
    arrays = tuple([np.concatenate([a] * n) if a.ndim else a for a in call.arrays])
    tried = (replace(call, primitive=primitive, arrays=a) for a in (call.arrays, arrays))
    return next((each for each in tried if _taken(each)), None)


def _taken(call: Call) -> bool:
    try:
        return bool(call.inferred)
    except MinimlError:
        return False


def _on(call: Call, n: int) -> Iterator[Issue]:
    found = loopback(lambda group: list(_of_rank(call, group)), n, _WAITED)
    told = set()
    for rank, issues in enumerate(found):
        for issue in issues:
            if issue.kind not in told:
                told.add(issue.kind)
                where = f"{call} on rank {rank} of {n}"
                yield issue._replace(message=f"{where}: {issue.message}")


def _of_rank(call: Call, group: Group) -> Iterator[Issue]:
    """The issues that one rank finds."""
    op = call.primitive
    arrays = _own(call.arrays, group.rank)
    tensors = [Tensor(a) for a in arrays]

    def called(*xs: Any) -> Any:
        return op(*call.args(xs))

    plain = as_tuple(called(*tensors))
    if not _same(plain, as_tuple(jit(called)(*tensors))):
        yield Issue("jit", "its result differs under jit", "keep nothing from call to call")
    mapped = as_tuple(vmap(called)(*(stack([x, x]) for x in tensors)))
    if not _same([stack([x, x]) for x in plain], mapped):
        yield Issue(
            "vmap",
            "its result under vmap is not that of each example",
            'correct its batch rule, or leave out batch = "leading"',
        )
    if any(is_float(a.dtype) and a.size for a in arrays) and any(is_float(o.dtype) for o in plain):
        yield from _gradient(op, call.on(_wide(arrays)), group)


def _gradient(op: Primitive, call: Call, group: Group) -> Iterator[Issue]:
    report: GradReport = gradcheck(op, *call.args(), group=group, raise_error=False)
    for finding in report.findings:
        if finding.verdict == "wrong":
            yield Issue(
                "gradient",
                f"its gradient across ranks is wrong: {finding.argument}: {finding.diagnosis}",
                "return from its bprop the gradient of the sum of all ranks' outputs: the "
                "transpose of a sum over ranks is a sum over ranks",
            )
            return


def _own(arrays: Sequence[Array], rank: int) -> Arrays:
    """The inputs of a rank: like those of the call, and others on each rank."""
    rng = np.random.default_rng(rank)
    factors = (np.asarray(rng.uniform(0.5, 1.5, a.shape)).astype(a.dtype) for a in arrays)
    return tuple(
        [
            np.asarray(a * f) if is_float(a.dtype) else a
            for a, f in zip(arrays, factors, strict=True)
        ]
    )


def _wide(arrays: Arrays) -> Arrays:
    return tuple([a.astype(float64) if is_float(a.dtype) else a for a in arrays])


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """True for equal arrays, to the bit but for NaN."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(some, others, strict=True)]
    return all(a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
               for a, b in pairs)  # fmt: skip
