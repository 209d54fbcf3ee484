"""Optimizers: rules that turn gradients into new parameters."""

import typing

from ..core import hints
from .lbfgs import LBFGS as LBFGS
from .optimizer import SGD as SGD
from .optimizer import Adadelta as Adadelta
from .optimizer import Adagrad as Adagrad
from .optimizer import Adam as Adam
from .optimizer import Adamax as Adamax
from .optimizer import AdamW as AdamW
from .optimizer import Lion as Lion
from .optimizer import NAdam as NAdam
from .optimizer import Optimizer as Optimizer
from .optimizer import RAdam as RAdam
from .optimizer import RMSprop as RMSprop
from .schedules import OnPlateau as OnPlateau
from .schedules import chained as chained
from .schedules import cosine as cosine
from .schedules import cyclic as cyclic
from .schedules import one_cycle as one_cycle
from .schedules import polynomial as polynomial
from .schedules import step_decay as step_decay
from .schedules import warm_restarts as warm_restarts
from .schedules import warmup as warmup
from .wrappers import EMA as EMA
from .wrappers import SWA as SWA
from .wrappers import Accumulate as Accumulate
from .wrappers import Groups as Groups
from .wrappers import LossScale as LossScale
from .wrappers import clip_by_global_norm as clip_by_global_norm
from .wrappers import clip_by_value as clip_by_value

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
