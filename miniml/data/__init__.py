"""Data: batches of arrays and sequences, splits, the handwritten digits."""

import typing

from .. import public
from .batches import minibatches as minibatches
from .digits import Digits as Digits
from .digits import load_digits as load_digits
from .loader import DataLoader as DataLoader
from .splits import k_fold as k_fold
from .splits import split as split
from .splits import stratified_split as stratified_split

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals())
