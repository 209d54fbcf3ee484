"""Distributed: ranks that compute together, as processes under MPI or as threads of one process.

`init` joins the group of all ranks, the world; `all_reduce` and the others are differentiable
functions of tensors, which every rank calls, and `loopback` runs a function on threads as ranks;
`ranks` has these, and moves bytes between processes by mpi4py, which is imported when it is asked
for, and arrays between GPUs by NCCL.
What a group does with arrays stands in `backends.group`, the collectives in `ops.collective`.
"""

import typing

from ..backends.group import Group as Group
from ..core import hints
from .ranks import all_gather as all_gather
from .ranks import all_reduce as all_reduce
from .ranks import all_to_all as all_to_all
from .ranks import broadcast as broadcast
from .ranks import init as init
from .ranks import loopback as loopback
from .ranks import rank as rank
from .ranks import reduce_scatter as reduce_scatter
from .ranks import send_recv as send_recv
from .ranks import size as size
from .ranks import world as world

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
