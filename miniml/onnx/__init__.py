"""ONNX import: models of other frameworks as Graphs, by a table with one row per operator."""

from ..core import hints
from . import mapping as mapping
from .model import Coverage as Coverage
from .model import coverage as coverage
from .operators import Constant as Constant
from .operators import Operator as Operator
from .operators import Setting as Setting
from .operators import register_composition as register_composition
from .operators import register_operator as register_operator
from .operators import register_writer as register_writer
from .reader import Node as Node
from .reader import load as load
from .writer import save as save

__all__, __dir__, __getattr__ = hints.names(globals())
