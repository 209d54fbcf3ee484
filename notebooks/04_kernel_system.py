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
# # 04. The kernel system
#
# Engines for training and inference let you add operators, mostly in C++ and by building the engine
# again. This notebook adds the operators that four of their manuals add, from Python. At the end
# you will have
#
# - a transpose with a permutation that must be known, and its gradient,
# - an addition with a kernel for the CPU and one in CUDA C,
# - a leaky ReLU whose kernel depends on the machine and on the order of pixels in memory,
# - a pass that turns two additions into one custom operator, known by its name and by bytes,
# - the same operator from several vendors, and the reason why one of them was chosen,
# - a kernel that follows sizes, a saved graph that another process runs, operators from ONNX,
#   and in three lines an operator made of a function.
#
# `docs/kernel-system.md` has all that can be added, a line each.

# %%
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import TensorProto, helper

import miniml as ml
from miniml import (
    Kernel,
    KernelAttr,
    Launch,
    Primitive,
    PrimitiveWithInfer,
    infer_rule,
    kernel,
    nn,
    ops,
    prim_attr_register,
    raw_kernel,
)
from miniml.grad import GradOperation, bprop_getters
from miniml.graph.passes import run_passes
from miniml.ops import rules, validator
from miniml.ops.validator import Rel
from miniml.testing import gradcheck

# %% [markdown]
# ## Transpose: an input that must be known
#
# MindSpore's example of an operator for the CPU. The permutation is an input, but the shape of the
# result depends on its value, so it must be known when the call is made: a *const input*. The rules
# get its value, and so does the kernel, as an attribute of its node.


# %%
class TransposePerm(PrimitiveWithInfer):
    """x with its axes in the order perm. (Transpose is the library's own.)"""

    const_inputs = ("perm",)

    @prim_attr_register
    def __init__(self):
        self.init_prim_io_names(inputs=["x", "perm"], outputs=["output"])

    def infer_shape(self, x, perm):
        if len(x) != len(perm):
            raise ValueError("The dimension of x and perm must be equal.")
        return tuple(x[axis] for axis in validator.check_transpose_axis(perm, len(x), self.name))

    def infer_dtype(self, x, perm):
        return x


# %% [markdown]
# A kernel that is a class has a life. `prepare` runs once for each shape and may refuse it, before
# anything of a program has run; `launch` runs at each call.


# %%
@kernel("TransposePerm", "cpu", KernelAttr().add_input_attr(ml.float32).add_output_attr(ml.float32))
class TransposeKernel(Kernel):
    MOST = 100

    def prepare(self, node):
        self.perm = node.attrs["perm"]
        if len(self.perm) > self.MOST:
            raise ml.errors.ShapeError(f"transpose of {len(self.perm)} axes; at most {self.MOST}")

    def launch(self, inputs, workspace, outputs, stream):
        np.copyto(outputs[0], inputs[0].transpose(self.perm))


# %% [markdown]
# The gradient is a transpose again, by the inverse permutation. That is computed while the gradient
# is built, by `infer_value`, so it needs no kernel. `perm` has no gradient, but its entry counts.


# %%
class InvertPermutation(Primitive):
    """The permutation that undoes perm."""

    like = "perm"

    def infer_value(self, perm):
        return np.argsort(perm)


@bprop_getters.register(TransposePerm)
def get_bprop_transpose(self):
    invert = InvertPermutation()

    def bprop(x, perm, out, dout):
        return self(dout, invert(perm)), ops.zeros((len(perm),), ml.int32)

    return bprop


# %%
class TransposeNet(nn.Cell):
    def __init__(self):
        self.transpose = TransposePerm()

    def construct(self, data):
        return self.transpose(data, (1, 0))


x = np.arange(2 * 3).reshape(2, 3).astype(np.float32)
sens = np.arange(2 * 3).reshape(3, 2).astype(np.float32)
with ml.context(mode=ml.GRAPH_MODE):
    output = TransposeNet()(x)
    dx = GradOperation(sens_param=True)(TransposeNet())(x, sens)

print("output:", output.asnumpy(), "dx:", dx.asnumpy(), sep="\n")
assert output.tolist() == [[0, 3], [1, 4], [2, 5]]
assert dx.tolist() == [[0, 2, 4], [1, 3, 5]]

# %% [markdown]
# What the original left open - arrays without elements, scalars, negative axes - NumPy's rules
# answer; what is wrong is refused, on your own line.

# %%
transpose = TransposePerm()
assert transpose(np.ones((3, 0), np.float32), (1, 0)).shape == (0, 3)
assert transpose(np.float32(7), ()).shape == ()
assert transpose(x, (-1, 0)).shape == (3, 2)


def refusal(fn, *args):
    """What is said of a call that is refused."""
    try:
        fn(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was not refused")


print(refusal(transpose, x, (0, 1, 2)))
print(refusal(transpose, x, (0, 0)))
print(refusal(ml.jit(transpose), x, np.array([1, 0])))

# %% [markdown]
# ## TensorAddV2: a kernel in CUDA C
#
# MindSpore's example for the GPU: two tensors of one shape, float32 or int32. Its rules are written
# with the validator in the spelling of that time; the newer one is there as well.


# %%
class TensorAddV2(PrimitiveWithInfer):
    """x1 + x2, without broadcasting."""

    @prim_attr_register
    def __init__(self):
        self.init_prim_io_names(inputs=["x1", "x2"], outputs=["y"])

    def infer_shape(self, x1, x2):
        validator.check_integer("input dims", len(x1), len(x2), Rel.EQ, self.name)
        for one, other in zip(x1, x2, strict=True):
            validator.check_integer("input_shape", one, other, Rel.EQ, self.name)
        return x1

    def infer_dtype(self, x1, x2):
        types = {"x1_dtype": x1, "x2_dtype": x2}
        validator.check_tensor_type_same(types, [ml.float32, ml.int32], self.name)
        return x1


@bprop_getters.register(TensorAddV2)
def get_bprop_tensor_add(self):
    return lambda x1, x2, out, dout: (dout, dout)


@kernel("TensorAddV2", "cpu", "ff->f", "ii->i")
def tensor_add_cpu(x1, x2, *, out):
    np.add(x1, x2, out=out)


# %% [markdown]
# One CUDA text serves both types: `T` is the type of the first input. The launch rule says, when
# the kernel is prepared, how many blocks there are and what comes after the arrays.

# %%
ADD = """
extern "C" __global__ void tensor_add(const T *x1, const T *x2, T *y, long long n) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x)
        y[i] = x1[i] + x2[i];
}
"""


def add_launch(node):
    n = node.outputs[0].size
    return Launch(grid=(-(-n // 256),), block=(256,), args=(np.int64(n),))


raw_kernel("TensorAddV2", "ff->f", "ii->i", entry="tensor_add", source=ADD, launch=add_launch)

# %% [markdown]
# `"cuda"` runs it on a GPU. `"cuda-sim"` runs the same text on any machine, thread by thread, and
# checks each access.

# %%
for device in ("cpu", "cuda-sim"):
    for dtype in (np.float32, np.int32):
        with ml.context(device_target=device):
            ones = ml.Tensor(np.ones((3, 4), dtype))
            result = TensorAddV2()(ones, ones)
        assert (result.tolist(), result.dtype) == ([[2] * 4] * 3, dtype)
print("result:", result.asnumpy(), sep="\n")

ones = np.ones((3, 4), np.float32)
(row,) = ml.explain(TensorAddV2(), ones, ones).rows
print(row.sizes)
assert row.sizes == ((48, 48), (48,), ())  # bytes of inputs, outputs, workspace

# %%
dx1, dx2 = GradOperation(get_all=True, sens_param=True)(TensorAddV2())(ones, ones, 3 * ones)
assert dx1.tolist() == dx2.tolist() == [[3.0] * 4] * 3

print(refusal(TensorAddV2(), ones, ones[:, :1]))
print(refusal(TensorAddV2(), ones, ones.astype(np.float64)))

# %% [markdown]
# ## LeakyRelu: the machine's features, and orders of pixels
#
# PPL.NN's example for x86 processors. Its shape and dtype are those of `x`, which one word says.
# The kernel is the same for each order in which images may lie, so it takes the one its input has.


# %%
class LeakyRelu(Primitive):
    """x where it is positive, alpha x elsewhere."""

    alpha: float = 0.01
    like = "x"


@bprop_getters.register(LeakyRelu)
def get_bprop_leaky_relu(self):
    return lambda x, out, dout: (ops.select(x > 0, dout, self.alpha * dout),)


class LeakyKernel(Kernel):
    @classmethod
    def select_format(cls, node):
        form = node.inputs[0].format
        return (form,), (form,)

    def prepare(self, node):
        self.alpha = np.float32(node.attrs["alpha"])

    def launch(self, inputs, workspace, outputs, stream):
        (x,) = inputs
        np.multiply(x, np.where(x > 0, np.float32(1), self.alpha), out=outputs[0])


# %% [markdown]
# The example dispatches by hand from the widest vectors down. Here each variant names the feature
# that it requires and its priority, and selection does the rest. (One body stands for three: NumPy
# has vectors of its own. In a library of yours, each would call another C function.)

# %%
ARM = platform.machine() in ("aarch64", "arm64")
FEATURES = ("neon", "asimd", "sve") if ARM else ("sse", "fma3", "avx512f")
FORMATS = ("NCHW", "NHWC", "NC16HW")
signatures = [
    KernelAttr().add_input_attr(ml.float32, form).add_output_attr(ml.float32, form)
    for form in FORMATS
]
for priority, feature in enumerate(FEATURES):
    kernel("LeakyRelu", "cpu", *signatures, requires=(feature,), priority=priority)(LeakyKernel)

x = np.array([-2.0, -0.5, 0.0, 3.0], np.float32)
for masked in ((), FEATURES[2:], FEATURES[1:]):
    with ml.context(without=masked):
        (row,) = ml.explain(LeakyRelu(), x).rows
        print("without", *masked or ["nothing"], "->", row.candidates[0])
        np.testing.assert_allclose(LeakyRelu()(x), np.where(x > 0, x, 0.01 * x), rtol=1e-6)
with ml.context(without=FEATURES):
    print(refusal(LeakyRelu(), x))

# %% [markdown]
# In a network, the images stay in the order that convolutions ask for. `Convert` nodes stand only
# where the order changes: where images come in, and where they leave.

# %%
rng = np.random.default_rng(0)
images = rng.normal(size=(1, 16, 6, 6)).astype(np.float32)
first, second = (rng.normal(size=(16, 16, 3, 3)).astype(np.float32) for _ in range(2))


def two_layers(x):
    return ops.conv2d(LeakyRelu()(ops.conv2d(x, first)), second)


expected = two_layers(images)  # op by op, in row-major order
for form in FORMATS:
    with ml.context(providers=("miniml",), formats=(form,)):
        names = [row.primitive.split("(")[0] for row in ml.explain(two_layers, images).rows]
        np.testing.assert_allclose(ml.jit(two_layers)(images), expected, rtol=1e-4, atol=1e-3)
    print(f"{form:7}", *names)

# %%
gradcheck(LeakyRelu(0.1), np.array([-2.0, 3.0], np.float32), order=2)
assert LeakyRelu()(ml.Tensor(2.0)).shape == ()  # a scalar stays one

# %% [markdown]
# ## Custom_AddN: a pass, and an operator known by bytes
#
# MindSpore Lite's example. A sum of sums becomes one node that adds any number of inputs, and this
# a *custom operator*: all that a graph knows of it is the name of its type, and byte strings.
#
# First the rule. Both sides are plain functions; the pattern says what is found, the replacement
# what stands in its place.


# %%
class AddN(Primitive):
    """The sum of tensors of one shape."""

    inputs = "*xs"
    infer_shape = rules.same


ml.register_rule(
    lambda x, y, z: ops.add(ops.add(x, y), z),
    AddN(),
    where=lambda x, y, z: x.shape == y.shape == z.shape,
    name="AddFusion",
)


# %% [markdown]
# Then a pass: a function from graph to graph. It runs after the built-in ones.


# %%
def to_custom(graph):
    """Each AddN as a Custom_AddN."""

    def changed(node):
        if not isinstance(node.primitive, AddN):
            return node
        given = {"input_num": str(len(node.inputs)).encode(), "op_kind": b"custom op"}
        return replace(node, primitive=ops.Custom("Custom_AddN", given))

    return replace(graph, nodes=tuple(map(changed, graph.nodes)))


ml.register_pass("CustomAddN", to_custom, "end")

# %% [markdown]
# The operator itself: what it gives, and its kernel. Both get the attributes that they name.


# %%
@infer_rule("Custom_AddN")
def custom_addn_rule(*xs, input_num):
    if len(xs) != int(input_num):
        raise ml.errors.ArityError(f"Custom_AddN has input_num {int(input_num)}; got {len(xs)}")
    return xs[0]


@kernel("Custom_AddN", "cpu", "f*->f")
def custom_addn(*xs, op_kind, out):
    assert op_kind == b"custom op"
    np.sum(xs, axis=0, out=out)


def total(a, b, c):
    return a + b + c


in0, in1, in2 = (np.zeros((1, 28, 28, 3), np.float32) for _ in range(3))
in0.flat[0], in1.flat[0] = 10, 20
graph = run_passes(ml.trace(total, in0, in1, in2))
print(graph)
out = ml.jit(total)(in0, in1, in2)
assert [type(node.primitive).__name__ for node in graph.nodes] == ["Custom_AddN"]
assert (float(out.asnumpy().flat[0]), out.size, out.dtype) == (30.0, 2352, ml.float32)

# %% [markdown]
# The number of inputs is checked when a call is made, and after each pass of yours the graph is
# verified. A pass can be switched off by its name.

# %%
print(refusal(ops.Custom("Custom_AddN", {"input_num": b"2", "op_kind": b""}), in0))
print(run_passes(ml.trace(total, in0, in1, in2), disabled=("AddFusion",)))
with ml.context(disabled_passes=("AddFusion",)):
    assert ml.jit(total)(in0, in1, in2).asnumpy().flat[0] == 30.0

# %% [markdown]
# ## Providers: kernels of several vendors
#
# Each kernel has a provider. For an operator of the library, a vendor's kernel is used only where
# the settings rank its provider. For an operator of your own, any provider will do. The order in
# which kernels were registered decides nothing.


# %%
@kernel("Add", "cpu", "ff->f", provider="BuiltInTest")
def vendor_add(x, y, *, out):
    np.add(x, y, out=out)
    out += 100  # so that one can see it ran


one = ml.Tensor([1.0])
assert ops.add(one, one).tolist() == [2.0]
with ml.context(providers=("BuiltInTest",)):
    assert ops.add(one, one).tolist() == [102.0]
    (row,) = ml.explain(ops.add, one, one).rows
for candidate in row.candidates[:2]:
    print(candidate)

# %%
kernel("Custom_AddN", "cpu", "f*->f", provider="Elsewhere")(custom_addn)
with ml.context(providers=("Elsewhere",)):
    (row,) = ml.explain(total, in0, in1, in2).rows
print(row)
assert (row.provider, row.candidates[1].entry.provider) == ("Elsewhere", "miniml")

# %% [markdown]
# ## Sizes that vary
#
# A class that overrides `resize` keeps one object for all sizes of a function that is compiled with
# `dynamic=`. What it acquires is released once, when nothing can call it any more.

# %%
events = []


class Running(Primitive):
    """The sums of x from the first row on."""

    like = "x"


@kernel("Running", "cpu", "f->f")
class RunningKernel(Kernel):
    def prepare(self, node):
        events.append(("prepare", node.inputs[0].shape))

    def resize(self, node):
        events.append(("resize", node.inputs[0].shape))

    def launch(self, inputs, workspace, outputs, stream):
        np.cumsum(inputs[0], axis=0, out=outputs[0])

    def release(self):
        events.append(("release",))


run = ml.jit(lambda x: Running()(x) / x.shape[0], dynamic={"x": (0,)})
for n in (2, 4, 4, 2):
    rows = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
    np.testing.assert_allclose(run(rows), rows.cumsum(axis=0) / n)
del run
print(*events, sep="\n")
assert [event[0] for event in events] == ["prepare", "resize", "resize", "release"]

# %% [markdown]
# ## Looking on: hooks and a profile
#
# A hook sees each node before or after it ran, in compiled programs too. A profile adds up time,
# calls and bytes for each node, for each layer and for each of your lines.

# %%
net = nn.Sequential(nn.Dense(64, 128), nn.ReLU(), nn.Dense(128, 10))
batch = np.ones((32, 64), np.float32)
seen = []
with ml.context(providers=("miniml",)):
    compiled = ml.jit(net)
    with ml.hooks(after=lambda call: seen.append((call.primitive.name, call.outputs[0].shape))):
        compiled(batch)
    with ml.profile() as profile:
        for _ in range(100):
            compiled(batch)
print(*seen, sep="\n")
assert ("MatMul", (32, 128)) in seen
print(profile)
assert all(row.calls == 100 for row in profile.rows)

# %% [markdown]
# ## A saved graph, and another reader
#
# A file says what is computed: primitives by name, custom operators by type and bytes. Reading it
# runs no code, and needs nothing of what was defined above.

# %%
folder = TemporaryDirectory()
here = Path(folder.name)
custom = ops.Custom("Custom_AddN", {"input_num": b"2", "op_kind": b"custom op"}, outputs=[in0])
ml.save_graph(lambda in0, in1: custom(in0, in1) * 2, here / "sum.json", in0, in1)
np.save(here / "in0.npy", in0)
np.save(here / "in1.npy", in1)
print(*(line for line in (here / "sum.json").read_text().splitlines() if '"in"' in line), sep="\n")

# %% [markdown]
# The other reader is a process of its own. Without a kernel, it says so; with a file that registers
# one, it runs.

# %%
KERNELS = """
import numpy as np
from miniml import kernel

@kernel("Custom_AddN", "cpu", "f*->f")
def add_n(*xs, out):
    np.sum(xs, axis=0, out=out)
"""
(here / "kernels.py").write_text(KERNELS)


def reader(*options):
    """What the command prints."""
    command = [sys.executable, "-m", "miniml", "run", str(here / "sum.json"), *options]
    inputs = [f"--input={name}={here / name}.npy" for name in ("in0", "in1")]
    done = subprocess.run([*command, *inputs], capture_output=True, text=True, timeout=60)
    return "\n".join((done.stdout + done.stderr).splitlines()[:2])


print(reader())
print(reader("--import", str(here / "kernels.py"), "--output", str(here / "y.npy")))
assert np.load(here / "y.npy").flat[0] == 60.0

# %% [markdown]
# ## Operators from ONNX
#
# A row of a table reads the nodes of one operator: the attributes of a node become a frozen struct,
# with types and defaults, and a function makes calls of `ops` from it. LeakyRelu has a row already.

# %%
from miniml.onnx.operators import find

LeakyReluParam = find("", "LeakyRelu", 16).parameters
print(LeakyReluParam(), LeakyReluParam(alpha=0.2))
assert LeakyReluParam() == LeakyReluParam(alpha=0.01)
print(refusal(setattr, LeakyReluParam(), "alpha", 0.3))


def model(type_, domain, **attributes):
    """A file with one node, x to y."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (4,)) for n in "xy")
    node = helper.make_node(type_, ["x"], ["y"], domain=domain, **attributes)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my.domain", 1)]
    onnx.save(
        helper.make_model(helper.make_graph([node], "net", [x], [y]), opset_imports=imports),
        here / "model.onnx",
    )
    return here / "model.onnx"


x = np.array([-2.0, -0.5, 0.0, 3.0], np.float32)
leaky = ml.onnx.load(model("LeakyRelu", "", alpha=0.5))
print(leaky)
assert leaky(x).tolist() == [-1.0, -0.25, 0.0, 3.0]

# %% [markdown]
# An operator of a domain of your own needs a row of its own. Its declaration is all there is to
# write: inputs by position, attributes by keyword, with types and defaults.


# %%
@ml.onnx.register_operator("my.domain", "Snake", (1, None))
def snake(x, *, alpha: float = 1.0):
    return x + ops.square(ops.sin(alpha * x)) / alpha


read = ml.onnx.load(model("Snake", "my.domain", alpha=0.5))
np.testing.assert_allclose(read(x), x + np.sin(0.5 * x) ** 2 / 0.5, rtol=1e-6)
print(refusal(ml.onnx.load, model("Snake", "my.domain", beta=0.5)))

# %% [markdown]
# ## In three lines
#
# For people in a hurry: a NumPy function, its gradient, and an expression for devices.


# %%
def square(x):
    return x * x


op = ops.custom(square, bprop=lambda x, out, dout: (2.0 * x * dout,), cuda="x * x")

print(op(x), GradOperation()(op)(x), sep="\n")
gradcheck(op, np.array([-2.0, 3.0]), order=2)
with ml.context(device_target="cuda-sim"):
    assert ml.jit(op)(ml.Tensor(x)).tolist() == (x * x).tolist()

# %%
folder.cleanup()
