"""Optimizers: rules that turn gradients into new parameters."""

from .adam import Adam as Adam
from .clip import clip_by_global_norm as clip_by_global_norm
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD
