"""Real signals at random moments, sent by another process, and the states of a training run."""

import gc
import hashlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from contextvars import copy_context

import numpy as np
from safetensors.numpy import load_file

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
    os.write(1, b".")
"""


class Sender:
    """A process that sends signals here; `during(fn, signals, within)` calls fn meanwhile.

    SIGINT raises KeyboardInterrupt, SIGTERM SystemExit, SIGUSR1 calls `on_save`.
    """

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.on_save = list
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", _SENDER], **pipes)
        handlers = {
            signal.SIGINT: self._raises(KeyboardInterrupt),
            signal.SIGTERM: self._raises(SystemExit),
            signal.SIGUSR1: self._saves,
        }
        self.before = {number: signal.signal(number, h) for number, h in handlers.items()}
        # A handler may run inside a finalizer, where Python reports what it raises and goes on.
        self.hook, sys.unraisablehook = sys.unraisablehook, list

    def _raises(self, kind):
        def handler(number, frame):
            self.arrived.append(number)
            raise kind

        return handler

    def _saves(self, number, frame):
        self.arrived.append(number)
        self.on_save()

    def during(self, fn, signals, within):
        """fn(), each signal arriving some seconds after the one before; gives what was raised."""
        requests = " ".join(f"{int(s)}:{self.random.uniform(0, within)}" for s in signals)
        raised = []
        self.arrived = []

        def sent():
            os.write(self.process.stdin.fileno(), requests.encode() + b"\n")
            fn()

        self.expected = len(signals)
        # What an interrupt leaves in force, such as settings, is not what is tested here.
        copy_context().run(self._guarded, sent, len(signals), raised)
        os.read(self.process.stdout.fileno(), 1)
        return raised

    def _guarded(self, fn, levels, raised):
        """fn(), until all signals have arrived, one `except` around another: each may be hit."""
        try:
            fn() if levels == 0 else self._guarded(fn, levels - 1, raised)
            if levels:
                self._wait()
        except (KeyboardInterrupt, SystemExit) as error:
            raised.append(error)

    def _wait(self):
        """Until all are sent, and have arrived. Nothing is read: an interrupt would lose it."""
        select.select([self.process.stdout], [], [])
        end = time.monotonic() + 0.02  # a handler that another interrupts at once notes nothing
        while len(self.arrived) < self.expected and time.monotonic() < end:
            # Python may forget a second signal until it is asked: this call asks.
            signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        for number, handler in self.before.items():
            signal.signal(number, handler)
        gc.collect()
        sys.unraisablehook = self.hook


class Training:
    """A net with all that has state, and the states that it may be in, one after another."""

    def __init__(self, kind):
        ml.manual_seed(3)
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.Dropout(0.4), nn.Flatten(), nn.Dense(16, 3)
        )
        self.opt = optim.Adam(self.net.trainable_params(), lr=0.01)
        rng = np.random.default_rng(0)
        self.x = ml.Tensor(rng.normal(size=(8, 1, 3, 3)).astype(np.float32))
        self.labels = ml.Tensor(np.arange(8) % 3)
        self.step = getattr(self, kind)
        self.train = ml.train_step(self.net, nn.CrossEntropyLoss(), self.opt)
        self.held = {
            "net": self.net,
            "opt": self.opt,
            "stream": ml.core.parameter.default_generator.state,
        }
        gradient = ml.grad.value_and_grad(
            lambda: nn.CrossEntropyLoss()(self.net(self.x), self.labels),
            argnums=None,
            weights=self.opt.params,
        )
        if kind == "update":
            _, self.gradients = gradient()

    def compiled(self):
        self.train(self.x, self.labels)

    # Called in contexts with jit=False, and with kernels in C.
    op_by_op = native = compiled

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


_STEPS = 40


def disturbed(sender, training, signals, attempts, within, path):
    """How often each outcome was seen: "before", "after", "raised"; anything else fails."""
    states = training.states(_STEPS)
    start = Snapshot(training.net, training.opt)
    at, seen, saved = 0, dict.fromkeys(("before", "after", "raised"), 0), []

    def save():
        ml.save_checkpoint(training.held, path)
        saved.append(digest(load_file(path)))

    sender.on_save = save
    for _ in range(attempts):
        raised = sender.during(training.step, signals, within)
        now = training.state()
        assert now in states[at : at + 2], "the step was torn"
        assert all(s in states[at : at + 2] for s in saved), "a torn state was saved"
        saved.clear()
        happened = now == states[at + 1]
        seen["after" if happened else "before"] += 1
        seen["raised"] += bool(raised)
        at += happened
        if at == _STEPS:
            start.restore()
            at = 0
    return seen
