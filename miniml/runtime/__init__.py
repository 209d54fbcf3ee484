"""Runtime: eager execution of operations, and compiled programs."""

from . import codegen as codegen
from . import jit as jit
