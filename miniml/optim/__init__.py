"""Optimizers: rules that turn gradients into new parameters."""

from .adam import Adam as Adam
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD
