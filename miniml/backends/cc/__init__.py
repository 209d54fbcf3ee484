"""Provider "cc": CPU kernels in C, compiled at run time by the machine's compiler."""

from . import convolution as convolution
from . import moves as moves
from . import order as order
from . import pool as pool
from . import product as product
from . import quads as quads
from . import random as random
