"""opcheck: everything that can be checked about a primitive, on inputs that it draws itself."""

from .report import OpCheckError as OpCheckError
from .report import OpFinding as OpFinding
from .report import OpReport as OpReport
from .run import assert_op as assert_op
from .run import opcheck as opcheck
from .suite import CHECKS as CHECKS
