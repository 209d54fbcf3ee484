"""The command line, run as a newcomer runs it."""

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from miniml import cli
from miniml.backends import compiled as kept
from miniml.cli import demo, doctor, show
from miniml.errors import MinimlError
from tests.frame.compilers import put

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def weights():
    return safetensors.numpy.load_file("digits.safetensors")


def test_the_demo_learns_and_says_so(folder, capsys):
    assert cli.main(["demo", "--epochs", "4"]) == 0
    message = capsys.readouterr()
    accuracy = float(re.search(r"([\d.]+)% accuracy: \d+ of 360", message.out)[1])
    assert accuracy > 90
    before, after = re.search(r"(\d+) operations, (\d+) after the passes", message.out).groups()
    assert int(after) < int(before)
    assert re.search(r"[\d.]+ ms per step", message.out)
    assert "its predictions are equal" in message.out
    assert re.search(r"^epoch 4/4 .* val_accuracy 0\.9", message.out, re.MULTILINE)
    assert (folder / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in folder.iterdir()) == ["digits.png", "digits.safetensors"]


@pytest.mark.deep
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_the_whole_demo_reaches_98_percent(folder, capsys, seed):
    assert cli.main(["demo", "--seed", seed]) == 0
    message = capsys.readouterr().out
    assert float(re.search(r"([\d.]+)% accuracy", message)[1]) >= 98.0


def test_equal_seeds_give_equal_weights_and_modes_agree_to_rounding(folder, capsys):
    found = {}
    for name, options in {
        "graph": [],
        "again": [],
        "eager": ["--mode", "eager"],
        "other": ["--seed", "1"],
    }.items():
        assert cli.main(["demo", "--epochs", "1", *options]) == 0
        found[name] = weights()
    for name, w in found["graph"].items():
        assert np.array_equal(w, found["again"][name])
        assert np.allclose(w, found["eager"][name], atol=1e-4)
    assert not np.array_equal(found["graph"]["0.weight"], found["other"]["0.weight"])


def test_an_absent_device_is_one_sentence_and_exit_code_2(folder):
    run = subprocess.run(
        [sys.executable, "-m", "miniml", "demo", "--device", "cuda"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.startswith("miniml: device 'cuda' is not available")
    assert run.stderr.count("\n") == 1
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "options",
    [
        ["--device", "abacus"],
        ["--epochs", "0"],
        ["--seed", "-1"],
        ["--mode", "fast"],
        ["--epochs", "x"],
    ],
)
def test_other_bad_options_are_refused_too(folder, capsys, options):
    try:
        code = cli.main(["demo", *options])
    except SystemExit as left:
        code = left.code
    assert code == 2
    assert capsys.readouterr().err
    assert not list(folder.iterdir())


def test_without_a_command_it_lists_them(capsys):
    assert cli.main([]) == 2
    shown = capsys.readouterr().err
    for command in ("demo", "doctor", "cache", "show", "summary", "onnx", "bench"):
        assert f"\n    {command} " in shown


def test_a_run_that_goes_wrong_stops_and_names_the_operation(folder, capsys):
    assert cli.main(["demo", "--epochs", "2", "--lr", "1e30"]) == 1
    message = capsys.readouterr().err
    assert re.search(r"training stopped: the loss is (nan|inf) in epoch 1, step \d+", message)
    assert re.search(
        r"it began where \w+ made (NaN|an infinity); its inputs were float32\[", message
    )
    assert not list(folder.iterdir())


def test_a_run_that_goes_wrong_in_a_shell_ends_in_a_sentence(folder):
    run = subprocess.run(
        [sys.executable, "-m", "miniml", "demo", "--epochs", "1", "--lr", "1e30"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert re.search(
        r"training stopped: .* it began where \w+ made .*smaller learning rate", run.stderr
    )
    assert not list(folder.iterdir())


def test_what_the_demo_lacks_is_one_sentence(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert cli.main(["demo", "--epochs", "1"]) == 2
    assert "pip install scikit-learn" in capsys.readouterr().err


def test_the_picture_takes_any_number_of_misread_digits(tmp_path):
    digits = demo.load_digits()
    right = np.eye(10)[digits.test_labels]
    for scores in (right, np.roll(right, 1, axis=1)):
        path = tmp_path / "x.png"
        demo.save_picture(path, [1.0, 0.5], [0.5], digits, scores)
        assert path.stat().st_size > 10_000


def test_doctor_lists_what_is_there(capsys):
    assert cli.main(["doctor"]) == 0
    message = capsys.readouterr().out
    for name in ("python", "miniml", "numpy", "BLAS", "C compiler", "NVRTC", "NVIDIA", "cupy"):
        assert name in message
    assert re.search(r"^ok +numpy +\d+\.\d+", message, re.MULTILINE)


def test_doctor_says_what_is_missing_and_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    compiler = replace(doctor.units.TOOLS, other=tuple)  # the wheel is not there
    monkeypatch.setattr(doctor.units, "TOOLS", compiler)
    monkeypatch.setattr(doctor.metadata, "version", missing)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["doctor"]) == 1
    message = capsys.readouterr().out
    assert re.search(r"!! +numpy +not installed\n +-> pip install numpy", message)
    assert re.search(
        r"-- +C compiler +there is none on the PATH \(gcc, clang, cc\)\n"
        r" +-> for faster CPU kernels, optional: .*pip install 'miniml\[compiler\]'",
        message,
    )
    assert "C kernels" not in message
    assert re.search(r"-- +NVRTC +not installed\n +-> .*pip install 'miniml\[sim\]'", message)
    assert re.search(r"-- +cupy +not installed\n +-> .*pip install 'miniml\[cuda13\]'", message)


def test_doctor_reports_the_compile_cache(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MINIML_CACHE", str(tmp_path))
    cli.main(["doctor"])
    message = capsys.readouterr().out
    for part in ("cc", "cuda-sim"):
        assert re.search(rf"ok +compile cache +{tmp_path}/{part}, 0 of 256 MB\n", message)
    (tmp_path / "cuda-sim").chmod(0o777)
    cli.main(["doctor"])
    message = capsys.readouterr().out
    assert re.search(
        r"-- +compile cache +.*/cuda-sim: others can write to it \(mode 777\)", message
    )
    assert "set MINIML_CACHE to a folder of your own" in message


def test_doctor_tries_the_c_compiler(capsys, monkeypatch, tmp_path):
    put(monkeypatch, doctor.units.TOOLS, tmp_path, "test $1 = --version && echo gcc of 1987")
    monkeypatch.setenv("MINIML_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor.units, "_loaded", {})
    assert cli.main(["doctor"]) == 0
    message = capsys.readouterr().out
    assert re.search(rf"ok +C compiler +{tmp_path}/compiler \(gcc of 1987\)\n", message)
    assert re.search(r"-- +C kernels +the C compiler .* ended with 1 and printed no", message)


def test_cache_lists_what_is_kept_and_removes_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "_temporary_folders", tuple)  # what others left there is no matter
    monkeypatch.setenv("MINIML_CACHE", str(tmp_path))
    assert "nothing is kept in" in printed(capsys, "cache")
    for name in ("unit-1.so", "unit-2.so"):
        doctor.CACHES[0].make(name, lambda scratch: bytes(1 << 20))
    os.utime(tmp_path / "cc" / "unit-2.so", (time.time() - 7300, time.time()))
    shown = f"{tmp_path}/cc  unit  2 files, 2.0 MB, last used 0 min to 2 h ago\n"
    assert shown in printed(capsys, "cache")
    assert f"removed {shown}" in printed(capsys, "cache", "--clear")
    assert list((tmp_path / "cc").iterdir()) == []


def missing(name):
    raise doctor.metadata.PackageNotFoundError(name)


@pytest.mark.parametrize("name", ["LeakyReLU", "leaky_relu", "leakyrelu", "LEAKY_RELU"])
def test_show_finds_a_primitive_by_any_spelling(capsys, name):
    assert cli.main(["show", name]) == 0
    message = capsys.readouterr().out
    assert message.startswith("LeakyReLU: x -> out; attributes: slope\n")
    assert re.search(
        r"definition\n    miniml/ops/elementwise\.py:\d+\n    class LeakyReLU", message
    )
    assert re.search(r"gradient\n    miniml/ops/elementwise\.py:\d+\n    def bprop\(self", message)
    assert re.search(
        r"cpu, from 'miniml': f->f d->d\n +miniml/backends/cpu/elementwise\.py:", message
    )
    assert re.search(r"tests\n    tests/opinfo/elementwise\.py:\d+\n    OpInfo\(", message)


def test_show_of_an_unknown_name_suggests_near_ones(capsys):
    assert cli.main(["show", "leaky_rely"]) == 2
    assert "no primitive is called 'leaky_rely'; near it: LeakyReLU" in capsys.readouterr().err
    with pytest.raises(MinimlError, match=r"there are \d+"):
        show.find("qqqqqqqq")


def test_summary_counts_the_weights(capsys):
    assert cli.main(["summary", "--input", "2,1,8,8"]) == 0
    message = capsys.readouterr().out
    assert re.search(r"7\.weight +\(512, 10\) +float32 +5,120", message)
    assert re.search(r"together +9,930", message)
    assert re.search(r"\n4 +MaxPool2d +float32\[2, 32, 4, 4\] +4.1 kB +4.1 k\n", message)
    assert re.search(r"\n +Sequential +float32\[2, 10\] +80 B +0\n", message)
    assert re.search(r"\ntogether +9,930 +39.7 kB", message)


MINE = """
from miniml import Primitive, kernel, nn

class OwnCube(Primitive):
    def infer_shape(self, x): return x
    def infer_dtype(self, x): return x

@kernel("OwnCube", "cpu", "f->f")
def own_cube_cpu(x, *, out):
    out[...] = x**3

class OwnNet(nn.Cell):
    def __init__(self, features=3):
        self.dense = nn.Dense(features, 2)
    def construct(self, x):
        return OwnCube()(self.dense(x))

own_net = OwnNet()

def no_net():
    raise ValueError("not today")
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder with a user's module, imported once: its primitive may be defined only once."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_module.py").write_text(MINE)
    (folder / "own_fault.py").write_text("x = 1\nimport nothing_such\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        yield folder
    for name in ("own_module", "own_fault"):
        sys.modules.pop(name, None)


def printed(capsys, *command):
    """What a command prints, without a failure."""
    assert cli.main(list(command)) == 0
    return capsys.readouterr().out


def refusal(capsys, *command):
    """The one sentence with which a command is refused."""
    assert cli.main(list(command)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    return shown.err


def test_show_and_summary_take_what_is_in_a_module_of_mine(own, capsys):
    text = printed(capsys, "show", "own_module:OwnCube")
    assert text.startswith("OwnCube: x -> out; attributes: none\n")
    assert "own_module.py:8\n        @kernel" in text
    for made in ("own_module:own_net", "own_module:OwnNet"):
        text = printed(capsys, "summary", made, "--input", "float32[5, 3]")
        assert re.search(r"dense\.weight +\(3, 2\)", text)
        assert re.search(r"\ndense +Dense +float32\[5, 2\] +40 B +8 +32 B +70\n", text)


def test_a_file_is_named_by_its_path(own, capsys, monkeypatch):
    (own / "elsewhere").mkdir(exist_ok=True)
    monkeypatch.chdir(own / "elsewhere")
    (own / "neighbour.py").write_text("from miniml import nn\nwidth = 7\n")
    (own / "by_path.py").write_text("from neighbour import nn, width\nnet = nn.Dense(2, width)\n")
    assert "(2, 7)" in printed(capsys, "summary", "../by_path.py:net")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["show", "own_module:OwnCub"], "own_module has no 'OwnCub'; near it: OwnCube"),
        (["show", "own_module:OwnNe"], "near it: OwnNet, own_net"),
        (["show", "own_modul:OwnCube"], "there is no module 'own_modul' here; near it: own_module"),
        (["show", "own_modul.py:OwnCube"], "no file 'own_modul.py'; near it: own_module.py"),
        (["show", "own_fault:x"], r"raised ModuleNotFoundError: .*nothing_such.*own_fault.py:2\)"),
        (
            ["show", "own_module:own_net"],
            "is a OwnNet, not a primitive; .* summary shows a network",
        ),
        (["summary", "own_module:OwnCube"], "of type OwnCube; give a Cell"),
        (["summary", "own_module:no_net"], r"no_net\(\) raised ValueError: not today"),
        (["summary", "own_module:own_net", "--input", "5,4"], "Dense"),
        (
            ["summary", "own_module:own_net", "--input", "five"],
            "'five' is not a type; write float32",
        ),
        (["summary", ":net"], "':net' names nothing; give module:name or path/to/file.py:name"),
    ],
)
def test_what_cannot_be_found_or_shown_is_one_sentence(own, capsys, command, sentence):
    assert re.search(sentence, refusal(capsys, *command))


@pytest.mark.parametrize(
    ("command", "shown"),
    [("--version", r"^miniml \d+\.\d+"), ("bench --help", "Run the benchmarks")],
)
def test_what_only_tells_ends_well(capsys, command, shown):
    with pytest.raises(SystemExit) as end:
        cli.main(command.split())
    assert end.value.code == 0
    assert re.search(shown, capsys.readouterr().out)


def test_a_reader_who_stops_early_sees_no_traceback():
    command = [sys.executable, "-m", "miniml", "show", "Conv2D"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 0


def test_bench_outside_a_checkout_is_one_sentence(folder, monkeypatch, capsys):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert cli.main(["bench"]) == 2
    assert "run this, or `make bench`, in the top folder" in capsys.readouterr().err
