"""Drawings of graphs (HTML, Mermaid, DOT), figures of the values inside networks, and reports on
programs."""

import typing

from ..core import hints

if typing.TYPE_CHECKING:  # checkers read the imports
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
else:  # imported where they are first used: a report needs none of them
    hints.stand_in("viz.page", "viz", "to_html")
    hints.stand_in(
        "viz.pictures", "viz", "activations", "confusion_matrix", "draw", "feature_maps",
        "gradient_flow", "gradients", "histograms", "to_dot", "to_mermaid",
    )  # fmt: skip
    __all__, __dir__, __getattr__ = hints.names(globals())
