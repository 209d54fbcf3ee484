"""Optimizers: rules that turn gradients into new parameters."""

import typing

from ..core import hints
from .lbfgs import *  # noqa: F403
from .optimizer import *  # noqa: F403
from .schedules import *  # noqa: F403
from .wrappers import *  # noqa: F403

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
