"""Products of matrices: each kernel against NumPy in float64, and which of them is chosen."""

from types import SimpleNamespace

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.backends import fitting, registry
from miniml.backends.cuda import cublas, linalg
from miniml.backends.cuda.cublas import CuBLAS
from miniml.backends.cuda.linalg import RegisterTiles, TensorCoreTiles
from miniml.backends.cuda.sim.settings import using
from miniml.backends.device import get_device
from miniml.backends.kernel import KernelNode
from miniml.backends.signature import ArraySpec
from miniml.dtype import ALL, bfloat16, bool_, float16, float32, float64, int32, is_float
from miniml.errors import ShapeError
from miniml.testing.tolerance import mismatch, unit_roundoff
from tests.device.conftest import DEVICES
from tests.device.gemm import with_cublas
from tests.opinfo.draws import numbers
from tests.opinfo.linalg import PRODUCTS, VECTORS, matmul, turned

TURNS = ((False, False), (True, False), (False, True), (True, True))
ODD = (((1, 17), (17, 15)), ((33, 1), (1, 65)), ((15, 33), (33, 1)), ((65, 17), (17, 33)))
# Which axes of the batch run together decides how often gemm is called.
BATCHES = (
    ((4, 2, 3, 5), (4, 2, 5, 6)), ((4, 1, 3, 5), (1, 2, 5, 6)), ((4, 2, 3, 5), (2, 5, 6)),
    ((3, 5), (4, 2, 5, 6)), ((2, 1, 1, 5), (7, 5, 1)), ((1, 3, 5), (1, 5, 6)),
)  # fmt: skip


def run(kernel, device, x, y, transpose_x=False, transpose_y=False, ready=None):
    """The product by that kernel; skips where the device lacks what it requires."""
    device = get_device(device) if isinstance(device, str) else device
    (entry,) = (
        e for e in registry.table["MatMul", "cuda"]
        if issubclass(kernel, e.body) and e.signature.accepts((x.dtype, y.dtype))
    )  # fmt: skip
    for feature in entry.requires:
        if not device.has(feature):
            pytest.skip(f"{device.name} has no {feature}")
    shape = np.matmul(
        np.swapaxes(x, -1, -2) if transpose_x else x, np.swapaxes(y, -1, -2) if transpose_y else y
    ).shape
    specs = [ArraySpec(s, x.dtype) for s in (x.shape, y.shape, shape)]
    attrs = {"transpose_x": transpose_x, "transpose_y": transpose_y}
    made = kernel()
    made.prepare(KernelNode("MatMul", tuple(specs[:2]), (specs[2],), attrs, device))
    inputs, out = (device.from_host(x), device.from_host(y)), device.empty(*specs[2])
    if ready is not None:
        ready([*inputs, out])
    made.launch(inputs, (), (out,), device.stream)
    return device.to_host(out)


def check(out, x, y, transpose_x=False, transpose_y=False):
    """Right up to the rounding of k products and their sum."""
    wide = [a.astype(np.float64 if is_float(a.dtype) or a.dtype == bool_ else a.dtype)
            for a in (x, y)]  # fmt: skip
    expected = matmul(*wide, transpose_x, transpose_y)
    spread = 0.0
    if is_float(x.dtype):
        spread = unit_roundoff(x.dtype) * matmul(*map(np.abs, wide), transpose_x, transpose_y)
    assert out.dtype == x.dtype
    wrong = mismatch(out, np.asarray(expected), max(x.size, y.size, 1), spread)
    assert wrong is None, (x.shape, y.shape, transpose_x, transpose_y, wrong)


def operands(rng, x, y, turns, dtype):
    return numbers(rng, turned(x, turns[0]), dtype), numbers(rng, turned(y, turns[1]), dtype)


TILED = [(RegisterTiles, d) for d in ALL] + [(TensorCoreTiles, d) for d in (float16, bfloat16)]


@pytest.mark.parametrize(("kernel", "dtype"), TILED, ids=[f"{k.__name__}-{d}" for k, d in TILED])
class TestTiles:
    def test_odd_sizes_lying_either_way(self, kernel, dtype, device):
        rng = np.random.default_rng(1)
        for (x, y), turns in zip(ODD, TURNS):
            a, b = operands(rng, x, y, turns, dtype)
            check(run(kernel, device, a, b, *turns), a, b, *turns)

    def test_large_tiles(self, kernel, dtype, device, monkeypatch):
        monkeypatch.setattr(linalg, "BUSY", 1)
        rng = np.random.default_rng(2)
        x, y = ((2, 65, 33), (33, 35)) if dtype in (float16, float32, int32) else ((34, 35),) * 2
        for turns in ((False, True), (True, False)):
            a, b = operands(rng, x, y if len(x) == 3 else y[::-1], turns, dtype)
            check(run(kernel, device, a, b, *turns), a, b, *turns)


@pytest.mark.parametrize("kernel", [RegisterTiles, TensorCoreTiles])
class TestTilesOfFloat16:
    def test_batches_vectors_and_nothing_to_sum(self, kernel, device):
        rng = np.random.default_rng(3)
        for x, y in (*BATCHES, *VECTORS, ((2, 0), (0, 3))):
            a, b = numbers(rng, x, float16), numbers(rng, y, float16)
            check(run(kernel, device, a, b), a, b)

    @pytest.mark.parametrize("schedule", ["reverse", "shuffled"])
    @pytest.mark.parametrize("busy", [1, 64], ids=["large", "small"])
    def test_clean_in_any_order_of_threads(self, kernel, device, schedule, busy, monkeypatch):
        monkeypatch.setattr(linalg, "BUSY", busy)
        rng = np.random.default_rng(4)
        a, b = numbers(rng, (34, 18), float16), numbers(rng, (18, 36), float16)
        with using(schedule=schedule, seed=5):
            check(run(kernel, device, a, b), a, b)

    def test_sums_are_not_rounded_to_16_bits(self, kernel, device):
        """4096 + 1 + ... + 1 - 4096: each 1 is lost where sums have 11 bits."""
        x = np.array([[4096.0] + [1.0] * 30 + [-4096.0]], np.float16)
        assert run(kernel, device, x, np.ones((32, 1), np.float16)).item() == 30.0


def test_blocks_take_more_than_one_tile(device, monkeypatch):
    """As they do where a grid does not reach."""
    rng = np.random.default_rng(6)
    a, b = numbers(rng, (3, 20, 18), float16), numbers(rng, (18, 17), float16)
    for kernel in (RegisterTiles, TensorCoreTiles):

        class OneBlock(kernel):
            def prepare(self, node):
                super().prepare(node)
                self.grid = (2,)

        check(run(OneBlock, device, a, b), a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_cublas_itself(dtype):
    rng = np.random.default_rng(9)
    for x, y in (*BATCHES, *ODD, ((3, 65, 130), (130, 33)), ((2, 0), (0, 3))):
        for turns in TURNS:
            a, b = operands(rng, x, y, turns, dtype)
            check(run(CuBLAS, "cuda", a, b, *turns), a, b, *turns)


def test_a_batch_of_too_many_axes_is_refused(on_device):
    x, y = np.ones((*(2, 1) * 5, 1, 1), "f"), np.ones((*(1, 2) * 5, 1, 1), "f")
    with pytest.raises(ShapeError, match="MatMul needs 10 axes that do not merge"):
        ops.matmul(ml.Tensor(x), ml.Tensor(y))


class TestCuBLAS:
    """The arguments of gemm, against a double of cuBLAS."""

    def product(self, a, b, *turns):
        with with_cublas() as (device, gemm):

            def ready(arrays):
                gemm.ranges = [(x.flat.data.ptr, x.nbytes) for x in arrays]

            check(run(CuBLAS, device, a, b, *turns, ready=ready), a, b, *turns)
            return gemm.calls

    @pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
    @pytest.mark.parametrize("turns", TURNS, ids=str)
    def test_matrices_lying_either_way(self, dtype, turns):
        rng = np.random.default_rng(7)
        for x, y in (*PRODUCTS, *BATCHES, *ODD):
            if 0 not in (*x[:-1], *y[:-2], y[-1]):  # else there is nothing to launch
                self.product(*operands(rng, x, y, turns, dtype), *turns)

    def test_vectors(self):
        rng = np.random.default_rng(8)
        for x, y in VECTORS:
            self.product(numbers(rng, x, float32), numbers(rng, y, float32))

    def test_a_sum_of_nothing_is_zero_without_a_call(self):
        assert self.product(np.ones((2, 0), "f"), np.ones((0, 3), "f")) == []

    @pytest.mark.parametrize(
        ("x", "y", "calls"),
        [
            ((3, 5), (5, 6), [(6, 3, 5, 1)]),
            ((4, 2, 3, 5), (5, 6), [(6, 24, 5, 1)]),  # one product of more rows
            ((4, 2, 3, 5), (4, 2, 5, 6), [(6, 3, 5, 8)]),
            ((3, 5), (4, 2, 5, 6), [(6, 3, 5, 8)]),
            ((4, 2, 3, 5), (2, 5, 6), [(6, 3, 5, 4)] * 2),
            ((4, 1, 3, 5), (1, 2, 5, 6), [(6, 3, 5, 4)] * 2),
        ],
        ids=str,
    )
    def test_as_few_calls_as_the_batch_allows(self, x, y, calls):
        assert self.product(np.ones(x, "f"), np.ones(y, "f")) == calls

    def test_extents_that_an_int_does_not_hold(self):
        specs = (ArraySpec((2**31, 1), float32), ArraySpec((1, 1), float32))
        node = KernelNode(
            "MatMul", specs, specs[:1], {"transpose_x": False, "transpose_y": False}, None
        )
        with pytest.raises(ShapeError, match="extent of 2147483648; cuBLAS takes 2147483647 at"):
            CuBLAS().prepare(node)

    def test_the_numbers_are_those_of_cupys_cublas(self):
        cupy = pytest.importorskip("cupy", reason="no cupy on this machine")
        try:
            names = cupy.cuda.cublas
        except ImportError:
            pytest.skip("cupy finds no cuBLAS on this machine")
        runtime = cupy.cuda.runtime
        kinds = [runtime.CUDA_R_32F, runtime.CUDA_R_64F, runtime.CUDA_R_16F, runtime.CUDA_R_16BF]
        assert list(cublas._TYPES.values()) == kinds
        assert (cublas._AS_IT_LIES, cublas._TRANSPOSED) == (names.CUBLAS_OP_N, names.CUBLAS_OP_T)
        assert names.CUBLAS_COMPUTE_32F == cublas._FLOAT32_SUMS
        assert names.CUBLAS_COMPUTE_64F == cublas._FLOAT64_SUMS
        assert names.CUBLAS_GEMM_DEFAULT == cublas._ANY_ALGORITHM


class TestChoice:
    def why(self, dtype):
        with ml.context(device_target="cuda-sim"):
            x = ml.Tensor(np.ones((2, 2), dtype))
            (choice,) = ml.explain(ops.matmul, x, x).choices
        return choice.why

    @pytest.mark.parametrize("device", DEVICES)
    @pytest.mark.parametrize(
        ("dtype", "ending"),
        [
            (float16, "has wmma, lacks cublas"), (bfloat16, "has wmma_bfloat16, lacks cublas"),
            (float64, "provider 'miniml', lacks cublas"), (int32, "provider 'miniml'"),
        ],
        ids=str,
    )  # fmt: skip
    def test_explain_says_what_the_device_has_and_lacks(self, device, dtype, ending):
        assert self.why(dtype).endswith(ending)

    @pytest.mark.parametrize(
        ("features", "kernel"),
        [
            ({"cublas", "wmma"}, CuBLAS), ({"wmma"}, TensorCoreTiles), (set(), RegisterTiles),
            ({"wmma_bfloat16"}, RegisterTiles),
        ],
        ids=str,
    )  # fmt: skip
    def test_kernels_of_one_key_are_told_apart_by_features(self, monkeypatch, features, kernel):
        device = SimpleNamespace(has=features.__contains__)
        monkeypatch.setattr(fitting, "get_device", lambda name: device)
        assert registry.select("MatMul", "cuda", (float16, float16)).entry.body is kernel

    @pytest.mark.parametrize("device", DEVICES)
    def test_features_are_what_probes_find(self, device):
        found = get_device("cuda-sim")
        told = [found.has(f) for f in ("wmma", "wmma_bfloat16", "cublas", "avx2", "no_such")]
        assert told == [True, True, False, False, False]
        with with_cublas() as (double, _):
            assert double.has("cublas")

    @pytest.mark.parametrize("device", DEVICES)
    def test_without_the_header_there_are_no_tensor_cores(self, device, monkeypatch):
        found = get_device("cuda-sim")
        monkeypatch.setattr(found, "features", {})
        monkeypatch.setattr("miniml.backends.cuda.features.PROBE", "#include <no_such.h>\n")
        assert not found.has("wmma")

    def test_a_library_that_is_not_installed(self):
        class Names:
            def __getattr__(self, name):
                raise ImportError("libcublas.so is not there")

        with with_cublas() as (device, _):
            device.module.cuda = Names()
            assert not device.has("cublas")
