"""Export: a compiled program, or a whole training step, as one C file that needs libm alone.

`exporter` compiles and writes the files; `plan` reads a Program's steps as plain data: calls,
copies, checks and loops on symbolic addresses; `writer` prints a plan as C; `loops` has the C of
operations that Python computes, and of those that may refuse their inputs; `quantize` puts
products of int8 in the place of those by weights; `web` makes a page of a network and its training
step. `saved` writes graphs as text that is read again.
"""

import typing

from ..core import hints

if typing.TYPE_CHECKING:  # checkers read the imports
    from .exporter import export_c as export_c
else:  # imported where it is first used: whoever loads a graph does not need it
    hints.stand_in("export.exporter", "export", "export_c")
    __all__, __dir__, __getattr__ = hints.names(globals())
