"""Training: one step as one program, snapshots, the search for a NaN."""

from .snapshot import Snapshot as Snapshot
from .step import locate_nonfinite as locate_nonfinite
from .step import train_step as train_step
