"""Products of matrices: each kernel against NumPy in float64, and which of them is chosen."""

import numpy as np
import pytest

import miniml as ml
from miniml import ArraySpec, bfloat16, float16, float32, float64, int32, ops
from miniml.backends import registry
from miniml.backends.cuda.driver import Cupy
from miniml.backends.cuda.kernels import linalg
from miniml.backends.cuda.kernels.linalg import CuBLAS, RegisterTiles, TensorCoreTiles
from miniml.backends.cuda.sim.memory import using
from miniml.backends.kernel import CPU
from miniml.backends.selection import Target, get_device
from miniml.core.abstract import REAL
from miniml.core.scope import epoch
from miniml.errors import ShapeError
from tests.device.conftest import DEVICES
from tests.device.emucupy import double
from tests.device.gemm import with_cublas
from tests.device.products import BATCHES, ODD, TURNS, check, operands, run
from tests.opinfo.draws import numbers
from tests.opinfo.linalg import VECTORS, matmul

TILED = [(RegisterTiles, d) for d in REAL] + [(TensorCoreTiles, d) for d in (float16, bfloat16)]


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
        for x, y in (*BATCHES, *VECTORS, ((2, 0), (0, 3)), ((3, 20, 0), (0, 17))):
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
    for kernel, k in ((RegisterTiles, 18), (TensorCoreTiles, 18), (TensorCoreTiles, 0)):
        a, b = numbers(rng, (3, 20, k), float16), numbers(rng, (k, 17), float16)

        class OneBlock(kernel):
            def prepare(self, node):
                super().prepare(node)
                self.grid = (2,)

        check(run(OneBlock, device, a, b), a, b)


def test_a_batch_of_too_many_axes_is_refused(on_device):
    """By kernels of our own; cuBLAS is called many times."""
    x, y = np.ones((*(2, 1) * 5, 1, 1), "f"), np.ones((*(1, 2) * 5, 1, 1), "f")
    with (
        ml.context(without="cublas"),
        pytest.raises(ShapeError, match="MatMul needs 10 axes that do not merge"),
    ):
        ops.matmul(ml.Tensor(x), ml.Tensor(y))


class TestChoice:
    def why(self, dtype):
        with ml.context(device_target="cuda-sim"):
            x = ml.Tensor(np.ones((2, 2), dtype))
            (choice,) = ml.explain(ops.matmul, x, x).rows
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
            (("cublas", "wmma"), CuBLAS), (("wmma",), TensorCoreTiles), ((), RegisterTiles),
            (("wmma_bfloat16",), RegisterTiles),
        ],
        ids=str,
    )  # fmt: skip
    def test_kernels_of_one_key_are_told_apart_by_features(self, features, kernel):
        class Device(CPU):
            name = "cuda"
            has = features.__contains__

        halves = [ArraySpec((2, 2), float16)] * 2
        assert Target(Device()).select("MatMul", halves, halves[:1]).entry.body is kernel

    @pytest.mark.parametrize("device", DEVICES)
    def test_features_are_what_probes_find(self, device):
        found = get_device("cuda-sim")
        message = [found.has(f) for f in ("wmma", "wmma_bfloat16", "cublas", "avx2", "no_such")]
        assert message == [True, True, False, False, False]
        with with_cublas() as (found, _):
            assert found.has("cublas")

    @pytest.mark.parametrize("device", DEVICES)
    def test_without_the_header_there_are_no_tensor_cores(self, device, monkeypatch):
        found = get_device("cuda-sim")
        monkeypatch.setattr(found, "features", {})
        monkeypatch.setattr("miniml.backends.cuda.device.PROBE", "#include <no_such.h>\n")
        assert not found.has("wmma")

    def test_a_library_that_is_not_installed(self):
        class Names:
            def __getattr__(self, name):
                raise ImportError("libcublas.so is not there")

        module = double()
        module.cuda = Names()
        assert Cupy(module).cublas is None


class TestAnotherKernelOfMatMul:
    """An Einstein sum that is a product asks the target, as MatMul itself does."""

    SUMS = (
        ("ij,jk->ik", (3, 4), (4, 5)), ("ij,kj->ki", (3, 4), (5, 4)), ("ji,jk->ik", (4, 3), (4, 5)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("abc,bcd->da", (2, 3, 4), (3, 4, 5)),
        ("...ij,...jk", (5, 2, 3), (1, 3, 4)),
    )  # fmt: skip
    NONE = (("bij,bjk->ikb", (3, 4, 5), (3, 5, 6)), ("iij,jk->ik", (2, 2, 3), (3, 4)))

    @pytest.fixture
    def calls(self):
        ml.Tensor(0.0).to("cuda-sim")  # the built-in ones are registered
        before = list(registry.table["MatMul", "cuda"])
        calls = []

        @ml.kernel("MatMul", "cuda", "ff->f", provider="mine")
        def mine(x, y, *, transpose_x, transpose_y, out):
            calls.append((x.shape, y.shape))
            host = [x.device.to_host(a) for a in (x, y)]
            x.device.copy_into(out, matmul(*host, transpose_x, transpose_y))

        yield calls
        registry.table["MatMul", "cuda"][:] = before
        epoch.bump("kernels")

    @pytest.mark.parametrize("device", DEVICES)
    def test_is_used_where_it_can_be(self, device, calls):
        rng = np.random.default_rng(11)
        for equation, *shapes in (*self.SUMS, *self.NONE):
            operands = [numbers(rng, shape, float32) for shape in shapes]
            expected = np.einsum(equation, *[a.astype(np.float64) for a in operands])
            del calls[:]
            with ml.context(device_target=device, providers="mine"):
                out = ops.einsum(equation, *map(ml.Tensor, operands)).asnumpy()
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
            assert len(calls) == ((equation, *shapes) in self.SUMS), equation
