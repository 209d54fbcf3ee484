"""WHAT an operation is: its attributes and its inference, and the functions that call it."""

import typing

from .. import public
from . import rules as rules
from . import validator as validator
from .activation import *  # noqa: F403
from .arithmetic import *  # noqa: F403
from .attention import *  # noqa: F403
from .compare import *  # noqa: F403
from .composed.convolution import *  # noqa: F403
from .composed.ctc import *  # noqa: F403
from .composed.group_norm import *  # noqa: F403
from .composed.label_losses import *  # noqa: F403
from .composed.loss import *  # noqa: F403
from .composed.patches import *  # noqa: F403
from .composed.pooling import *  # noqa: F403
from .composed.positions import *  # noqa: F403
from .composed.rearrange import *  # noqa: F403
from .composed.resize import *  # noqa: F403
from .composed.sampling import *  # noqa: F403
from .control import *  # noqa: F403
from .create import *  # noqa: F403
from .cumulative import *  # noqa: F403
from .custom import *  # noqa: F403
from .decomposition import *  # noqa: F403
from .exponential import *  # noqa: F403
from .function import *  # noqa: F403
from .getitem import *  # noqa: F403
from .index import *  # noqa: F403
from .inference.bases import Binary as Binary
from .inference.bases import Comparison as Comparison
from .inference.bases import FloatBinary as FloatBinary
from .inference.bases import FloatUnary as FloatUnary
from .inference.bases import Unary as Unary
from .join import *  # noqa: F403
from .linalg import *  # noqa: F403
from .norm import *  # noqa: F403
from .pool import *  # noqa: F403
from .random import *  # noqa: F403
from .reduce import *  # noqa: F403
from .scan import *  # noqa: F403
from .shape import *  # noqa: F403
from .sort import *  # noqa: F403
from .trigonometric import *  # noqa: F403
from .window import *  # noqa: F403

if not typing.TYPE_CHECKING:  # checkers read the imports; what `import *` leaves out is public too
    __all__, __dir__, __getattr__ = public.names(globals(), "rules", "validator")
