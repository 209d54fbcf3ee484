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
# # 07. Looking inside
#
# At the end you will have followed one training step from the lines that you write to the program
# that runs: a table of its layers, its graph before and after each pass, the kernel of each node,
# what was fused and the C that this became, the memory that it takes, where the time goes, and
# the place where a NaN begins. The guide is `docs/looking-inside.md`.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

import miniml as ml
from miniml import nn, ops, optim, viz
from miniml.data import load_digits
from miniml.grad import grad
from miniml.graph.passes import PIPELINE, run_passes

plt.rcParams.update({"figure.dpi": 90, "figure.constrained_layout.use": True})
digits = load_digits()
x, y = digits.images[:64], digits.labels[:64]

# %% [markdown]
# ## The layers
#
# A summary works on shapes alone: nothing runs.


# %%
class Block(nn.Cell):
    """x + dense(gelu(norm(x)))."""

    def __init__(self, n):
        self.norm, self.dense = nn.LayerNorm(n), nn.Dense(n, n)

    def construct(self, x):
        return x + self.dense(ops.gelu(self.norm(x)))


ml.manual_seed(0)
net = nn.Sequential(nn.Flatten(), nn.Dense(64, 256), Block(256), Block(256), nn.Dense(256, 10))
found = net.summary(x)
print(found)
assert found.parameters == sum(p.size for p in net.get_parameters())

# %% [markdown]
# ## The graph, before and after the passes
#
# A small one first: the gradient of a sum. As it is traced, it holds what the rules of the gradient
# say, one call after another. The passes fold what is constant, share what is equal, simplify, and
# drop what is not needed.


# %%
def small(x):
    return ops.sum(ops.tanh(x * 2.0 + 0.0) ** 2)


traced = ml.trace(grad(small), np.ones(4, np.float32))
passed = run_passes(traced)
print(traced, passed, sep="\n\n")
assert len(passed.nodes) < len(traced.nodes)

# %% [markdown]
# Now the training step: forward, backward, clipping and update. Which pass does how much?

# %%
optimizer = optim.AdamW(net.trainable_params(), lr=1e-3)
step = ml.train_step(net, nn.CrossEntropyLoss(), optimizer, clip=1.0)
graph = ml.trace(step, x, y)
counts = {"traced": len(graph.nodes)}
names = [entry.name for entry in PIPELINE]
for i, name in enumerate(names):
    counts[name] = len(run_passes(graph, disabled=names[i + 1 :]).nodes)
for name, count in counts.items():
    print(f"{name:10} {count:4} nodes")
assert counts["prune"] < counts["traced"]

# %% [markdown]
# `ml.draw` writes a page that steps through the same graphs in a browser. Boxes are layers and
# open at a click; what a pass made is green.

# %%
with TemporaryDirectory() as folder:
    page = ml.draw(step, x, y, path=Path(folder) / "step.html")
    print(f"a page of {page.stat().st_size / 1e6:.1f} MB")

# %% [markdown]
# ## Kernels, fused groups, and C
#
# Where there is a C compiler, chains of elementwise calls and reductions become one loop. `explain`
# says what runs, and why. NumPy's kernels, one for each node, stand beside it for comparison.

# %%
plain = ml.context(providers=("miniml",))
with plain:
    by_numpy = ml.explain(step, x, y)
native = ml.explain(step, x, y, text=True)
print(f"{len(by_numpy.rows)} kernels of NumPy; {len(native.rows)} as it runs here")
print(native.launched or "there is no C compiler: NumPy's kernels run")
print(*native.groups[:6], sep="\n")
print("...\n", *native.apart[:2], sep="\n")

# %% [markdown]
# The first group is an addition, a layer norm and a GELU, as one function: a pass over the row for
# the mean, one for the squared distance from it, one for the rest.

# %%
fused = [text for text in native.texts if "KERNEL_part" in text and "GELU" in text]
text = min(fused, key=len) if fused else "there is no C compiler"
print(text[max(text.find("static void KERNEL_part"), 0) :])

# %% [markdown]
# ## Memory
#
# How large each value is, and when it is read for the last time, is known before the first run. So
# the planner puts all of them into one block of memory, where a value takes the place of another
# that is no longer needed.


# %%
def results(explanation):
    """Bytes of all results, if none took another's place."""
    return sum(sum(row.sizes[1]) for row in explanation.rows)


for name, found in (("NumPy", by_numpy), ("as it runs here", native)):
    print(f"{name}: {results(found):,} bytes of results in a block of {found.arena_bytes:,}")
    assert found.peak_bytes <= found.arena_bytes < results(found)

figure, axes = plt.subplots(figsize=(6, 2.2))
for row, found in enumerate((by_numpy, native)):
    axes.barh(row - 0.2, results(found) / 1e6, 0.36, color="C0")
    axes.barh(row + 0.2, found.arena_bytes / 1e6, 0.36, color="C1")
axes.set_yticks([0, 1], ["NumPy", "as it runs"])
axes.set(xlabel="MB", ylim=(1.6, -0.6))
axes.legend(["all results", "the block"])
plt.show()

# %% [markdown]
# ## Time
#
# A profile notes when each kernel begins and ends, in native code too, and knows its layer and your
# line. Nothing is compiled anew for it.

# %%
step(x, y)
with ml.profile() as profile:
    for _ in range(50):
        step(x, y)
print(*str(profile).splitlines()[:8], sep="\n")
assert all(row.calls % 50 == 0 for row in profile.rows)

# %%
figure, axes = plt.subplots(figsize=(7, 2.8))
shown = [row for row in profile.layers if row.layer][:8]
axes.barh([row.layer for row in shown], [row.seconds / 50 * 1e6 for row in shown])
axes.invert_yaxis()
axes.set(xlabel="microseconds a step, forward and backward")
plt.show()

# %% [markdown]
# ## What flows through
#
# What each layer gives for a batch, and how large the gradients are. In a network that does not
# learn, these show where numbers die or explode. This one has learnt the batch by heart meanwhile,
# so its gradients are small.

# %%
outputs = viz.activations(net, x)
del outputs["0 (Flatten)"]
assert outputs["1 (Dense)"].shape == (64, 256)
viz.histograms(outputs)

# %%
gradients = viz.gradients(net, nn.CrossEntropyLoss(), x, y)
assert set(gradients) == set(net.parameters_dict())
viz.gradient_flow(gradients)

# %% [markdown]
# ## Where a NaN begins
#
# A distance between equal points is 0, and the slope of a square root at 0 is infinite. The loss is
# fine; the gradient is not. `debug_nans` names the call, its inputs, the layer and the line.


# %%
class Distance(nn.Cell):
    """How far x is from a learnt point."""

    def __init__(self, n):
        self.point = ml.Parameter(np.zeros(n, np.float32))

    def construct(self, x):
        return ops.sqrt(ops.sum((x - self.point) ** 2, axis=1))


far = nn.Sequential(nn.Flatten(), Distance(64))
learn = ml.train_step(far, nn.MSELoss(), optim.SGD(far.trainable_params(), lr=0.1))
zeros, ones = np.zeros((4, 64), np.float32), np.ones(4, np.float32)
try:
    with ml.debug_nans():
        learn(zeros, ones)
except FloatingPointError as error:
    messages = [str(error), *error.__notes__]
print(*messages, sep="\n")
assert "backward of Sqrt" in messages[0]
assert "layer 1 (Distance)" in messages[1]
assert not far[1].point.asnumpy().any()  # a step that raises changes nothing
