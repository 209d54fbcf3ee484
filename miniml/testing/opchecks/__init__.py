"""opcheck: checks everything that can be checked about a primitive, on inputs that it draws."""

from ..report import OpCheckError as OpCheckError
from ..report import OpFinding as OpFinding
from ..report import OpReport as OpReport
from .run import CHECKS as CHECKS
from .run import assert_op as assert_op
from .run import opcheck as opcheck
