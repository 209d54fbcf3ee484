"""Files the library's CUDA kernels, a module per family; imported with the first CUDA device."""

from . import activation as activation
from . import compare as compare
from . import elementwise as elementwise
from . import reduce as reduce
from . import views as views
