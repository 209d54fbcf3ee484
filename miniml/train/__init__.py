"""Training: Model and its fit, train_step, callbacks, metrics, checkpoints, locate_nonfinite."""

import typing

from ..core import hints
from .callbacks import Callback as Callback
from .callbacks import EarlyStopping as EarlyStopping
from .callbacks import LivePlot as LivePlot
from .callbacks import Log as Log
from .callbacks import ReduceRate as ReduceRate
from .callbacks import SaveBest as SaveBest
from .callbacks import TensorBoard as TensorBoard
from .checkpoint import Snapshot as Snapshot
from .checkpoint import load_checkpoint as load_checkpoint
from .checkpoint import save_checkpoint as save_checkpoint
from .metrics import Metric as Metric
from .metrics import accuracy as accuracy
from .metrics import auc as auc
from .metrics import confusion_matrix as confusion_matrix
from .metrics import f1 as f1
from .metrics import mean as mean
from .metrics import mean_absolute_error as mean_absolute_error
from .metrics import mean_squared_error as mean_squared_error
from .metrics import perplexity as perplexity
from .metrics import precision as precision
from .metrics import r2 as r2
from .metrics import recall as recall
from .metrics import top_k as top_k
from .run import Model as Model
from .run import RateSearch as RateSearch
from .run import find_rate as find_rate
from .step import locate_nonfinite as locate_nonfinite
from .step import train_step as train_step

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
