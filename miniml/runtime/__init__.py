"""The runtime: operations computed at once, or as compiled programs."""

from . import control as control
from . import graphs as graphs
from .fusion import kernel as kernel
from .lowering import composed as composed
