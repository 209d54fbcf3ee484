"""ops.custom: a primitive made of a NumPy function, a C function, or a text in CUDA C."""

import ctypes
import importlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import (
    BpropNotFoundError,
    DeclarationError,
    DTypeError,
    DuplicateError,
    KernelNotFoundError,
    MinimlError,
    ShapeError,
)
from miniml.grad import grad
from miniml.testing import gradcheck, opcheck

X = np.array([1.0, -2.0, 3.0], np.float32)
CC = next(filter(shutil.which, ("gcc", "clang", "cc")), None)
FLOATS = ctypes.POINTER(ctypes.c_float)


def custom_square(x):
    """x * x."""
    return x * x


def squared():
    return ops.custom(
        custom_square,
        shape=lambda x: x,
        dtype=lambda x: x,
        bprop=lambda x, out, dout: (2.0 * x * dout,),
        cuda="x * x",
    )


@pytest.mark.parametrize("device", ["cpu", "cuda-sim"])
def test_it_works_wherever_a_primitive_does(device):
    square = squared()
    with ml.context(device_target=device):
        x = ml.Tensor(X)
        np.testing.assert_array_equal(square(x).asnumpy(), X * X)
        np.testing.assert_array_equal(ml.jit(lambda x: square(x) + 1)(x).asnumpy(), X * X + 1)
        cubed = grad(lambda x: ops.sum(square(x) * x))
        np.testing.assert_allclose(cubed(x).asnumpy(), 3 * X * X)
        twice = grad(lambda x: ops.sum(cubed(x)))
        np.testing.assert_allclose(twice(x).asnumpy(), 6 * X)
        np.testing.assert_allclose(ml.jit(twice)(x).asnumpy(), 6 * X)


def test_the_checkers_find_no_fault():
    assert opcheck(squared()).ok
    gradcheck(squared(), np.array([-2.0, 3.0]), order=2)


def test_by_default_the_output_is_like_the_first_input():
    added = ops.custom(lambda x, y: x + y.astype(x.dtype))
    np.testing.assert_array_equal(added(X, y=np.array([1, 2, 3])).asnumpy(), X + [1, 2, 3])
    assert added(np.arange(3), np.arange(3)).dtype == ml.int64
    np.testing.assert_array_equal(ops.custom(np.sort)(X).asnumpy(), np.sort(X))
    np.testing.assert_array_equal(ops.custom(np.cbrt, name="cube_root")(X).asnumpy(), np.cbrt(X))
    total = ops.custom(lambda *xs: sum(xs))
    np.testing.assert_array_equal(total(X, X, X).asnumpy(), 3 * X)


def test_constant_rules_and_several_outputs():
    def least(x):
        return x.min(), x.argmin()

    op = ops.custom(least, shape=((), ()), dtype=("float32", int), outputs=2)
    value, place = op(X)
    assert (value.item(), place.item()) == (-2.0, 1)
    again = ml.jit(op)(X)
    assert (again[0].item(), again[1].item()) == (-2.0, 1)
    with pytest.raises(DeclarationError, match="returned ndarray; return a tuple of 2 arrays"):
        ops.custom(lambda x: x, outputs=2)(X)


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda x: x.sum(), ShapeError, r"returned shape \(\); its shape rule gives \(3,\)"),
        (lambda x: x * 2.0**0.5 + np.zeros(3), DTypeError, "returned float64; its dtype rule giv"),
        (lambda x: None, DeclarationError, "returned NoneType; it takes arrays and returns an arr"),
        (lambda x: (x, x), DeclarationError, "returned tuple; it takes arrays"),
    ],
)
@pytest.mark.parametrize("run", [lambda op: op(X), lambda op: ml.jit(op)(X)])
def test_what_the_rules_do_not_say_is_refused_when_it_comes(fn, error, message, run):
    with pytest.raises(error, match=message) as caught:
        run(ops.custom(fn, name=f"custom_{message[:12].strip().replace(' ', '_')}_{id(fn)}"))
    assert "test_custom_functions.py" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fn": lambda x: x, "shape": lambda x, y: x}, "does not take the inputs x: missing"),
        ({"fn": lambda x: x, "outputs": "a"}, "got outputs='a' and name=None; they are"),
        ({"fn": lambda x: x, "outputs": -1}, "got outputs=-1"),
        ({"fn": lambda x: x, "name": 5}, "and name=5; they are"),
        ({"fn": lambda: np.zeros(3)}, "function without inputs; say shape="),
        ({"cuda": "x * x"}, "nothing that has a name; say name="),
        ({"name": "custom_nothing"}, "does not say what it takes; say signature="),
        ({"fn": lambda x: x, "cuda": "y * y"}, "names y"),
    ],
)
def test_contradictions_are_refused_when_it_is_made(given, message):
    with pytest.raises(DeclarationError, match=message):
        ops.custom(**given)


def test_a_cell_that_runs_again_replaces_what_it_made():
    cell = "def custom_cell(x):\n    return {} * x\nop = ops.custom(custom_cell{})"
    names = {"ops": ops, "__name__": "notebook"}
    exec(cell.format(2, ", bprop=lambda x, out, dout: (2.0 * dout,), cuda='2 * x'"), names)
    first = names["op"]
    np.testing.assert_array_equal(first(X).asnumpy(), 2 * X)
    exec(cell.format(3, ""), names)
    np.testing.assert_array_equal(names["op"](X).asnumpy(), 3 * X)
    np.testing.assert_array_equal(ml.jit(names["op"])(X).asnumpy(), 3 * X)  # no text is left
    with pytest.raises(BpropNotFoundError, match="custom_cell has no bprop"):
        grad(lambda x: ops.sum(names["op"](x)))(X)
    assert names["op"].name == first.name == "custom_cell"


@pytest.mark.parametrize(
    "refused",
    ["shape=lambda x, y: x", "dtype='nonsense'", "signature='ff->f'", "cuda='y * y'"],
)
def test_a_refused_cell_leaves_the_operation_as_it_was(refused):
    cell = "def custom_kept(x):\n    return {} * x\nop = ops.custom(custom_kept, {})"
    names = {"ops": ops, "__name__": "notebook"}
    exec(cell.format(2, "bprop=lambda x, out, dout: (2.0 * dout,), cuda='2 * x'"), names)
    for _ in range(2):
        with pytest.raises(MinimlError):
            exec(cell.format(3, refused), names)
        for device in ("cpu", "cuda-sim"):
            with ml.context(device_target=device):
                found = ml.jit(grad(lambda x: ops.sum(names["op"](x) * x)))(ml.Tensor(X))
                np.testing.assert_array_equal(found.asnumpy(), 4 * X)
    exec(cell.format(5, ""), names)
    np.testing.assert_array_equal(names["op"](X).asnumpy(), 5 * X)


def test_different_functions_of_one_name_stay_apart():
    def times(k):
        def custom_times(x):
            return k * x

        return ops.custom(custom_times)

    two, three = times(2), times(3)
    np.testing.assert_array_equal(two(X).asnumpy(), 2 * X)
    np.testing.assert_array_equal(three(X).asnumpy(), 3 * X)
    assert (two.name, three.name) == ("custom_times", "custom_times_2")
    a, b = ops.custom(lambda x: 2 * x), ops.custom(lambda x: 3 * x)
    np.testing.assert_array_equal(a(X).asnumpy() * 3, b(X).asnumpy() * 2)
    with pytest.raises(DuplicateError, match=r"'Add' is taken, by what is defined at .*elementw"):
        ops.custom(custom_square, name="Add")


def test_it_is_pickled_where_its_function_can_be_imported(tmp_path, monkeypatch):
    (tmp_path / "custom_module.py").write_text(
        "from miniml import ops\n\ndef custom_pickled(x):\n    return 2 * x\n\n"
        "op = ops.custom(custom_pickled)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    op = importlib.import_module("custom_module").op
    data = pickle.dumps(op)
    assert pickle.loads(data) == op
    code = f"import pickle; print(pickle.loads({data!r})(1.5).item())"
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert run.stdout == "3.0\n", run.stderr


def test_a_saved_graph_finds_it_by_name(tmp_path):
    square, path = squared(), tmp_path / "square.json"
    ml.save_graph(lambda x: square(x) + 1, path, X)
    assert f'"custom_square": "{__name__}"' in path.read_text()
    np.testing.assert_array_equal(ml.load_graph(path)(X).asnumpy(), X * X + 1)


@pytest.mark.skipif(CC is None, reason="no C compiler")
def test_a_c_function_of_a_shared_library(tmp_path):
    source = """
        #include <stdint.h>
        void scaled(const float *x, const float *by, float *out, int64_t n) {
            for (int64_t i = 0; i < n; ++i) out[i] = x[i] * by[0];
        }
        void spread(const double *x, double *low, double *high, int64_t n, int64_t a, int64_t b) {
            for (int64_t i = 0; i < n; ++i) {
                low[0] = i == 0 || x[i] < low[0] ? x[i] : low[0];
                high[0] = i == 0 || x[i] > high[0] ? x[i] : high[0];
            }
        }"""
    library = tmp_path / "own.so"
    command = [CC, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True, timeout=100)
    own = ctypes.CDLL(str(library))
    own.scaled.argtypes = [FLOATS, FLOATS, FLOATS, ctypes.c_int64]
    scaled = ops.custom(
        own.scaled,
        shape=lambda x, by: x,
        signature="ff->f",
        bprop=lambda x, by, out, dout: (dout * by, ops.sum(dout * x)),
    )
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(scaled(rows.T, np.float32(3)).asnumpy(), 3 * rows.T)
    np.testing.assert_array_equal(ml.jit(scaled)(rows, by=np.float32(2)).asnumpy(), 2 * rows)
    by = grad(lambda by: ops.sum(scaled(rows, by)))(ml.Tensor(3.0))
    assert by.item() == rows.sum()
    spread = ops.custom(own.spread, shape=((), ()), outputs=2, signature="d->dd")
    low, high = spread(X.astype(np.float64))
    assert (low.item(), high.item()) == (-2.0, 3.0)
    with pytest.raises(KernelNotFoundError, match="spread has no kernel for"):
        spread(np.arange(3, dtype=np.uint64))


@pytest.mark.parametrize(
    ("argtypes", "signature", "message"),
    [
        ((FLOATS, FLOATS), None, "is a C function; say signature=|does not say what it takes"),
        ((FLOATS,), "f->f", "with 1 argtypes; it takes 2 pointers"),
        (
            (FLOATS, FLOATS),
            "f*->f",
            r"signature f\*->f; say one dtype for each of its pointers",
        ),
        ((FLOATS, FLOATS), ".->.", r"signature \.->\.; say one dtype for each of its pointers"),
        ((FLOATS, FLOATS, ctypes.c_int32), "f->f", "then up to 2 counts of c_int64"),
        ((FLOATS, FLOATS), "d->d", "argument 0 points to c_float; its signature says float64"),
    ],
)
def test_what_a_c_function_declares_must_agree(argtypes, signature, message):
    declared = ctypes.CFUNCTYPE(None, *argtypes)(lambda *_: None)
    with pytest.raises(DeclarationError, match=message):
        ops.custom(declared, signature=signature, name="custom_c_declared")


def test_a_text_alone_has_kernels_where_text_is_compiled():
    text = ops.custom(cuda="x * y + 1", name="custom_text")
    with pytest.raises(KernelNotFoundError, match="custom_text has no kernel on cpu"):
        text(X, X)
    with ml.context(device_target="cuda-sim"):
        np.testing.assert_array_equal(text(ml.Tensor(X), ml.Tensor(X)).asnumpy(), X * X + 1)


def test_a_raw_kernel_goes_by_its_name():
    op = ops.custom(custom_square, name="custom_raw")
    source = """
        extern "C" __global__ void custom_raw(const T *x, T *out, long long n) {
            long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
            if (i < n) out[i] = x[i] * x[i];
        }"""
    ml.raw_kernel(
        op.name, "f->f", entry="custom_raw", source=source,
        launch=lambda node: ml.Launch((1,), (32,), (np.int64(node.inputs[0].shape[0]),)),
    )  # fmt: skip
    with ml.context(device_target="cuda-sim"):
        np.testing.assert_array_equal(op(ml.Tensor(X)).asnumpy(), X * X)
