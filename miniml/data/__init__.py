"""Data: the handwritten digits, and minibatches."""

import typing

from .. import public
from .batches import minibatches as minibatches
from .digits import Digits as Digits
from .digits import load_digits as load_digits

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals())
