"""Data: batches of arrays, sequences and streams, their order, images, text, splits, digits."""

import typing

from ..core import hints
from .loader import *  # noqa: F403
from .sets import *  # noqa: F403

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
