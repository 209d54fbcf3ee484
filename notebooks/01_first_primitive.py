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
# # 01. A primitive of your own
#
# At the end you will have five primitives of your own, in networks and with gradients. The first
# takes one line, and is a formula; the others say more: what an operation *is* - its attributes,
# the shape and dtype of its result - is a class; its gradient and its kernels are functions that
# are registered for it.

# %%
import numpy as np

import miniml as ml
from miniml import (
    KernelAttr,
    Primitive,
    PrimitiveWithInfer,
    kernel,
    nn,
    ops,
    optim,
    prim_attr_register,
)
from miniml.grad import GradOperation, bprop_getters, grad
from miniml.testing import opcheck

# %% [markdown]
# ## From a formula to a network, in five lines
#
# An activation for periodic data, $\mathrm{snake}(x) = x + \sin^2(\alpha x) / \alpha$ (Ziyin,
# Hartwig, Ueda 2020). The formula is the whole primitive: its gradient of any order, its kernels in
# NumPy, C and CUDA, `vmap` and forward mode follow from it. `opcheck` checks all of that.

# %%
Wave = ml.elementwise("Wave", "x + sin(alpha * x) * sin(alpha * x) / alpha", alpha=1.0)
print(opcheck(Wave(2.0)).ok)
network = ml.jit(grad(lambda w, x: ops.sum(Wave(2.0)(x @ w))))
for device in ("cpu", "cuda-sim"):  # compiled C here, and CUDA on the simulator
    with ml.context(device_target=device):
        print(device, network(np.array([[0.3], [-0.2]]), np.array([[1.0, 2.0]])).tolist())

# %% [markdown]
# ## Snake: the same as a class
#
# With the derivative $1 + \sin(2 \alpha x)$ and a kernel by hand. The annotated field `alpha` is
# an attribute of the primitive: it is part of its equality and its text, and arrives at the kernel
# by keyword.


# %%
class Snake(Primitive):
    """x + sin(alpha x)^2 / alpha."""

    alpha: float = 1.0

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


@bprop_getters.register(Snake)
def get_bprop_snake(self):
    def bprop(x, out, dout):
        return (dout * (1.0 + ops.sin(2.0 * self.alpha * x)),)

    return bprop


@kernel("Snake", "cpu", "f->f", "d->d")
def snake_cpu(x, *, alpha, out):
    np.add(x, np.sin(alpha * x) ** 2 / alpha, out=out)


Snake(0.5)(np.array([-2.0, 0.0, 3.0]))

# %% [markdown]
# Its gradient is made of primitives, so the gradient has a gradient too:
# $\mathrm{snake}''(x) = 2 \alpha \cos(2 \alpha x)$.

# %%
x = 0.7
first = grad(Snake(0.5))
second = grad(first)
float(first(x)), 1 + np.sin(x), float(second(x)), np.cos(x)

# %% [markdown]
# In a network it is one more cell. Here is one that learns a sine from 64 points, each step
# compiled into one program.


# %%
class SnakeLayer(nn.Cell):
    def __init__(self, alpha):
        self.snake = Snake(alpha)

    def construct(self, x):
        return self.snake(x)


ml.manual_seed(0)  # equal seeds give equal weights
net = nn.Sequential(nn.Dense(1, 32), SnakeLayer(2.0), nn.Dense(32, 1))
step = ml.train_step(net, nn.MSELoss(), optim.Adam(net.trainable_params(), lr=0.01))
points = np.linspace(-3, 3, 64, dtype=np.float32)[:, None]
losses = [float(step(points, np.sin(2 * points))) for _ in range(300)]
print(f"mean squared error: {losses[0]:.3f} at first, {losses[-1]:.5f} after {len(losses)} steps")

# %% [markdown]
# ## The classic spelling: a transpose whose permutation is an input
#
# Those who come from MindSpore may keep its spelling: attributes are the arguments of an
# `__init__` under `@prim_attr_register`, and kernels declare their types with `KernelAttr`.
# `perm` is an input that must be known when the call is made - a *const input* - so the kernel
# gets it by keyword and `KernelAttr` does not count it.


# %%
class TransposePerm(PrimitiveWithInfer):
    """x with its axes in the order perm."""

    const_inputs = ("perm",)

    @prim_attr_register
    def __init__(self):
        self.init_prim_io_names(inputs=["x", "perm"], outputs=["output"])

    def infer_shape(self, x, perm):
        if len(x) != len(perm):
            raise ValueError("The dimension of x and perm must be equal.")
        return tuple(x[axis] for axis in perm)

    def infer_dtype(self, x, perm):
        return x


@kernel(
    "TransposePerm",
    "cpu",
    KernelAttr().add_input_attr(ml.float32).add_output_attr(ml.float32),
)
def transpose_perm(x, *, perm, out):
    np.copyto(out, x.transpose(perm))


class InvertPermutation(PrimitiveWithInfer):
    """The permutation that undoes perm. Its value follows from a known input without a kernel."""

    def infer_shape(self, perm):
        return perm

    def infer_dtype(self, perm):
        return perm

    def infer_value(self, perm):
        return np.argsort(perm)


@bprop_getters.register(TransposePerm)
def get_bprop_transpose_perm(self):
    invert = InvertPermutation()

    def bprop(x, perm, out, dout):
        return self(dout, invert(perm)), ops.zeros((len(perm),), ml.int32)

    return bprop


class TransposeNet(nn.Cell):
    def __init__(self):
        self.transpose = TransposePerm()

    def construct(self, data):
        return self.transpose(data, (1, 0))


# %% [markdown]
# Run in graph mode - the cell is traced once and compiled:

# %%
ml.set_context(mode=ml.GRAPH_MODE, device_target="CPU")
net = TransposeNet()
output = net(np.arange(2 * 3).reshape(2, 3).astype(np.float32))
print("output:", output.asnumpy(), sep="\n")

# %%
sens = np.arange(2 * 3).reshape(3, 2).astype(np.float32)
dx = GradOperation(sens_param=True)(net)(np.ones((2, 3), np.float32), sens)
print("dx:", dx.asnumpy(), sep="\n")

# %% [markdown]
# ## A kernel for two dtypes, and inputs that are refused
#
# TensorAddV2 takes two tensors of equal shapes, float32 or int32.


# %%
class TensorAddV2(PrimitiveWithInfer):
    """x1 + x2, without broadcasting."""

    @prim_attr_register
    def __init__(self):
        self.init_prim_io_names(inputs=["x1", "x2"], outputs=["y"])

    def infer_shape(self, x1, x2):
        if x1 != x2:
            raise ml.errors.ShapeError(f"TensorAddV2 got shapes {x1} and {x2}; they must be equal")
        return x1

    def infer_dtype(self, x1, x2):
        if x1 != x2 or x1 not in (ml.float32, ml.int32):
            raise ml.errors.DTypeError(
                f"TensorAddV2 got {x1.name} and {x2.name}; it adds float32 or int32"
            )
        return x1


@kernel(
    "TensorAddV2",
    "cpu",
    *(
        KernelAttr().add_input_attr(t).add_input_attr(t).add_output_attr(t)
        for t in (ml.float32, ml.int32)
    ),
)
def tensor_add_v2(x1, x2, *, out):
    np.add(x1, x2, out=out)


@bprop_getters.register(TensorAddV2)
def get_bprop_tensor_add_v2(self):
    return lambda x1, x2, out, dout: (dout, dout)


ones = np.ones((3, 4), np.float32)
print("result:", TensorAddV2()(ones, ones).asnumpy(), sep="\n")

# %%
try:
    TensorAddV2()(ones, ones[:2])
except ml.errors.ShapeError as refusal:
    print(refusal)

# %% [markdown]
# `python -m miniml show Add` prints the same four parts - definition, gradient, kernels, tests - of
# any primitive of the library.
