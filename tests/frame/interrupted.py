"""Real signals at random moments, sent by another process, and the states of a training run."""

import hashlib
import os
import random
import signal
import subprocess
import sys

import numpy as np

import miniml as ml
from miniml import nn, optim
from miniml.train import Snapshot

_SENDER = """
import os, sys, time
for line in sys.stdin:
    for request in line.split():
        number, wait = request.split(":")
        end = time.perf_counter() + float(wait)
        while time.perf_counter() < end:
            pass
        os.kill(os.getppid(), int(number))
"""


class Sender:
    """A process that sends signals here; `during(fn, signals, within)` calls fn meanwhile.

    SIGINT raises KeyboardInterrupt, SIGTERM SystemExit, SIGUSR1 calls `on_save`.
    """

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.on_save = list
        self.expected = 0
        self.process = subprocess.Popen([sys.executable, "-c", _SENDER], stdin=subprocess.PIPE)
        handlers = {
            signal.SIGINT: self._raises(KeyboardInterrupt),
            signal.SIGTERM: self._raises(SystemExit),
            signal.SIGUSR1: self._saves,
        }
        self.before = {number: signal.signal(number, h) for number, h in handlers.items()}

    def _raises(self, kind):
        def handler(number, frame):
            self.expected -= 1
            raise kind

        return handler

    def _saves(self, number, frame):
        self.expected -= 1
        self.on_save()

    def during(self, fn, signals, within):
        """fn(), each signal arriving some seconds after the one before; gives what was raised."""
        self.expected = len(signals)
        requests = " ".join(f"{int(s)}:{self.random.uniform(0, within)}" for s in signals)
        raised = []

        def sent():
            os.write(self.process.stdin.fileno(), requests.encode() + b"\n")
            fn()

        self._guarded(sent, len(signals), raised)
        return raised

    def _guarded(self, fn, levels, raised):
        """fn(), until all signals have arrived, one `except` around another: each may be hit."""
        try:
            fn() if levels == 0 else self._guarded(fn, levels - 1, raised)
            while levels and self.expected > 0:
                pass
        except (KeyboardInterrupt, SystemExit) as error:
            raised.append(error)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        for number, handler in self.before.items():
            signal.signal(number, handler)


class Training:
    """A net with all that has state, and the states that it may be in, one after another."""

    def __init__(self, kind, device="cpu"):
        ml.manual_seed(3)
        with ml.context(device_target=device):
            self.net = nn.Sequential(
                nn.Conv2d(1, 4, 2),
                nn.BatchNorm2d(4),
                nn.Dropout(0.4),
                nn.Flatten(),
                nn.Dense(16, 3),
            )
            self.opt = optim.Adam(self.net.trainable_params(), lr=0.01)
            rng = np.random.default_rng(0)
            self.x = ml.Tensor(rng.normal(size=(8, 1, 3, 3)).astype(np.float32))
            self.labels = ml.Tensor(np.arange(8) % 3)
        self.step = getattr(self, kind)
        self.train = ml.train_step(self.net, nn.CrossEntropyLoss(), self.opt)
        self.held = {"net": self.net, "opt": self.opt, "stream": ml.random.default_generator.state}
        gradient = ml.grad.value_and_grad(
            lambda: nn.CrossEntropyLoss()(self.net(self.x), self.labels),
            argnums=None,
            weights=self.opt.params,
        )
        if kind == "update":
            _, self.gradients = gradient()

    def compiled(self):
        self.train(self.x, self.labels)

    op_by_op = compiled  # called in a context with jit=False

    def update(self):
        self.opt.update(self.gradients)

    def state(self):
        return digest(self.parameters())

    def parameters(self):
        found = {"stream": self.held["stream"]}
        for name in ("net", "opt"):
            found.update((f"{name}.{k}", p) for k, p in self.held[name].parameters_dict().items())
        return {name: p.asnumpy() for name, p in found.items()}

    def states(self, count):
        """The states before and after each of so many steps that nobody disturbs."""
        start = Snapshot(self.net, self.opt)
        states = [self.state()]
        for _ in range(count):
            self.step()
            states.append(self.state())
        start.restore()
        return states


def digest(arrays):
    """A hash of arrays by name."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode() + arrays[name].tobytes())
    return found.hexdigest()
