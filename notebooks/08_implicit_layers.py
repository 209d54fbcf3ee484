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
# # 08. Implicit layers and second-order methods
#
# At the end you will have
#
# - a layer that is defined by an equation, with the gradient that the implicit function theorem
#   gives, of any order, and a network with it,
# - Newton's method for 650 weights without their Hessian, exact to ten digits after nine steps,
# - a neural ODE that has learnt a vector field from trajectories, and the adjoint method, which
#   computes its gradient without keeping the way there.
#
# All of it is a few lines each, made of `custom_bprop`, `vjp`, `hvp`, `ops.scan` and
# `ops.while_loop`; `docs/sequences.md` has more on loops, `docs/training.md` on
# gradients of your own.

# %%
import matplotlib.pyplot as plt
import numpy as np
import optree

import miniml as ml
from miniml import nn, ops, optim
from miniml.data import load_digits
from miniml.grad import custom_bprop, grad, hessian, hvp, value_and_grad, vjp
from miniml.testing import gradcheck

plt.rcParams.update({"figure.dpi": 90, "figure.constrained_layout.use": True})
rng = np.random.default_rng(0)

# %% [markdown]
# ## A layer that solves an equation
#
# The output $z$ of this layer is not computed from its input $a$: it is the solution of
# $z = f(a, z)$, found by iteration. Differentiating the equation instead of the iteration gives
# $dz = \partial_a f\, da + \partial_z f\, dz$. So the pull-back of a cotangent $\bar z$ is
# $\bar a = (\partial_a f)^T u$, where $u$ solves $u = \bar z + (\partial_z f)^T u$. That is an
# equation of the same kind: the layer is used in its own gradient, and gradients of gradients come
# for free.


# %%
def fixed_point(f):
    """The function (a, start) -> z with z = f(a, z); f is a contraction of z, a any tree."""

    def bprop(a, start, z, dz):
        def pulled_back(given, u):
            a, z, dz = given
            return dz + vjp(lambda z: f(a, z), z)[1](u)[0]

        u = fixed_point(pulled_back)((a, z, dz), ops.zeros_like(dz))
        return vjp(lambda a: f(a, z), a)[1](u)[0], None

    @custom_bprop(bprop)
    def solve(a, start):
        def moves(pair):  # by more than rounding
            before, z = pair
            rounding = 2 * np.finfo(z.dtype).eps * ops.max(ops.abs(z))
            return ops.max(ops.abs(z - before)) > rounding

        pair = start, f(a, start)
        return ops.while_loop(moves, lambda pair: (pair[1], f(a, pair[1])), pair, 200)[1]

    return solve


# %% [markdown]
# A small one in float64: $z = \tanh(W z + x)$. Its gradient is that of 100 iterations, unrolled,
# and the checker agrees to the second order.


# %%
def step(a, z):
    w, x = a
    return ops.tanh(w @ z + x)


def unrolled(a, start):
    z, _ = ops.scan(lambda z, _: (step(a, z),) * 2, start, length=100)
    return z[-1]


w, x, start = 0.3 * rng.normal(size=(4, 4)), rng.normal(size=4), np.zeros(4)
implicit = fixed_point(step)
z = implicit((w, x), start)
assert np.allclose(z, np.tanh(w @ z.asnumpy() + x), atol=1e-12)

by_theorem = grad(lambda w: ops.sum(implicit((w, x), start) ** 2))(w)
by_unrolling = grad(lambda w: ops.sum(unrolled((w, x), start) ** 2))(w)
assert np.allclose(by_theorem, by_unrolling, rtol=1e-10)

print(gradcheck(lambda w: ops.sum(implicit((w, x), start)), w, order=2))

# %% [markdown]
# Two easier ways to stop - a fixed tolerance, and one relative to $z$ - were refused by this check:
# they make the gradient of the gradient slightly nonlinear in its cotangent.
#
# Unrolling keeps what each iteration computed; the theorem needs the solution only.

# %%
big = [(0.1 * rng.normal(size=(200, 200)), rng.normal(size=200)), np.zeros(200)]
peaks = [
    ml.explain(grad(lambda a, start, layer=layer: ops.sum(layer(a, start))), *big).peak_bytes
    for layer in (implicit, unrolled)
]
print("bytes alive at once: {:,} by the theorem, {:,} unrolled".format(*peaks))

# %% [markdown]
# ## A network with such a layer
#
# Two spirals, told apart by one implicit layer. However far its iteration goes, it has the weights
# of one layer. Their norm is held below 1, so that there is one solution and the iteration finds
# it, whatever is learnt.


# %%
class Implicit(nn.Cell):
    """z = tanh(z w + x u + b), with w scaled down to a norm of 0.95 at most."""

    def __init__(self, features, n):
        self.inner = ml.Parameter((0.1 * rng.normal(size=(n, n))).astype(np.float32))
        self.outer = nn.Dense(features, n)

    def construct(self, x):
        norm = ops.sqrt(ops.sum(self.inner * self.inner))
        w, h = self.inner * ops.minimum(1.0, 0.95 / norm), self.outer(x)
        return fixed_point(lambda a, z: ops.tanh(z @ a[0] + a[1]))((w, h), ops.zeros_like(h))


def spirals(count):
    """Points (2 count, 2), and which of two spirals each is on."""
    t = np.sqrt(rng.uniform(0.05, 1, 2 * count))
    label = np.arange(2 * count) % 2
    angle = 9 * t + np.pi * label
    points = 3 * t[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return (points + 0.06 * rng.normal(size=points.shape)).astype(np.float32), label


ml.manual_seed(0)
points, label = spirals(200)
net = nn.Sequential(Implicit(2, 32), nn.Dense(32, 2))
train = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=0.02))
losses = [train(points, label).item() for _ in range(400)]

fresh, truth = spirals(400)
right = (net(fresh).asnumpy().argmax(1) == truth).mean()
print(f"loss {losses[0]:.2f} to {losses[-1]:.4f}; {right:.1%} of new points are read right")
assert right > 0.97

# %%
line = np.linspace(-3.4, 3.4, 120, dtype=np.float32)
grid = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
share = ops.softmax(net(grid)).asnumpy()[:, 1].reshape(120, 120)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6))
left.semilogy(losses)
left.set(xlabel="step", ylabel="loss")
shown = right.contourf(line, line, share, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=0.7)
right.scatter(*fresh.T, c=truth, cmap="RdBu_r", s=6, edgecolors="k", linewidths=0.3)
right.set(aspect="equal", xlabel="x", ylabel="y")
figure.colorbar(shown, ax=right, label="share of the red spiral", ticks=[0, 0.5, 1])
plt.show()

# %% [markdown]
# ## Newton's method without a Hessian
#
# Newton's step solves $H p = -g$. For logistic regression on the digits $H$ has 650 x 650 numbers,
# but conjugate gradients need only products with it, and `hvp` gives these for the price of two
# gradients or so.

# %%
digits = load_digits()
images = digits.images.reshape(-1, 64).astype(np.float64)
weights = {"w": np.zeros((64, 10)), "b": np.zeros(10)}


def loss(weights):
    """Cross entropy, and a little of the squared weights, so that there is one minimum."""
    logits = images @ weights["w"] + weights["b"]
    return ops.cross_entropy(logits, digits.labels) + 1e-3 * dot(weights, weights)


def dot(x, y):
    """The inner product of two trees."""
    return sum(ops.sum(a * b) for a, b in zip(*map(optree.tree_leaves, (x, y)), strict=True))


def plus(x, c, y):
    """x + c y, of trees."""
    return optree.tree_map(lambda a, b: a + c * b, x, y)


# %% [markdown]
# `hvp` is right: for a small function the Hessian can be formed.


# %%
def small(x):
    return ops.sum(ops.sin(x) * x**2) * ops.sum(x)


at, along = rng.normal(size=5), rng.normal(size=5)
assert np.allclose(hvp(small, at, along), hessian(small)(at).asnumpy() @ along)


# %%
def conjugate_gradients(product, b, count):
    """x with product(x) = b, and how many products it took, `count` at most."""

    def going(state):
        return ops.logical_and(state[3] > 1e-4 * dot(b, b), state[4] < count)

    def step(state):
        x, r, p, rr, k = state
        q = product(p)
        c = rr / dot(p, q)
        x, r = plus(x, c, p), plus(r, -c, q)
        new = dot(r, r)
        return x, r, plus(r, new / rr, p), new, k + 1

    zero = optree.tree_map(ops.zeros_like, b)
    x, *_, k = ops.while_loop(going, step, (zero, b, b, dot(b, b), ml.Tensor(0)))
    return x, k


@ml.jit
def newton(weights):
    """The next weights, the norm of the gradient before, and the number of products."""
    g = grad(loss)(weights)
    p, count = conjugate_gradients(lambda v: hvp(loss, weights, v), g, 200)
    return plus(weights, -1.0, p), ops.sqrt(dot(g, g)), count


# %%
newton_norms, work = [], [0]
at = weights
while not newton_norms or newton_norms[-1] > 1e-9:
    at, norm, count = newton(at)
    newton_norms.append(norm.item())
    work.append(work[-1] + 1 + 2 * count.item())
    print(
        f"norm of the gradient {newton_norms[-1]:.1e}, {count.item():3} products with the Hessian"
    )
assert len(newton_norms) < 12

# %% [markdown]
# For comparison: gradient descent with momentum, and L-BFGS, which guesses the Hessian from the
# last gradients. Here that is the cheapest; Newton's steps are those that get better and better.


# %%
def norms_of(make, steps):
    """The norm of the gradient at each step of an optimizer."""
    params = {name: ml.Parameter(value, name=name) for name, value in weights.items()}
    optimizer = make(list(params.values()))
    gradient = value_and_grad(lambda: loss(params), argnums=None, weights=list(params.values()))

    @ml.jit
    def step():
        _, g = gradient()
        optimizer.update(g)
        return ops.sqrt(dot(g, g))

    return [step().item() for _ in range(steps)]


descent = norms_of(lambda params: optim.SGD(params, lr=0.3, momentum=0.9), 800)
lbfgs = norms_of(optim.LBFGS, 300)
assert max(newton_norms[-1], lbfgs[-1]) < 1e-9 < 1e-6 < descent[-1]

figure, axes = plt.subplots(figsize=(6, 3.4))
axes.semilogy(work[:-1], newton_norms, "o-", ms=4, label="Newton with conjugate gradients")
axes.semilogy(lbfgs, label="L-BFGS")
axes.semilogy(descent, label="descent with momentum")
axes.set(xlabel="gradients computed (a product counts as two)", ylabel="norm of the gradient")
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## A neural ODE
#
# A network gives the velocity at each point; the layer's output is where a point is after some
# time. Here trajectories are all that is known of a vector field, $\dot z = A z^3$, and the network
# is to find it. The integrator is Runge and Kutta's, for any tree; the loop is a scan.


# %%
def runge_kutta(f, state, h):
    k1 = f(state)
    k2 = f(plus(state, h / 2, k1))
    k3 = f(plus(state, h / 2, k2))
    k4 = f(plus(state, h, k3))
    return plus(state, h / 6, plus(plus(k1, 2.0, k2), 1.0, plus(k4, 2.0, k3)))


def integrated(f, start, h, steps):
    """The states after each step, and the last one."""

    def step(state, _):
        state = runge_kutta(f, state, h)
        return state, state

    return ops.scan(step, start, length=steps)


A = np.array([[-0.1, 2.0], [-2.0, -0.1]])
H, STEPS = 0.1, 10
starts = rng.uniform(-1.4, 1.4, (100, 2))
observed, _ = integrated(lambda z: z**3 @ A.T, ml.Tensor(starts), H, STEPS)


# %%
def velocity(p, z):
    return ops.tanh(ops.tanh(z @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]) @ p["w3"]


def drawn(*shape):
    return ml.Parameter(rng.normal(size=shape) / shape[0] ** 0.5)


def bias(n):
    return ml.Parameter(np.zeros(n))


p = {"w1": drawn(2, 32), "b1": bias(32), "w2": drawn(32, 32), "b2": bias(32), "w3": drawn(32, 2)}
optimizer = optim.Adam(list(p.values()), lr=optim.cosine(0.02, 600))


def error():
    found, _ = integrated(lambda z: velocity(p, z), ml.Tensor(starts), H, STEPS)
    return ops.mean((found - observed) ** 2)


@ml.jit
def learn():
    loss, gradients = value_and_grad(error, argnums=None, weights=optimizer.params)()
    optimizer.update(gradients)
    return loss


losses = [learn().item() for _ in range(600)]
print(f"mean squared error {losses[0]:.3f} to {losses[-1]:.6f}")

# %% [markdown]
# From starts that it has not seen, and three times as far as it has seen:

# %%
new = ml.Tensor(np.array([[1.3, 0.0], [-1.0, 1.1], [0.0, -0.8]]))
true, _ = integrated(lambda z: z**3 @ A.T, new, H, 3 * STEPS)
found, _ = integrated(lambda z: velocity(p, z), new, H, 3 * STEPS)
far = np.abs(true.asnumpy() - found.asnumpy()).max()
print(f"at most {far:.3f} away from the true trajectory")
assert far < 0.2

x, y = np.meshgrid(np.linspace(-1.5, 1.5, 15), np.linspace(-1.5, 1.5, 15))
u, v = np.moveaxis(velocity(p, np.stack([x, y], -1)).asnumpy(), -1, 0)
figure, axes = plt.subplots(figsize=(4.8, 4.4))
axes.quiver(x, y, u, v, color="0.75")
for i in range(3):
    axes.plot(*true.asnumpy()[:, i].T, "k-", lw=3, alpha=0.3, label="true" if i == 0 else None)
    axes.plot(*found.asnumpy()[:, i].T, "C1--", label="learnt" if i == 0 else None)
axes.plot(*new.asnumpy().T, "ko", ms=5, label="start")
axes.set(xlabel="x", ylabel="y", aspect="equal", xlim=(-1.6, 1.6), ylim=(-1.6, 1.6))
axes.legend(loc="center")
plt.show()

# %% [markdown]
# ## The adjoint method
#
# The scan's gradient keeps all stages of all steps. The adjoint method keeps nothing: it integrates
# backwards in time, and with the state its cotangent $a$ and the gradient by the parameters,
#
# $$\dot a = -a\, \partial_z f, \qquad \dot g = -a\, \partial_p f.$$


# %%
def end_by_scan(p, start, h, steps):
    return integrated(lambda z: velocity(p, z), start, h, steps)[1]


def backwards(p, start, h, steps, end, dend):
    """Gradients by parameters and start: the equations above, with time reversed."""

    def moving(state):
        z, a, _ = state
        dz, pull = vjp(velocity, p, z)
        dp, da = pull(a)
        return -dz, da, dp

    nothing = optree.tree_map(ops.zeros_like, p)
    _, (_, a, g) = integrated(moving, (end, dend, nothing), h, steps)
    return g, a, None, None


end_by_adjoint = custom_bprop(backwards)(end_by_scan)


# %%
def slope(end, h, steps):
    """The gradient by the parameters of a sum over the end states."""
    return grad(lambda p, start: ops.sum(end(p, start, h, steps) ** 2))


def apart(h, steps):
    """How far the two gradients are apart, in parts of their size."""
    scan, adjoint = (
        np.concatenate(
            [g.asnumpy().ravel() for g in optree.tree_leaves(slope(end, h, steps)(p, new))]
        )
        for end in (end_by_scan, end_by_adjoint)
    )
    return np.linalg.norm(scan - adjoint) / np.linalg.norm(scan)


errors = [apart(H / k, STEPS * k) for k in (1, 2, 4)]
print("apart with steps of H, H / 2, H / 4:", *(f"{e:.1e}" for e in errors))
assert errors[2] < errors[0] / 100

# %% [markdown]
# They differ by the error of the integrator, which falls with the fourth power of the step.
#
# What both need is known before they run: the planner says how many bytes are alive at once.

# %%
counts = [10, 100, 1000]
bytes_of = {
    name: [ml.explain(slope(end, H, n), p, new).peak_bytes for n in counts]
    for name, end in (("scan", end_by_scan), ("adjoint", end_by_adjoint))
}
figure, axes = plt.subplots(figsize=(5, 3))
for name, sizes in bytes_of.items():
    axes.loglog(counts, np.array(sizes) / 1e3, "o-", ms=4, label=name)
axes.set(xlabel="steps", ylabel="kB alive at once")
axes.legend()
plt.show()

assert bytes_of["adjoint"][0] == bytes_of["adjoint"][-1] < bytes_of["scan"][-1] / 20
