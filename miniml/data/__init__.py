"""Data: the handwritten digits, and minibatches."""

from .batches import minibatches as minibatches
from .digits import Digits as Digits
from .digits import load_digits as load_digits
