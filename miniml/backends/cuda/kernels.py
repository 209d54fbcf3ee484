"""Files the library's CUDA kernels, a module per family; imported with the first CUDA device."""

from . import elementwise as elementwise
from . import views as views
