"""Ranks that are processes under MPI: the collectives, and how they end when one of them fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from .launch import ROOT, needs_mpi, ranks

pytestmark = needs_mpi

COLLECTIVES = """
    import numpy as np
    import miniml as ml
    from miniml import distributed as d, ops
    from miniml.grad import grad, vjp

    ml.set_context(providers=("miniml",))  # no C is compiled
    group = d.init()
    me, n = d.rank(), d.size()
    assert (me, n) == (group.rank, group.size) and d.init() is group and n == 3
    every = np.random.default_rng(0).normal(size=(n, 6, 2))
    large = np.random.default_rng(1).normal(size=(n, 5000)).astype(np.float32)
    x = every[me]

    def equal(found, expected):
        assert np.array_equal(np.asarray(found), expected), (me, found, expected)

    equal(d.all_reduce(x), every[0] + every[1] + every[2])
    equal(d.all_reduce(large[me]), large[0] + large[1] + large[2])
    equal(d.all_reduce(x.astype("f2"), "max"), every.astype("f2").max(0))
    equal(d.all_reduce(ml.Tensor([1 + me], dtype=ml.bfloat16)).asnumpy().astype("f4"), [6.0])
    equal(d.all_gather(x), every.reshape(18, 2))
    equal(d.reduce_scatter(x), (every[0] + every[1] + every[2])[2 * me : 2 * me + 2])
    equal(d.broadcast(x, 2), every[2])
    equal(d.all_to_all(x), every[:, 2 * me : 2 * me + 2].reshape(6, 2))
    equal(d.send_recv(x, [(0, 1), (1, 2)]), every[me - 1] if me else 0 * x)
    equal(d.all_reduce(np.zeros(0)), np.zeros(0))
    equal(d.all_gather(x > 0), (every > 0).reshape(18, 2))

    def loss(x):
        return ops.sum(ops.scan(lambda c, row: (c + d.all_reduce(c * row), row), x[0], x)[1])

    def total(every):  # the same, of all ranks, in one process
        c = [rows[0] for rows in every]
        for i in range(6):
            s = sum(a * rows[i] for a, rows in zip(c, every))
            c = [a + s for a in c]
        return ops.sum(sum(c))

    alone = grad(lambda x: total([x[0], x[1], x[2]]))(every)[me]
    found = ml.jit(grad(loss))(x)
    assert np.allclose(found, alone, rtol=1e-12), (found, alone)
    part = group.split(me // 2)
    equal(d.all_gather([me], group=part), [[0, 1], [0, 1], [2]][me])
    print("whole", flush=True)
"""


def test_collectives(tmp_path):
    ended = ranks(3, COLLECTIVES, tmp_path)
    assert ended.status == 0, ended.err
    assert ended.out.count("whole") == 3  # ranks may write into one line


CORES = """
    import os
    import threadpoolctl
    os.environ.pop("OMP_NUM_THREADS", None)
    before = sorted(os.sched_getaffinity(0))
    from miniml import distributed as d
    from miniml.backends.kernel import cpu_threads
    import numpy as np
    group = d.init()
    own = sorted(os.sched_getaffinity(0))
    part = len(before) // group.size
    assert len(own) == cpu_threads() == (part or len(before)), (before, own)
    blas = [i["num_threads"] for i in threadpoolctl.threadpool_info() if i["user_api"] == "blas"]
    assert set(blas) == {max(part, 1)}, blas
    every = d.all_gather(np.array(own))
    assert not part or len(set(every.tolist())) == part * group.size
    print("whole", flush=True)
"""


def test_ranks_of_a_host_have_cores_of_their_own(tmp_path):
    ended = ranks(2, CORES, tmp_path)
    assert ended.status == 0, ended.err
    assert ended.out.count("whole") == 2


FAILS = """
    import sys, time
    import numpy as np
    from miniml import distributed as d

    group = d.init(timeout=3.0)
    how = sys.argv[1]
    d.all_reduce(np.ones(3))
    if group.rank == 1:
        if how == "raises":
            raise ValueError("bad luck")
        if how == "ends":
            sys.exit()
        if how == "hangs":
            time.sleep(300)
        if how == "dies":
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "differs":
            d.all_gather(np.ones(3))
    for _ in range(3):
        d.all_reduce(np.ones(3))
"""
SAYS = {
    "raises": "rank 1: raised ValueError: bad luck",
    "ends": "rank 1: has ended",
    "hangs": "rank 0 of 'world' waited 3 s at all_reduce sum of float64[3] for rank 1",
    "differs": "rank 1: all_gather of float64[3]",
}


@pytest.mark.parametrize("how", ["differs", *(pytest.param(how, marks=pytest.mark.deep) for how in
                                              ("raises", "ends", "hangs"))])  # fmt: skip
def test_every_rank_ends_with_a_sentence(how, tmp_path):
    ended = ranks(2, FAILS, tmp_path, how)
    assert ended.status != 0
    assert SAYS[how] in ended.err, ended.err


@pytest.mark.deep
@pytest.mark.parametrize("how", SAYS)
def test_without_mpi4py_as_the_main_program_too(how, tmp_path):
    ended = ranks(2, FAILS, tmp_path, how, launcher=())
    assert ended.status != 0
    assert SAYS[how] in ended.err, ended.err


@pytest.mark.deep
def test_a_rank_that_is_killed_ends_the_others(tmp_path):
    ended = ranks(2, FAILS, tmp_path, "dies")
    assert ended.status == 9, ended.err


def test_the_program_of_the_guide_trains_on_two_ranks_as_on_one(tmp_path, monkeypatch):
    guide = (ROOT / "docs" / "distributed.md").read_text("utf-8")
    (program,) = re.findall(
        r"```python\n(import numpy as np\n.*?tensors\"\)\n)```", guide, re.DOTALL
    )
    ended = ranks(2, program, tmp_path)
    assert ended.status == 0, ended.err
    assert ended.out.count("epoch 1: loss") == 1
    together = load_file(tmp_path / "run.safetensors")
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    alone = load_file("run.safetensors")
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value, rtol=1e-3, atol=1e-5)


def test_the_launcher_for_tasks_starts_ranks(tmp_path, capfd, monkeypatch):
    """What Ray and Dask run as tasks on hosts, processes of this machine run here."""
    guide = (ROOT / "docs" / "distributed.md").read_text("utf-8")
    (text,) = re.findall(r"```python\n(import subprocess\n\n\ndef launch.*?)```", guide, re.DOTALL)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("MPIEXEC_TIMEOUT", "100")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    scope, tasks = {}, []
    exec(text, scope)
    program = tmp_path / "program.py"
    program.write_text("from miniml import distributed as d\nprint(d.all_reduce(1.0).item())\n")
    start = lambda i, words: tasks.append(subprocess.Popen(words))  # noqa: E731
    status = scope["launch"](["one", "two"], start, sys.executable, "-m", "mpi4py", str(program))
    assert (status, [task.wait(60) for task in tasks]) == (0, [0, 0])
    assert capfd.readouterr().out.count("2.0") == 2


GRADIENTS = """
    import numpy as np
    import miniml as ml
    from miniml import distributed as d, ops
    from miniml.grad import stop_gradient
    from miniml.testing import gradcheck

    group = d.init()
    x = np.array([0.5, 1.5]) + group.rank
    right = gradcheck(lambda x: ops.tanh(d.all_reduce(x)) * x, x, group=group, order=2)
    assert right.ok and right.judged >= 8
    wrong = gradcheck(lambda x: x + stop_gradient(d.all_reduce(x) - x), x, group=group,
                      raise_error=False)
    assert [f.argument for f in wrong.findings if f.index == (0,)] == [
        "argument 0 on rank 0", "argument 0 on rank 1"], wrong
    print("whole", flush=True)
"""


@pytest.mark.deep
def test_gradients_are_checked_across_processes(tmp_path):
    ended = ranks(2, GRADIENTS, tmp_path)
    assert ended.status == 0, ended.err
    assert ended.out.count("whole") == 2
