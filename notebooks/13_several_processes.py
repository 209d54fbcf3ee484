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
# # 13. Several processes
#
# At the end you will have
#
# - seen what ranks compute together, and how a gradient passes through it,
# - trained a network on two ranks, to the same weights as on one,
# - found a gradient that is wrong across ranks, and right on each,
# - a prediction of where more ranks stop paying.
#
# The page on it is `docs/distributed.md`. Here the ranks are threads of one process, so that the
# notebook needs no launcher; programs run on processes and machines as they are, by
# `mpiexec -n 2 python -m mpi4py train.py`.

# %%
import numpy as np

import miniml as ml
from miniml import Parameter, distributed, nn, ops, optim
from miniml.cli.scale import NETWORKS, Workload, pays_until, remedies, sweep
from miniml.data import load_digits
from miniml.grad import grad, stop_gradient
from miniml.testing import gradcheck

ml.set_context(providers=("miniml",))  # NumPy's kernels: nothing is compiled

# %% [markdown]
# ## What ranks compute together
#
# Each rank calls the same function with an `x` of its own. The sum is on all ranks; its gradient is
# that of the sum of all ranks' results, so that each `x` gets the cotangents of all.


# %%
def program(group):
    x = np.arange(2.0) + group.rank
    total = distributed.all_reduce(x)
    slope = grad(lambda x: ops.sum(distributed.all_reduce(x * x)))(x)
    return total.tolist(), slope.tolist()


found = distributed.loopback(program, 3)
assert found[0][0] == [3.0, 6.0]
found

# %% [markdown]
# ## Two ranks learn what one learns
#
# Each rank takes every second row of a batch; `group=` has the step average loss and gradients. The
# networks of both begin with the same weights.

# %%
digits = load_digits()
images, labels = digits.images.reshape(-1, 64), digits.labels
rng = np.random.default_rng(0)
first = rng.normal(size=(64, 32), scale=0.1).astype(np.float32)
second = rng.normal(size=(32, 10), scale=0.1).astype(np.float32)


def train(group):
    weights = [Parameter(first), Parameter(second)]

    def net(x):
        return ops.tanh(x @ weights[0]) @ weights[1]

    optimizer = optim.SGD(weights, lr=0.5)
    step = ml.train_step(net, nn.CrossEntropyLoss(), optimizer, group=group)
    losses = []
    for start in range(0, 1408, 64):
        rows = slice(start + group.rank, start + 64, group.size)
        losses.append(step(images[rows], labels[rows]).item())
    return losses, weights[0].asnumpy()


((alone, weights),) = distributed.loopback(train, 1)
(losses, one), (_, other) = distributed.loopback(train, 2)
assert np.array_equal(one, other)
np.testing.assert_allclose(one, weights, atol=1e-5)
f"loss {losses[0]:.3f} to {losses[-1]:.3f}; weights differ by {np.abs(one - weights).max():.0e}"

# %% [markdown]
# ## A fault that one rank cannot show
#
# The value of this sum is right. Its gradient forgets that the other ranks' results depend on this
# `x` too. On one rank `gradcheck` has nothing to find; across two it says what is wrong.


# %%
def total(x):
    return x + stop_gradient(distributed.all_reduce(x) - x)


x = np.array([2.0])
print("on one rank right:", gradcheck(total, x).ok)
reports = distributed.loopback(
    lambda group: gradcheck(total, x + group.rank, group=group, raise_error=False), 2
)
assert not reports[0].ok
print(reports[0])

# %% [markdown]
# ## Where more ranks stop paying
#
# A step of 4,096 rows of 50 us each, a million weights, and a network of 10 Gbit/s, simulated: the
# same as `python -m miniml scale`.

# %%
work = Workload(4096, row=5e-5, fixed=5e-4, buckets=(500_000,) * 8, spread=0.02)
steps = sweep(work, NETWORKS["ethernet-10g"])
for step in steps[:9]:
    print(
        f"{step.ranks:5d} ranks {step.seconds * 1e3:8.2f} ms, waiting {step.waiting * 1e3:6.2f} ms"
    )
best = pays_until(steps)
assert 8 <= best.ranks <= 128
print(f"\nMore than {best.ranks} ranks do not pay. What would help on twice as many:")
for what, gain in remedies(work, NETWORKS["ethernet-10g"], "direct", 2 * best.ranks)[:3]:
    print(f"  {what}: {gain:.1f} times as fast")
