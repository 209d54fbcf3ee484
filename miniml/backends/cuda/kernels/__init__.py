"""The library's CUDA kernels, registered with the first CUDA device: those of scalar expressions,
and a module per family."""

from ....core import load
from ....core.abstract import parse
from ....core.signature import COMPLEX
from ...expressions import table
from ...registry import kernel

for (_name, _signature), _body in tuple(table.items()):
    # Users' expressions are registered one by one.
    if _body.unit and not set(COMPLEX) & set(_signature):
        _inputs, (_out,) = parse(_signature).inputs, parse(_signature).outputs
        # Every element is read before it is written, so `out` may be any input of its dtype.
        _inplace = tuple(i for i, dtype in enumerate(_inputs) if dtype == _out)
        kernel(_name, "cuda", _signature, inplace=_inplace, total=True)(_body)

load(__name__, __path__)
