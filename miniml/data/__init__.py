"""Data: batches of arrays, sequences and streams, their order, images, text, splits, digits."""

import typing

from ..core import hints
from .loader import DataLoader as DataLoader
from .loader import Stream as Stream
from .loader import bucketed as bucketed
from .loader import class_weights as class_weights
from .loader import minibatches as minibatches
from .loader import stratified as stratified
from .loader import weighted as weighted
from .sets import Digits as Digits
from .sets import Vocabulary as Vocabulary
from .sets import chain as chain
from .sets import cutmix as cutmix
from .sets import k_fold as k_fold
from .sets import load_digits as load_digits
from .sets import mixup as mixup
from .sets import next_tokens as next_tokens
from .sets import normalize as normalize
from .sets import pad_images as pad_images
from .sets import pad_sequences as pad_sequences
from .sets import random_affine as random_affine
from .sets import random_color as random_color
from .sets import random_crop as random_crop
from .sets import random_erase as random_erase
from .sets import random_flip as random_flip
from .sets import split as split
from .sets import stratified_split as stratified_split

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
