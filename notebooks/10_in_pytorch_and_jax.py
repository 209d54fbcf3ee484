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
# # 10. An operation of yours in PyTorch and JAX
#
# At the end you will have a primitive that was defined and checked here
#
# - inside a PyTorch network, which `torch.compile` takes whole and an optimizer of PyTorch trains,
# - inside a function of JAX, under `jit`, `vmap` and gradients of gradients,
#
# and a network of miniml as a module of PyTorch, with the same memory. This notebook needs `torch`
# and `jax`. The page on all of it is `docs/interop.md`.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import torch

from miniml import Primitive, kernel, nn, ops
from miniml.grad import bprop_getters
from miniml.interop import to_jax, to_torch
from miniml.testing import gradcheck, opcheck

# %% [markdown]
# ## The primitive of notebook 01
#
# $\mathrm{snake}(x) = x + \sin^2(\alpha x) / \alpha$: a class, a gradient, a kernel. It is checked
# where it is defined. That it works element by element is the one fact that the other frameworks
# can use beyond that: from it follow `vmap`, and extents that stay open.


# %%
class Snake(Primitive):
    """x + sin(alpha x)^2 / alpha."""

    alpha: float = 1.0
    elementwise = True

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


print("opcheck", opcheck(Snake(2.0)).ok)
print("gradcheck", gradcheck(Snake(2.0), np.array([-2.0, 0.3, 3.0]), order=2).ok)

# %% [markdown]
# ## An operator of PyTorch
#
# `to_torch` makes an operator of `torch.library` of it: the schema comes from the class, the shapes
# from its rules, the gradient from its bprop, which is such an operator again.

# %%
snake = to_torch(Snake(2.0))
print(snake.overload._schema)
x = torch.linspace(-2, 2, 5, dtype=torch.float64, requires_grad=True)
print(snake(x))
print(torch.autograd.grad(snake(x).sum(), x)[0] - (1 + torch.sin(4 * x.detach())))

# %% [markdown]
# PyTorch's own checkers judge it too.

# %%
print("gradcheck", torch.autograd.gradcheck(snake, x))
print("gradgradcheck", torch.autograd.gradgradcheck(snake, x))
print("opcheck", torch.library.opcheck(snake.overload, (x,), {"alpha": 2.0}))

# %% [markdown]
# ## Inside a PyTorch network, compiled
#
# `fullgraph=True` makes `torch.compile` refuse whatever it cannot take whole. The network learns
# a sine, as the one of notebook 01 did.


# %%
class SnakeLayer(torch.nn.Module):
    def forward(self, x):
        return snake(x)


torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 32), SnakeLayer(), torch.nn.Linear(32, 1))
compiled = torch.compile(net, fullgraph=True)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
points = torch.linspace(-3, 3, 64)[:, None]
losses = []
for _ in range(300):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(compiled(points), torch.sin(2 * points))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"mean squared error: {losses[0]:.3f} at first, {losses[-1]:.1e} after {len(losses)} steps")
assert losses[-1] < 0.01

# %% [markdown]
# The same network with the formula in PyTorch's own operations computes the same, and so do
# transforms of `torch.func`, here a gradient for each of 64 examples.


# %%
def formula(x):
    return x + torch.sin(2 * x) ** 2 / 2


hidden = net[0](points).detach()
print("largest difference", float((snake(hidden) - formula(hidden)).abs().max()))
per_example = torch.func.vmap(torch.func.grad(lambda row: snake(row).pow(2).sum()))(hidden)
wanted = torch.func.vmap(torch.func.grad(lambda row: formula(row).pow(2).sum()))(hidden)
torch.testing.assert_close(per_example, wanted)
per_example.shape

# %% [markdown]
# ## A whole network, with its memory
#
# A Cell becomes an `nn.Module`. Its parameters are the Cell's: the same memory under the same
# names, so that a step of PyTorch's optimizer is seen here, without a copy.

# %%
cell = nn.Sequential(nn.Dense(1, 32), nn.Tanh(), nn.Dense(32, 1))
module = to_torch(cell)
print(list(module.state_dict()))
before = cell[0].weight.asnumpy()
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
torch.nn.functional.mse_loss(module(points), torch.sin(points)).backward()
optimizer.step()
print("moved here, too:", bool((cell[0].weight.asnumpy() != before).any()))

# %% [markdown]
# ## A function of JAX
#
# The same class again. The gradient is a `custom_vjp` whose rule is again such a function, so there
# are gradients of gradients; `vmap` uses the fact that Snake is elementwise.

# %%
snake = to_jax(Snake(2.0))
ours = jax.jit(jax.vmap(jax.grad(jax.grad(snake))))(jnp.linspace(-1.0, 1.0, 5))
theirs = 4 * jnp.cos(4 * jnp.linspace(-1.0, 1.0, 5))
print(ours, float(jnp.abs(ours - theirs).max()))


# %%
def predict(params, x):
    return snake(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


@jax.jit
def update(params, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((predict(p, x) - y) ** 2))(params)
    return loss, jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)


draw = np.random.default_rng(0)
params = {
    "w1": jnp.asarray(draw.normal(size=(1, 32)), jnp.float32),
    "b1": jnp.zeros(32),
    "w2": jnp.asarray(0.1 * draw.normal(size=(32, 1)), jnp.float32),
    "b2": jnp.zeros(1),
}
x = jnp.linspace(-3, 3, 64)[:, None]
losses = []
for _ in range(1000):
    loss, params = update(params, x, jnp.sin(2 * x))
    losses.append(float(loss))
print(f"mean squared error: {losses[0]:.3f} at first, {losses[-1]:.1e} after {len(losses)} steps")
assert losses[-1] < 0.1 * losses[0]

# %% [markdown]
# ## The checker goes along
#
# `gradcheck` takes functions of PyTorch and JAX as they are. Here is an `autograd.Function` whose
# gradient is too large by one part in ten thousand, which `torch.autograd.gradcheck` lets pass.


# %%
class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp())
        return x.exp()

    @staticmethod
    def backward(ctx, dout):
        return dout * ctx.saved_tensors[0] * 1.0001


x = torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)
print("torch.autograd.gradcheck:", torch.autograd.gradcheck(Exp.apply, x))
report = gradcheck(Exp, x.detach(), raise_error=False)
print(report.findings[0])
assert not report.ok

# %% [markdown]
# `python -m benchmarks.interop` measures what a call costs over miniml's own. The way a network
# leaves by file is ONNX: `notebooks/11_onnx.py`.
