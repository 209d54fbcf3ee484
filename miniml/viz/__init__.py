"""Drawings of graphs (HTML, Mermaid, DOT), figures of the values inside networks, and reports on
programs."""

import typing

from ..core import hints
from .page import to_html as to_html
from .pictures import activations as activations
from .pictures import confusion_matrix as confusion_matrix
from .pictures import draw as draw
from .pictures import feature_maps as feature_maps
from .pictures import gradient_flow as gradient_flow
from .pictures import gradients as gradients
from .pictures import histograms as histograms
from .pictures import to_dot as to_dot
from .pictures import to_mermaid as to_mermaid

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals())
