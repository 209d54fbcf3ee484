"""Graphs as pictures: Mermaid, DOT, and a page that needs nothing but a browser."""

import typing

from .. import public
from .page import to_html as to_html
from .stages import draw as draw
from .text import to_dot as to_dot
from .text import to_mermaid as to_mermaid

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals())
