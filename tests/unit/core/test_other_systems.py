"""miniml where what POSIX alone has is missing: it is imported, and computes with NumPy."""

import subprocess
import sys
import textwrap

# What Windows lacks of the modules and names that Linux and macOS have.
HIDDEN = """
    import os, shutil, signal, sys
    shutil._use_fd_functions = False  # as where folders have no descriptors
    for module in ("fcntl", "resource", "pwd", "grp", "termios", "pty"):
        sys.modules[module] = None
    for name in ("fork register_at_fork geteuid getuid killpg sched_getaffinity fchmod O_NOFOLLOW "
                 "O_NONBLOCK O_DIRECTORY O_CLOEXEC").split():
        if hasattr(os, name):
            delattr(os, name)
    for name in "SIGKILL SIGALRM siginterrupt pthread_sigmask".split():
        delattr(signal, name)
    found = open
    def no_proc(file, *args, **kwargs):
        if str(file).startswith("/proc") and "maps" not in str(file):  # threadpoolctl's
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return found(file, *args, **kwargs)
    import builtins, io
    builtins.open = io.open = no_proc
"""
TRAINS = """
    import numpy as np
    import miniml as ml
    from miniml import nn, ops, optim

    x, y = np.ones((4, 3), np.float32), np.arange(4) % 2
    assert float(ops.sum(ml.Tensor(x) * 2)) == 24
    net = nn.Sequential(nn.Dense(3, 8), nn.Tanh(), nn.Dense(8, 2))
    step = ml.train_step(net, nn.CrossEntropyLoss(), optim.Adam(net.trainable_params(), 0.01))
    losses = [float(step(x, y)) for _ in range(5)]
    assert losses[-1] < losses[0]
    for number in range(2):
        ml.save_checkpoint(net, "net.safetensors")
    ml.load_checkpoint("net.safetensors", net)
    print(sorted(os.listdir()), ml.grad.grad(lambda x: x * x)(3.0))
"""

CHECKS = """
    from miniml import data, train
    from miniml.testing import gradcheck, opcheck

    def learner():
        ml.manual_seed(0)
        net = nn.Sequential(nn.Dense(3, 8), nn.Dropout(0.5), nn.Dense(8, 2))
        return train.Model(net, nn.CrossEntropyLoss(), optim.SGD(net.trainable_params(), lr=0.1))

    class Stops(train.Callback):
        def on_epoch(self, run, row):
            if row["epoch"] == 2:
                raise OSError("a full disk")

    x = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)

    def fit(model, **more):
        rows = data.DataLoader(x, y, size=8, seed=0, prefetch=2)
        model.fit(rows, epochs=4, show=False, **more)
        return model

    whole = fit(learner())
    try:
        fit(learner(), callbacks=[Stops()], resume="run.safetensors")
    except OSError:
        print("stopped")
    again = fit(learner(), resume="run.safetensors")
    for a, b in zip(whole.net.get_parameters(), again.net.get_parameters()):
        assert np.array_equal(a.asnumpy(), b.asnumpy())
    assert gradcheck(lambda x: ops.sum(ops.sin(x) * x), np.array([0.5, 1.0])).ok
    wrong = lambda x: ops.sum(x * ops.stop_gradient(x))
    assert not gradcheck(wrong, np.array([0.5, 1.0]), raise_error=False).ok
    assert opcheck(ops.Tanh(), budget=2).ok
    print("checked")
"""


def ran(folder, *texts):
    text = "\n".join(map(textwrap.dedent, texts))
    command = [sys.executable, "-W", "error", "-c", text]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)


def test_it_trains_and_saves_without_posix(tmp_path):
    no_compiler = """
    os.environ.update(PATH=os.devnull, CC="")
    sys.modules["ziglang"] = None
    """
    done = ran(tmp_path, HIDDEN, no_compiler, TRAINS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("['net.safetensors'] Tensor(6.")


def test_native_code_is_compiled_without_process_groups_and_users(tmp_path):
    done = ran(tmp_path, HIDDEN, TRAINS)
    assert (done.returncode, done.stderr) == (0, "")


def test_runs_resume_and_checkers_judge_without_posix(tmp_path):
    done = ran(tmp_path, HIDDEN, TRAINS, CHECKS)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("stopped\nchecked\n")
