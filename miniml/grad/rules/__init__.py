"""The gradient rules of miniml's primitives, a module per family; importing registers them."""

from ...families import load
from . import call as call

load(__name__, __path__)
