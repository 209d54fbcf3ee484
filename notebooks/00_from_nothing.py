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
# # 00. The framework in 200 lines
#
# At the end you will have an autodiff framework of your own, made of NumPy alone: primitives with
# rules, a place where calls are intercepted, reverse mode, a graph, one pass over it, and a program
# that runs it in buffers made beforehand. Each part ends with the file of miniml in which its
# grown-up version stands.

# %%
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# %% [markdown]
# ## 1. What an operation is
#
# A primitive is an operation that is not made of others. Two functions describe it: one gives the
# shape of its result, so that we can reason about a call without making it; the other, its kernel,
# computes the result into memory that somebody else has allocated. A primitive that is called
# computes nothing itself: it hands the call to whoever is in charge.


# %%
@dataclass(frozen=True)
class Primitive:
    name: str
    shape: Any  # shapes of the inputs -> shape of the output
    kernel: Any  # arrays, out= -> fills out

    def __call__(self, *inputs):
        return traces[-1].bind(self, inputs)


# %% [markdown]
# Operators on values are calls of primitives, and nothing else:


# %%
class Tensor:
    def __init__(self, data):
        self.data = np.array(data, float)
        self.shape = self.data.shape

    def __add__(self, other):
        return add(self, other)

    def __mul__(self, other):
        return mul(self, other)

    def __matmul__(self, other):
        return matmul(self, other)


# %% [markdown]
# Here are the primitives. Most kernels *are* NumPy functions, because these know `out=`. A shape
# rule also says what is refused.


# %%
def same(x, *others):
    if any(other != x for other in others):
        raise ValueError(f"the shapes {x} and {others[0]} differ")
    return x


add = Primitive("add", same, np.add)
mul = Primitive("mul", same, np.multiply)
neg = Primitive("neg", same, np.negative)
sin = Primitive("sin", same, np.sin)
cos = Primitive("cos", same, np.cos)
copy = Primitive("copy", same, lambda x, out: np.copyto(out, x))

# %%
matmul = Primitive("matmul", lambda x, y: (x[0], y[1]), np.matmul)
transpose = Primitive("transpose", lambda x: x[::-1], lambda x, out: np.copyto(out, x.T))
total = Primitive("total", lambda x: (), lambda x, out: np.sum(x, out=out))
spread = Primitive("spread", lambda x, like: like, lambda x, like, out: np.copyto(out, x))

# %% [markdown]
# `total` adds all elements; `spread` repeats one number in the shape of its second input. Each is
# needed for the other's gradient, as we shall see.
#
# In miniml: `miniml/core/primitive.py`, the definitions in `miniml/ops/elementwise.py` and its
# neighbours, the kernels in `miniml/backends/cpu/elementwise.py` and its neighbours.

# %% [markdown]
# ## 2. Who is in charge
#
# A *trace* gives meaning to calls: it has one method, `bind`. The simplest one computes at once.


# %%
class Eager:
    def bind(self, primitive, inputs):
        out = Tensor(np.empty(primitive.shape(*[x.shape for x in inputs])))
        primitive.kernel(*[x.data for x in inputs], out=out.data)
        return out


traces = [Eager()]


@contextmanager
def use(trace):
    traces.append(trace)
    try:
        yield
    finally:
        traces.pop()


# %% [markdown]
# That is a small NumPy:

# %%
x = Tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]])
w = Tensor([[0.1, 0.2], [0.3, -0.4], [0.5, 0.6]])


def loss(w):
    y = sin(x @ w)
    return total(y * y)


loss(w).data

# %% [markdown]
# `miniml/core/trace.py` says what a trace is, `miniml/runtime/eager.py` computes at once.

# %% [markdown]
# ## 3. Reverse mode
#
# To differentiate, somebody has to remember the calls. A recording trace lets the trace below it do
# the work, and writes down what happened.


# %%
class Record:
    def __init__(self, parent):
        self.parent, self.calls = parent, []

    def bind(self, primitive, inputs):
        out = self.parent.bind(primitive, inputs)
        self.calls.append((primitive, inputs, out))
        return out


# %% [markdown]
# Then each primitive needs a rule: from the inputs, the output and the gradient of the final result
# by the output (`dout`), it gives the gradient by each input. The rules are made of primitives
# themselves. That is the trick: whatever can be done to a program can be done to its gradient.

# %%
bprops = {
    add: lambda x, y, out, dout: (dout, dout),
    mul: lambda x, y, out, dout: (dout * y, dout * x),
    neg: lambda x, out, dout: (neg(dout),),
    sin: lambda x, out, dout: (dout * cos(x),),
    cos: lambda x, out, dout: (neg(dout * sin(x)),),
    copy: lambda x, out, dout: (dout,),
    matmul: lambda x, y, out, dout: (dout @ transpose(y), transpose(x) @ dout),
    transpose: lambda x, out, dout: (transpose(dout),),
    total: lambda x, out, dout: (spread(dout, x),),
    spread: lambda x, like, out, dout: (total(dout), None),
}

# %% [markdown]
# The backward pass walks the calls from the last to the first. A value that was used twice gets the
# sum of what comes back.


# %%
def backward(calls, out, x):
    gradients = {out: Tensor(1.0)}
    for primitive, inputs, result in reversed(calls):
        if result not in gradients:
            continue
        back = bprops[primitive](*inputs, result, gradients[result])
        for value, dx in zip(inputs, back, strict=True):
            if dx is not None:
                gradients[value] = gradients[value] + dx if value in gradients else dx
    return gradients[x]


# %% [markdown]
# `grad` puts the two together. It differentiates by a fresh copy of its input, so that two
# gradients by the same value, one inside the other, do not mistake each other's for their own.


# %%
def grad(f):
    def gradient(x):
        x = copy(x)
        record = Record(traces[-1])
        with use(record):
            out = f(x)
        return backward(record.calls, out, x)

    return gradient


grad(loss)(w).data

# %% [markdown]
# While `backward` runs, the recording has ended, so its calls go to the trace that was in charge
# before: they are computed at once, or recorded by a gradient further out. Gradients of gradients
# work without another line. The third derivative of the sine is $-\cos$, and by $x$ the derivative
# of $\partial (x y) / \partial y = x$ is 1, also where $y$ is $x$:

# %%
print(grad(grad(grad(sin)))(Tensor(0.5)).data, -np.cos(0.5))
print(grad(lambda x: grad(lambda y: x * y)(x))(Tensor(3.0)).data)

# %% [markdown]
# In miniml: `miniml/graph/record.py`, the rules in `miniml/ops/elementwise.py` and
# `miniml/grad/rules/reduce.py` and its like, the walk in `miniml/grad/reverse.py`, `grad` in
# `miniml/grad/transforms.py`.

# %% [markdown]
# ## 4. A program as a value
#
# A third trace computes nothing at all. Its values know only their shapes, and every call becomes a
# node of a graph.


# %%
class Var(Tensor):
    def __init__(self, shape):
        self.shape = shape


@dataclass(frozen=True)
class Graph:
    input: Var
    nodes: tuple  # of (primitive, inputs, output), in an order in which they can run
    output: Tensor


# %%
class Tracer:
    def __init__(self):
        self.nodes = []

    def bind(self, primitive, inputs):
        out = Var(primitive.shape(*[x.shape for x in inputs]))
        self.nodes.append((primitive, inputs, out))
        return out


# %%
def trace(f, shape):
    tracer, x = Tracer(), Var(shape)
    with use(tracer):
        out = f(x)
    return Graph(x, tuple(tracer.nodes), out)


# %%
def show(graph):
    names = {graph.input: "w"}
    for number, (primitive, inputs, out) in enumerate(graph.nodes):
        names[out] = f"%{number}"
        print(names[out], "=", primitive.name, *[names.get(x, "constant") for x in inputs])
    print("return", names[graph.output])


show(trace(loss, w.shape))

# %% [markdown]
# `loss` has no idea that it was traced. Neither has `grad`: the graph of a gradient holds the
# forward pass and the backward pass, one after the other.

# %%
graph = trace(grad(loss), w.shape)
show(graph)

# %% [markdown]
# In miniml: `miniml/graph/tracing.py` and `miniml/graph/ir.py`; the text comes from
# `miniml/graph/ir.py`.

# %% [markdown]
# ## 5. A pass
#
# Some of these nodes are for nothing: the loss itself is not returned, and nobody asked for the
# gradient by the constant `x`. A pass is a function from graph to graph. This one goes backwards
# and keeps what is used.


# %%
def prune(graph):
    used, kept = {graph.output}, []
    for node in reversed(graph.nodes):
        if node[2] in used:
            used.update(node[1])
            kept.append(node)
    return replace(graph, nodes=tuple(reversed(kept)))


show(prune(graph))

# %% [markdown]
# In miniml: `miniml/graph/passes/rewrite.py`. Beside it are folding of constants, sharing of equal
# nodes and simplification; `miniml/graph/passes/pipeline.py` puts them in a row.

# %% [markdown]
# ## 6. A program
#
# The graph says all there is to know before anything runs, so all memory can be allocated once. A
# buffer is free again after the last node that reads it; the next result of that shape takes it.


# %%
def plan(graph):
    last = {x: i for i, (_, inputs, _) in enumerate(graph.nodes) for x in inputs}
    last[graph.output] = len(graph.nodes)
    buffers, free = {}, defaultdict(list)
    for i, (_, inputs, out) in enumerate(graph.nodes):
        buffers[out] = free[out.shape].pop() if free[out.shape] else np.empty(out.shape)
        for x in set(inputs) & set(buffers):
            if last[x] == i:
                free[x.shape].append(buffers[x])
    return buffers


# %% [markdown]
# What is left is a list of kernels, each with its arrays. Running the program is running the list:
# no shape is inferred, nothing is looked up, nothing is allocated but the result.


# %%
class Program:
    def __init__(self, graph):
        self.input, buffers = np.empty(graph.input.shape), plan(graph)
        read = {x for _, inputs, _ in graph.nodes for x in inputs}
        constants = {x: x.data for x in read if not isinstance(x, Var)}
        arrays = {graph.input: self.input, **constants, **buffers}
        self.output, self.buffers = arrays[graph.output], {id(b) for b in buffers.values()}
        self.steps = [
            (primitive.kernel, [arrays[x] for x in inputs], arrays[out])
            for primitive, inputs, out in graph.nodes
        ]

    def __call__(self, x):
        np.copyto(self.input, x)
        for kernel, inputs, out in self.steps:
            kernel(*inputs, out=out)
        return self.output.copy()


# %%
program = Program(prune(graph))
print(f"{len(program.steps)} steps in {len(program.buffers)} buffers")
program(w.data)

# %% [markdown]
# In miniml: `miniml/runtime/memory.py` packs all buffers into one block of memory,
# `miniml/runtime/program.py` runs the kernels, and `miniml/runtime/jit.py` keeps a program for each
# kind of call.

# %% [markdown]
# ## 7. Is it right?
#
# The program can train: here are 200 steps down the gradient.

# %%
weights = w.data
for _ in range(200):
    weights = weights - 0.05 * program(weights)
float(loss(w).data), float(loss(Tensor(weights)).data)

# %% [markdown]
# And it agrees with miniml, in the gradient and in the gradient of the gradient's sum of squares.

# %%
import miniml as ml
from miniml import ops
from miniml.grad import grad as miniml_grad


def miniml_loss(w):
    y = ops.sin(ml.Tensor(x.data) @ w)
    return ops.sum(y * y)


def squared_slope(w):
    g = grad(loss)(w)
    return total(g * g)


def miniml_squared_slope(w):
    g = miniml_grad(miniml_loss)(w)
    return ops.sum(g * g)


# %%
first, second = miniml_grad(miniml_loss), miniml_grad(miniml_squared_slope)
twice = Program(prune(trace(grad(squared_slope), w.shape)))
assert np.allclose(program(w.data), first(w.data), rtol=1e-12)
assert np.allclose(twice(w.data), second(w.data), rtol=1e-12)
print("equal")

# %% [markdown]
# What the real one has besides: dtypes and devices, parameters that a step updates wholly or not
# at all, random numbers, branches and loops, CUDA kernels, errors that point at your line, and
# checkers that tell a wrong gradient from a right one. `docs/architecture.md` goes through its
# floors; `notebooks/01_first_primitive.py` starts with a primitive of your own.
