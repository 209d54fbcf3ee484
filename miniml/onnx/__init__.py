"""ONNX: files of other frameworks as Graphs, by a table with one row an operator."""

from .. import public
from . import mapping as mapping
from .coverage import Coverage as Coverage
from .coverage import coverage as coverage
from .loading import load as load
from .operators import Constant as Constant
from .operators import Operator as Operator
from .operators import Setting as Setting
from .operators import register_operator as register_operator
from .reader import Node as Node

__all__, __dir__, __getattr__ = public.names(globals())
