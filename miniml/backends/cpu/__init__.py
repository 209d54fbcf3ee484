"""NumPy kernels for the CPU, one module per family; importing the package registers all."""

from . import activation as activation
from . import compare as compare
from . import control as control
from . import create as create
from . import elementwise as elementwise
from . import index as index
from . import join as join
from . import linalg as linalg
from . import norm as norm
from . import pool as pool
from . import random as random
from . import reduce as reduce
from . import shape as shape
from . import sort as sort
from . import window as window
