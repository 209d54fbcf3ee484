"""NumPy kernels of the elementwise primitives: where NumPy has a ufunc, the kernel is that ufunc."""

from __future__ import annotations

import numpy as np

from ..kernel import Array
from .filing import ANY, FLOAT, NUMBER, file, same

for _name, _ufunc in {"Add": np.add, "Mul": np.multiply}.items():
    file(_name, _ufunc, *same(2, ANY), inplace=(0, 1))
file("Sub", np.subtract, *same(2, NUMBER), inplace=(0, 1))
file("Neg", np.negative, *same(1, NUMBER), inplace=(0,))
for _name, _ufunc in {"Sin": np.sin, "Cos": np.cos, "Exp": np.exp}.items():
    file(_name, _ufunc, *same(1, FLOAT), inplace=(0,))
for _name, _ufunc in {"Greater": np.greater}.items():
    file(_name, _ufunc, *same(2, ANY, "?"))


def cast(x: Array, *, dtype: object, out: Array) -> None:
    np.copyto(out, x, casting="unsafe")


file("Cast", cast, *[f"{a}->{b}" for a in ANY for b in ANY])
