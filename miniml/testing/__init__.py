"""Tools for testing primitives, one's own included."""

from .opinfo import OpInfo as OpInfo
from .opinfo import Refusal as Refusal
from .opinfo import Sample as Sample

__all__ = ["OpInfo", "Refusal", "Sample"]
