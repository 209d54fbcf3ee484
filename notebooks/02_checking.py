# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 02. Three planted faults
#
# Gradients and kernels are easy to get almost right. At the end you will have found three planted
# faults - a factor, one line of indexing, and a memory layout - by what the two checkers of
# `miniml.testing` print. The guide is `docs/checking.md`.

# %%
import numpy as np

from miniml import Primitive, kernel
from miniml.grad import bprop_getters
from miniml.testing import gradcheck, gradcheck_vjp, opcheck

rng = np.random.default_rng(0)

# %% [markdown]
# ## A factor
#
# $g(x) = e^{-x^2 / 2 \sigma^2}$ has the derivative $-x\,g(x) / \sigma^2$. The bprop below forgets
# $\sigma^2$, which nobody notices as long as $\sigma = 1$.


# %%
class Gaussian(Primitive):
    """exp(-x^2 / (2 sigma^2))."""

    sigma: float = 1.0

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("Gaussian", "cpu", "f->f", "d->d")
def gaussian_cpu(x, *, sigma, out):
    np.exp(x * x / (-2 * sigma * sigma), out=out)


@bprop_getters.register(Gaussian)
def get_bprop_gaussian(self):
    return lambda x, out, dout: (-x * out * dout,)


points = np.array([-1.2, 0.4, 2.5])
print(gradcheck(Gaussian(1.0), points, order=1))
print()
print(gradcheck(Gaussian(2.0), points, raise_error=False))

# %% [markdown]
# Every element is off by the same factor, 4, which is $\sigma^2$. Corrected, it passes to order 2,
# the gradient of the gradient:


# %%
@bprop_getters.register(Gaussian)
def get_bprop_gaussian(self):
    return lambda x, out, dout: (-x * out * dout / self.sigma**2,)


print(gradcheck(Gaussian(2.0), points))

# %% [markdown]
# ## One line of indexing
#
# Looking up rows of a table is `table[rows]`. Its pull-back adds each row of `dout` to the row it
# came from - *adds*, because a row can be looked up twice. Plain NumPy here; `gradcheck_vjp` needs
# nothing of miniml but itself.

# %%
rows = np.array([3, 0, 7, 3, 5])


def look_up(table):
    return table[rows]


def look_up_vjp(table, dout):
    d = np.zeros_like(table)
    d[rows] = dout  # the last one wins; np.add.at(d, rows, dout) would add
    return (d,)


report = gradcheck_vjp(look_up, look_up_vjp, rng.normal(size=(10, 2)), raise_error=False)
print(report)

# %% [markdown]
# Only row 3 is wrong, the one that is looked up twice. In a table of 20,000 rows that is 2 of
# 40,000 numbers, and the report still names them:

# %%
report = gradcheck_vjp(look_up, look_up_vjp, rng.normal(size=(20_000, 2)), raise_error=False)
print([finding.index for finding in report.findings], report.forward_calls, "forward calls")

# %% [markdown]
# ## A memory layout
#
# The third fault is in a kernel. It is right for every array that is dense in memory and wrong for
# others; `opcheck` draws both kinds, and gets no inputs from us.


# %%
class Cubed(Primitive):
    """x^3."""

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@kernel("Cubed", "cpu", "f->f", "d->d")
def cubed_cpu(x, *, out):
    flat = x.ravel("K")  # the order of memory, to save a copy
    out[...] = (flat * flat * flat).reshape(out.shape)


@bprop_getters.register(Cubed)
def get_bprop_cubed(self):
    return lambda x, out, dout: (3.0 * x * x * dout,)


report = opcheck(Cubed(), raise_error=False)
for finding in report.findings:
    print(finding)

# %% [markdown]
# Each finding carries a program that shows it, made as small as possible. Its last lines:

# %%
print("\n".join(report.findings[0].example.splitlines()[-2:]))

# %% [markdown]
# Corrected, nothing is left:


# %%
@kernel("Cubed", "cpu", "f->f", "d->d")
def cubed_cpu(x, *, out):
    np.multiply(x * x, x, out=out)


opcheck(Cubed()).findings
