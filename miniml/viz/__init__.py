"""Drawings of graphs (HTML, Mermaid, DOT) and figures of the values inside networks."""

import typing

from ..core import hints
from .figures import confusion_matrix as confusion_matrix
from .figures import feature_maps as feature_maps
from .figures import gradient_flow as gradient_flow
from .figures import histograms as histograms
from .page import to_html as to_html
from .stages import activations as activations
from .stages import draw as draw
from .stages import gradients as gradients
from .stages import to_dot as to_dot
from .stages import to_mermaid as to_mermaid

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
