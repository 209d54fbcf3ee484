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
# # 12. Without Python
#
# At the end you will have
#
# - a network that was trained here, as one C file, compiled and called,
# - the same network with products of int8, in a quarter of the bytes,
# - a C program that learns by itself, whose weights come back to Python.
#
# The page on it is `docs/export.md`. This notebook needs a C compiler, `cc`.

# %%
import ctypes
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import miniml as ml
from miniml import nn, optim
from miniml.data import DataLoader, load_digits
from miniml.train import Model

temporary = TemporaryDirectory()
folder = Path(temporary.name)

# %% [markdown]
# ## A trained network
#
# Handwritten digits of 8 x 8 pixels, and a small network of convolutions.

# %%
digits = load_digits()
ml.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Dense(32 * 4 * 4, 10),
)
model = Model(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), lr=3e-3))
model.fit(DataLoader(digits.images, digits.labels, size=32, seed=0), epochs=6, show=False)
net.set_train(False)
scores = np.concatenate([net(x).asnumpy() for x in np.split(digits.test_images, 4)])
accuracy = np.mean(scores.argmax(1) == digits.test_labels)
assert accuracy > 0.95
f"{100 * accuracy:.0f} % of the test digits are told right"

# %% [markdown]
# ## As one C file
#
# The shapes are those of the example, a single image. The header says what there is to call, and
# how much memory the caller brings.

# %%
image = digits.test_images[:1]
ml.export_c(net, folder / "net.c", image)
header = (folder / "net.h").read_text()
assert "void net_run(void *arena, const float *in0, float *out0);" in header
print(header)

# %% [markdown]
# Of the C file, the function that calls the others:

# %%
text = (folder / "net.c").read_text()
print(text[text.index("void net_run(") :])


# %% [markdown]
# It is C11, so that any gcc or clang takes it. Here it becomes a library, and Python only calls it.


# %%
def library(name):
    """The C file of that name, compiled, and memory for its arena at a multiple of 64."""
    made = folder / f"{name}.so"
    flags = ["-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared"]
    subprocess.run(["cc", *flags, folder / f"{name}.c", "-o", made, "-lm"], check=True)
    header = (folder / f"{name}.h").read_text()
    size = int(re.search(r"ARENA_BYTES (\d+)", header)[1])
    block = np.zeros(size + 64, np.uint8)
    return ctypes.CDLL(str(made)), block[-block.ctypes.data % 64 :]


def addresses(*arrays):
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


def told(name, images):
    """The scores of images, one after the other, by the function `<name>_run`."""
    code, arena = library(name)
    out = np.zeros((len(images), 10), np.float32)
    for i in range(len(images)):
        code[f"{name}_run"](*addresses(arena, images[i : i + 1], out[i]))
    return out


in_c = told("net", digits.test_images)
np.testing.assert_allclose(in_c, scores, 1e-3, 1e-3)
f"The scores differ by {np.abs(in_c - scores).max():.0e} at most, of {np.abs(scores).max():.0f}."

# %% [markdown]
# ## In int8
#
# Weights become int8 with a scale for each channel. What activations need is seen on some images;
# the file says how far its outputs are from float's on these.

# %%
calls = [digits.images[i : i + 1] for i in range(100)]
ml.export_c(net, folder / "small.c", image, name="small", quantize="int8", calibration=calls)
comment = (folder / "small.c").read_text().partition("*/")[0]
assert "products by weights" in " ".join(comment.split())
print(comment)

# %%
small = told("small", digits.test_images)
small_accuracy = np.mean(small.argmax(1) == digits.test_labels)
assert abs(small_accuracy - accuracy) < 0.02
agree = np.mean(small.argmax(1) == scores.argmax(1))
f"int8 tells {100 * agree:.0f} % of the test digits as float does"

# %% [markdown]
# ## A program that learns
#
# A training step is a program as well: gradients, Adam and all. The state that lasts is a struct of
# the caller's; `learner_init` gives it the weights that the network has now, here new ones. This
# main program makes five rounds through the digits in a file, and writes its state as safetensors.

# %%
ml.manual_seed(1)
fresh = nn.Sequential(nn.Flatten(), nn.Dense(64, 64), nn.ReLU(), nn.Dense(64, 10))
step = ml.train_step(fresh, nn.CrossEntropyLoss(), optim.Adam(fresh.trainable_params(), lr=3e-3))
count, batch = len(digits.images), 32
ml.export_c(step, folder / "learner.c", digits.images[:32], digits.labels[:32], name="learner")
digits.images.tofile(folder / "images.bin")
digits.labels.tofile(folder / "labels.bin")
program = """
#include <stdio.h>
#include "learner.h"
#define COUNT %d
static learner_state state;
static _Alignas(64) char arena[LEARNER_ARENA_BYTES];
static float images[COUNT][64];
static int64_t labels[COUNT];
static char file[LEARNER_FILE_BYTES];

static int all(void *to, size_t size, const char *name, int write) {
  FILE *f = fopen(name, write ? "wb" : "rb");
  if (!f) return 0;
  const size_t done = write ? fwrite(to, 1, size, f) : fread(to, 1, size, f);
  return fclose(f) == 0 && done == size;
}

int main(void) {
  if (!all(images, sizeof images, "images.bin", 0)) return 1;
  if (!all(labels, sizeof labels, "labels.bin", 0)) return 1;
  learner_init(&state);
  for (int round = 1; round <= 5; ++round) {
    float sum = 0;
    int steps = 0;
    for (int i = 0; i + 32 <= COUNT; i += 32, ++steps)
      sum += learner_step(&state, arena, images[i], labels + i);
    printf("round %%d: loss %%.3f\\n", round, sum / (float)steps);
  }
  learner_save(&state, file);
  return !all(file, sizeof file, "learnt.safetensors", 1);
}
"""
(folder / "main.c").write_text(program % count)
flags = ["-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra"]
command = ["cc", *flags, "main.c", "learner.c", "-o", "learner", "-lm"]
subprocess.run(command, cwd=folder, check=True)
done = subprocess.run(["./learner"], cwd=folder, check=True, capture_output=True, text=True)
losses = [float(line.split()[-1]) for line in done.stdout.splitlines()]
assert losses[-1] < losses[0] / 5
print(done.stdout)

# %% [markdown]
# The steps are those that Python makes, so that its losses on the same batches are the same.

# %%
starts = range(0, count - batch + 1, batch)
in_python = [
    float(step(digits.images[i : i + batch], digits.labels[i : i + batch])) for i in starts
]
np.testing.assert_allclose(np.mean(in_python), losses[0], 0.01)
f"round 1 in Python: loss {np.mean(in_python):.3f}"

# %% [markdown]
# And what was learnt in C comes back, as a checkpoint of the network.

# %%
ml.load_checkpoint(folder / "learnt.safetensors", fresh, strict=False)
fresh.set_train(False)
right = np.mean(fresh(digits.test_images).asnumpy().argmax(1) == digits.test_labels)
assert right > 0.9
temporary.cleanup()
f"{100 * right:.0f} % of the test digits, by weights that C made"

# %% [markdown]
# A page in which the network answers what one draws, and learns what one corrects, is one command
# more: `python -m miniml export digits.safetensors --web page ...`, in `docs/export.md`.
