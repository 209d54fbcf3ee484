"""The gradient rules of miniml's primitives, a module per family; importing registers them."""

from . import activation as activation
from . import call as call
from . import compare as compare
from . import control as control
from . import elementwise as elementwise
from . import index as index
from . import join as join
from . import linalg as linalg
from . import norm as norm
from . import pool as pool
from . import reduce as reduce
from . import shape as shape
from . import sort as sort
from . import window as window
