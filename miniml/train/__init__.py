"""Training: one step as one program, checkpoints, snapshots, the search for a NaN."""

import typing

from .. import public
from .checkpoint import load_checkpoint as load_checkpoint
from .checkpoint import save_checkpoint as save_checkpoint
from .snapshot import Snapshot as Snapshot
from .step import locate_nonfinite as locate_nonfinite
from .step import train_step as train_step

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals())
