"""Training: Model and its fit, train_step, callbacks, metrics, checkpoints, locate_nonfinite."""

import typing

from ..core import hints
from .callbacks import *  # noqa: F403
from .checkpoint import *  # noqa: F403
from .metrics import *  # noqa: F403
from .run import *  # noqa: F403
from .step import *  # noqa: F403

if typing.TYPE_CHECKING:
    from ..viz.pictures import LivePlot as LivePlot
    from ..viz.pictures import TensorBoard as TensorBoard
else:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
