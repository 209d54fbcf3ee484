"""How nodes become calls of `ops`: one row an operator, in the module of its family."""

from ...families import load

load(__name__, __path__)
