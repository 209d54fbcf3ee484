"""Registers the CUDA kernels, a module per family; imported with the first CUDA device."""

from . import activation as activation
from . import batch_norm as batch_norm
from . import compare as compare
from . import create as create
from . import cross_entropy as cross_entropy
from . import einsum as einsum
from . import elementwise as elementwise
from . import index as index
from . import join as join
from . import linalg as linalg
from . import norm as norm
from . import pool as pool
from . import random as random
from . import reduce as reduce
from . import scan as scan
from . import shape as shape
from . import sort as sort
from . import window as window
