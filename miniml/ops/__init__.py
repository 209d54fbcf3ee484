"""Operations: primitives, with their attributes and inference, and functions that call them."""

import typing

from ..core import hints
from . import rules as rules
from .attention import *  # noqa: F403
from .collective import *  # noqa: F403
from .composed.convolution import *  # noqa: F403
from .composed.elementwise import *  # noqa: F403
from .composed.loops import *  # noqa: F403
from .composed.losses import *  # noqa: F403
from .composed.rearrange import *  # noqa: F403
from .composed.sampling import *  # noqa: F403
from .composed.statistics import *  # noqa: F403
from .control import *  # noqa: F403
from .create import *  # noqa: F403
from .custom import *  # noqa: F403
from .decomposition import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .fourier import *  # noqa: F403
from .images import *  # noqa: F403
from .index import *  # noqa: F403
from .linalg import *  # noqa: F403
from .logic import *  # noqa: F403
from .norm import *  # noqa: F403
from .random import *  # noqa: F403
from .reduce import *  # noqa: F403
from .rules import *  # noqa: F403
from .shape import *  # noqa: F403

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals(), "rules", "validator")
