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
# # 11. Out to ONNX, and back
#
# At the end you will have
#
# - a network that was trained here, in a file with which onnxruntime computes, for any batch,
# - the same network quantized there to 8 bits, and read back,
# - a model that came with another package, trained further here.
#
# The page on ONNX is `docs/onnx.md`.

# %%
import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from sklearn.datasets import load_iris

import miniml as ml
from miniml import nn, ops, optim
from miniml.data import DataLoader, load_digits
from miniml.train import Model

temporary = TemporaryDirectory()
folder = Path(temporary.name)

# %% [markdown]
# ## A network that is worth sending
#
# Handwritten digits of 8 x 8 pixels, and a small network of convolutions, trained for some seconds.
# `set_train(False)`, as what leaves is to answer, not to learn.

# %%
digits = load_digits()
ml.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Dropout(0.25),
    nn.Dense(32 * 4 * 4, 10),
)
model = Model(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=3e-3))
model.fit(DataLoader(digits.images, digits.labels, size=64, seed=0), epochs=6, show=False)
net.set_train(False)
images, labels = digits.test_images, digits.test_labels


def right(scores):
    return float((np.asarray(scores).argmax(1) == labels).mean())


here = net(images).asnumpy()
print(f"{right(here):.1%} of {len(labels)} held-out digits")
assert right(here) > 0.95

# %% [markdown]
# ## Out
#
# `dynamic` names the extents that stay open: the network is written at several sizes, what differs
# follows the batch. Parameters keep their names, and nodes say which layer they are.

# %%
path = folder / "digits.onnx"
ml.onnx.save(net, path, images[:2], dynamic={"x": {0: "batch"}}, names={"out": "scores"})
onnx.checker.check_model(path, full_check=True)
file = onnx.load(path)
for node in file.graph.node:
    print(f"{node.op_type:20} {node.doc_string}")
print([tensor.name for tensor in file.graph.initializer])

# %% [markdown]
# onnxruntime computes the same, for all test digits and for one.

# %%
session = onnxruntime.InferenceSession(path)
(there,) = session.run(["scores"], {"x": images})
(single,) = session.run(["scores"], {"x": images[:1]})
print("largest difference", np.abs(there - here).max(), "of scores up to", np.abs(here).max())
assert np.abs(there - here).max() < 1e-4
assert np.abs(single - here[:1]).max() < 1e-4

# %% [markdown]
# ## Quantized there
#
# onnxruntime's quantizer looks at some training digits to find the range of each value, then writes
# weights and values as integers of 8 bits.


# %%
class Samples(CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"x": digits.images[i : i + 32]} for i in range(0, 320, 32)])

    def get_next(self):
        return next(self.left, None)


logging.disable(logging.WARNING)  # it advises to prepare the file first
quantized = {}
for form in ("QDQ", "QOperator"):
    quantized[form] = folder / f"{form}.onnx"
    quantize_static(
        path, quantized[form], Samples(), QuantFormat[form], weight_type=QuantType.QInt8
    )
    session = onnxruntime.InferenceSession(quantized[form])
    scores = session.run(None, {"x": images})[0]
    print(f"{form:9} {quantized[form].stat().st_size:6,} bytes, {right(scores):.1%} right")
print(f"{'float':9} {path.stat().st_size:6,} bytes, {right(here):.1%} right")

# %% [markdown]
# ## And back
#
# A graph is for fixed extents, so `dims` says what the batch is. `QOperator` files have operators
# on integers, `QLinearConv` and the like; `QDQ` files the same operators as before, between pairs
# that round. Both say here what they say there, but for a level where a number lies between two.

# %%
for form, name in quantized.items():
    graph = ml.onnx.load(name, dims={"batch": len(images)}, train_constants=False)
    back = graph(images).asnumpy()
    scores = onnxruntime.InferenceSession(name).run(None, {"x": images})[0]
    types = sorted({node.op_type for node in onnx.load(name).graph.node})
    print(f"{form}: {right(back):.1%} right here, {right(scores):.1%} there; {', '.join(types)}")
    assert (back.argmax(1) == scores.argmax(1)).mean() > 0.99

# %% [markdown]
# The float file comes back as what it was: Parameters under their names, ready to be trained.

# %%
again = ml.onnx.load(path, dims={"batch": len(images)})
print([p.name for p in again.trainable_params()])
assert np.abs(again(images).asnumpy() - here).max() < 1e-4

# %% [markdown]
# ## A model from a wheel, trained further
#
# The package onnxruntime ships a small classifier of irises, three logistic regressions that
# scikit-learn fitted once. Its weights are attributes of one node: `train_constants=True` makes
# Parameters of them. The last node makes a map for each flower; here it leaves the columns.

# %%
wheel = Path(onnxruntime.__file__).parent / "datasets" / "logreg_iris.onnx"
print(ml.onnx.coverage(wheel))
flowers, kinds = load_iris(return_X_y=True)
flowers = flowers.astype(np.float32)
shapes = {"float_input": flowers.shape}
graph = ml.onnx.load(wheel, shapes=shapes, train_constants=True)
print(graph)
answers, _ = graph(flowers)
print(f"as it came: {(answers.asnumpy() == kinds).mean():.1%} right")

# %% [markdown]
# A step like any other: the loss takes the probabilities, the gradients pass through the file's
# nodes to its weights.


# %%
class Loss(nn.Cell):
    def construct(self, outputs, kinds):
        _, probabilities = outputs
        likely = ops.take_along_axis(probabilities, ops.expand_dims(kinds, 1), 1)
        return -ops.mean(ops.log(likely))


step = ml.train_step(graph, Loss(), optim.Adam(graph.trainable_params(), lr=0.05))
losses = [float(step(flowers, kinds)) for _ in range(300)]
answers, _ = graph(flowers)
print(
    f"loss {losses[0]:.3f}, then {losses[-1]:.3f}; {(answers.asnumpy() == kinds).mean():.1%} right"
)
assert (answers.asnumpy() == kinds).mean() > 0.96

# %% [markdown]
# And out again, to whoever runs it next.

# %%
ml.onnx.save(graph, folder / "irises.onnx")
session = onnxruntime.InferenceSession(folder / "irises.onnx")
found, _ = session.run(None, {"float_input": flowers})
print("the same answers there:", bool((found == answers.asnumpy()).all()))
temporary.cleanup()
