"""Runtime: eager execution of operations, and compiled programs."""

from . import control as control
from . import jit as jit
