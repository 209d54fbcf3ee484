"""Gradient rules of miniml's primitives, one module per family; importing them registers them."""

from ...core import load

load(__name__, __path__)
