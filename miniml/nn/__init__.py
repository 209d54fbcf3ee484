"""Networks: cells, layers and losses."""

import typing

from ..core import hints
from . import init as init
from .attention import *  # noqa: F403
from .cell import Cell as Cell
from .container import *  # noqa: F403
from .images import *  # noqa: F403
from .layer import *  # noqa: F403
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .norm import *  # noqa: F403
from .recurrent import *  # noqa: F403

if typing.TYPE_CHECKING:
    from ..interop.foreign import load_torch_state as load_torch_state
    from ..interop.foreign import torch_state as torch_state
else:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals(), "init")
