"""Data: batches of arrays and sequences, transforms of images and text, splits, the digits."""

import typing

from .. import public
from .batches import minibatches as minibatches
from .digits import Digits as Digits
from .digits import load_digits as load_digits
from .images import chain as chain
from .images import normalize as normalize
from .images import pad_images as pad_images
from .images import random_crop as random_crop
from .images import random_flip as random_flip
from .loader import DataLoader as DataLoader
from .splits import k_fold as k_fold
from .splits import split as split
from .splits import stratified_split as stratified_split
from .text import Vocabulary as Vocabulary
from .text import next_tokens as next_tokens
from .text import pad_sequences as pad_sequences

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals())
