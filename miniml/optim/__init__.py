"""Optimizers: rules that turn gradients into new parameters."""

import typing

from .. import public
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .clip import clip_by_global_norm as clip_by_global_norm
from .clip import clip_by_value as clip_by_value
from .lbfgs import LBFGS as LBFGS
from .lion import Lion as Lion
from .optimizer import Optimizer as Optimizer
from .plateau import OnPlateau as OnPlateau
from .rmsprop import Adagrad as Adagrad
from .rmsprop import RMSprop as RMSprop
from .scale import LossScale as LossScale
from .schedules import chained as chained
from .schedules import cosine as cosine
from .schedules import one_cycle as one_cycle
from .schedules import polynomial as polynomial
from .schedules import step_decay as step_decay
from .schedules import warmup as warmup
from .sgd import SGD as SGD
from .wrappers import EMA as EMA
from .wrappers import Accumulate as Accumulate
from .wrappers import Groups as Groups

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals())
