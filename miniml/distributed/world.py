"""The world, which is the group of all ranks, and the collectives as functions of tensors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

from .. import ops
from ..backends.group import Group, Self, join, joined
from ..core.errors import DistributedError
from ..core.options import choice, number
from ..core.tensor import Tensor
from . import mpi, nccl

_WORLD = "world"
_BACKENDS = ("auto", "nccl", "mpi", "self")
# What launchers of MPI set: Hydra (MPICH, Intel MPI) and srun with PMI, Open MPI, PMIx.
_LAUNCHED = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


def init(backend: Literal["auto", "nccl", "mpi", "self"] = "auto", timeout: float = 300.0) -> Group:
    """Join the group of all ranks, and return it. Called again, it returns the same group.

    backend: "mpi" for processes that `mpiexec -n 2 python -m mpi4py train.py` starts, by mpi4py;
    "nccl" for such processes that have a GPU each, where arrays on "cuda" go from GPU to GPU by the
    NCCL of cupy, and arrays of the CPU by MPI; "self" for a group of one, this process; "auto" is,
    where a launcher of MPI has started the process, "nccl" if every rank finds cupy, NCCL and a GPU
    of its own, and else "mpi"; without one it is "self". timeout: the seconds that a rank waits for
    the others in a collective before it raises DistributedError, which names those that have not
    come. DistributedError too where mpi4py, an MPI library or what NCCL needs is missing.
    """
    chosen = choice("init", "backend", backend, _BACKENDS)
    limit = number("init", "timeout", timeout, above=0)
    known = joined(_WORLD)
    if known is not None:
        return known
    if chosen == "self" or (chosen == "auto" and not _launched()):
        return join(Self(_WORLD))
    ranks = mpi.world(_WORLD, limit)
    return join(ranks if chosen == "mpi" else nccl.over(ranks, required=chosen == "nccl"))


def _launched() -> bool:
    """True in a process that a launcher of MPI has started, or that uses MPI already."""
    return "mpi4py.MPI" in sys.modules or any(name in os.environ for name in _LAUNCHED)


def world() -> Group:
    """The group of all ranks; `init()` is called if it has not been."""
    return joined(_WORLD) or init()


def rank() -> int:
    """The number of this rank in the world, from 0."""
    return world().rank


def size() -> int:
    """The number of ranks in the world."""
    return world().size


# --- Collectives ----------------------------------------------------------------------------------


def all_reduce(
    x: Any, op: Literal["sum", "mean", "max"] = "sum", group: Group | None = None
) -> Tensor:
    """The sum of x over all ranks, on every rank; or the mean, or the maximum.

    x has the same shape and dtype on all ranks. The terms are added in the order of the ranks, so
    the result is the same on every rank and in every run, to the bit; by NCCL in an order of its
    own. The gradient that arrives at x is the sum (the mean) of those that arrive at the results of
    all ranks; of a maximum it goes to the rank that has it. group: by default the world.

    >>> all_reduce([1.0, 2.0]).tolist()  # alone
    [1.0, 2.0]
    """
    return ops.AllReduce(op, *_named("all_reduce", group))(x)


def all_gather(x: Any, group: Group | None = None) -> Tensor:
    """The x of all ranks, of shape (n, ...) each, as one tensor of shape (n * size, ...), in the
    order of the ranks. Its gradient is `reduce_scatter`."""
    return ops.AllGather(*_named("all_gather", group))(x)


def reduce_scatter(x: Any, group: Group | None = None) -> Tensor:
    """The sum of x over all ranks, of which rank r keeps the r-th of `size` equal blocks of the
    first axis. ShapeError where that has no such blocks. Its gradient is `all_gather`."""
    return ops.ReduceScatter(*_named("reduce_scatter", group))(x)


def broadcast(x: Any, root: int = 0, group: Group | None = None) -> Tensor:
    """The x of rank `root`, on every rank; the others give one of the same shape and dtype. The
    gradient is the sum over the ranks on `root`, and zeros on the others."""
    return ops.Broadcast(root, *_named("broadcast", group))(x)


def all_to_all(x: Any, group: Group | None = None) -> Tensor:
    """The blocks that the ranks sent to this one, in their order: block r of the first axis of x
    goes to rank r. Its gradient is an `all_to_all` too."""
    return ops.AllToAll(*_named("all_to_all", group))(x)


def send_recv(x: Any, pairs: Sequence[tuple[int, int]], group: Group | None = None) -> Tensor:
    """The x of the rank that sends to this one, of the same shape; zeros where none does.

    pairs: (from, to) of all that send, the same on every rank, each of which sends at most once and
    receives at most once: [(0, 1), (1, 2)] is a pipeline of three, [(0, 1), (1, 0)] swaps. The
    gradient goes the other way.
    """
    listed: Any = pairs
    return ops.SendRecv(listed, *_named("send_recv", group))(x)


def _named(who: str, group: Group | None) -> tuple[str, int]:
    """The name and the size of a group, by default of the world."""
    chosen = world() if group is None else group
    if not isinstance(chosen, Group):
        raise DistributedError(
            f"{who} got {group!r} of type {type(group).__name__} as its group; give what "
            "ml.distributed.init() or group.split() returned, or None for the world"
        )
    return chosen.name, chosen.size
