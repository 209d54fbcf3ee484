"""Pictures of graphs: Mermaid, DOT, pages for a browser; and of what networks compute."""

import typing

from .. import public
from .figures import confusion_matrix as confusion_matrix
from .figures import feature_maps as feature_maps
from .figures import gradient_flow as gradient_flow
from .figures import histograms as histograms
from .inside import activations as activations
from .inside import gradients as gradients
from .page import to_html as to_html
from .stages import draw as draw
from .text import to_dot as to_dot
from .text import to_mermaid as to_mermaid

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals())
