"""NumPy kernels for the CPU, one module per family; importing the package files them all."""

from . import activation as activation
from . import compare as compare
from . import control as control
from . import create as create
from . import elementwise as elementwise
from . import reduce as reduce
from . import shape as shape
