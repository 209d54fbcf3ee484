"""Runtime: eager execution of operations, and compiled programs."""

from . import jit as jit
