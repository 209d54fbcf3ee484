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

if typing.TYPE_CHECKING:
    from ..interop.custom import Custom as Custom
    from ..interop.custom import custom as custom
    from ..interop.custom import pack_attribute as pack_attribute
    from ..interop.custom import unpack_attribute as unpack_attribute
else:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = hints.names(globals(), "rules", "validator")
