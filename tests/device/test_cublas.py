"""Products by cuBLAS, against a double of it, and Einstein sums that are products."""

import numpy as np
import pytest

import miniml as ml
from miniml import ArraySpec, bfloat16, float16, float32, float64, ops
from miniml.backends.cuda.driver import CublasLibrary
from miniml.backends.cuda.kernels import linalg
from miniml.backends.cuda.kernels.linalg import CuBLAS, EinsumKernel
from miniml.backends.cuda.sim.memory import using
from miniml.backends.kernel import KernelNode
from miniml.backends.selection import get_device
from miniml.errors import ShapeError
from miniml.testing.tolerance import mismatch, unit_roundoff
from tests.device.gemm import EXACT, Library, with_cublas
from tests.device.products import BATCHES, ODD, TURNS, check, made, operands, run
from tests.opinfo.draws import numbers
from tests.opinfo.linalg import PRODUCTS, VECTORS


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64], ids=str)
def test_cublas_itself(dtype):
    rng = np.random.default_rng(9)
    for x, y in (*BATCHES, *ODD, ((3, 65, 130), (130, 33)), ((2, 0), (0, 3))):
        for turns in TURNS:
            a, b = operands(rng, x, y, turns, dtype)
            check(run(CuBLAS, "cuda", a, b, *turns), a, b, *turns)


class TestCuBLAS:
    """The arguments of gemm, against a double of cuBLAS."""

    def product(self, a, b, *turns):
        with with_cublas() as (device, gemm):

            def ready(arrays):
                gemm.ranges = [(a.flat.data.ptr, a.nbytes) for a in arrays]

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
        with pytest.raises(ShapeError, match="2147483648 x 1 by 1 x 1; cuBLAS counts"):
            CuBLAS().prepare(node)

    def test_the_numbers_are_those_of_cupys_cublas(self):
        cupy = pytest.importorskip("cupy", reason="no cupy on this machine")
        try:
            names = cupy.cuda.cublas
        except ImportError:
            pytest.skip("no cuBLAS on this machine")
        runtime = cupy.cuda.runtime
        kinds = [runtime.CUDA_R_32F, runtime.CUDA_R_64F, runtime.CUDA_R_16F, runtime.CUDA_R_16BF]
        assert list(linalg._TYPES.values()) == kinds
        assert (linalg._AS_IT_LIES, linalg._TRANSPOSED) == (names.CUBLAS_OP_N, names.CUBLAS_OP_T)
        assert names.CUBLAS_COMPUTE_32F == linalg._FLOAT32_SUMS
        assert names.CUBLAS_COMPUTE_64F == linalg._FLOAT64_SUMS
        assert names.CUBLAS_GEMM_DEFAULT == linalg._ANY_ALGORITHM

    @pytest.mark.usefixtures("gpu")
    def test_a_graph_repeats_products_with_its_inputs(self):
        """cupy's own functions refuse to be called while a graph is recorded."""
        library = Library()
        get_device("cuda").driver.cublas = CublasLibrary(library, 80)
        rng = np.random.default_rng(11)
        with ml.context(cuda_graphs="on"), using(mode="fast"):  # who checks saw no product
            f = ml.jit(lambda x, y: ops.exp(x @ y) @ y)
            for i in range(4):
                x, y = (numbers(rng, (3, 3), float32) for _ in range(2))
                out = f(ml.Tensor(x), ml.Tensor(y)).asnumpy()
                np.testing.assert_allclose(out, np.exp(x @ y) @ y, rtol=1e-5)
                assert len(library.calls) == 2 * (i + 1)
            assert "as one CUDA graph" in str(ml.explain(f, ml.Tensor(x), ml.Tensor(y)))
        assert library.mode == EXACT


# Einstein sums: how often gemm is called, 0 where a matrix lies neither by rows nor by columns.
SUMS = (
    ("ij,jk->ik", (3, 4), (4, 5), 1), ("ij,kj->ki", (3, 4), (5, 4), 1),
    ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5), 2),
    ("bhqk,bkhd->bqhd", (2, 4, 3, 6), (2, 6, 4, 5), 2),
    ("...ij,...jk", (5, 2, 3), (1, 3, 4), 1), ("abc,bcd->da", (2, 3, 4), (3, 4, 5), 1),
    ("iij,jk->ik", (2, 2, 3), (3, 4), 1), ("bij,bjk->ikb", (3, 4, 5), (3, 5, 6), 0),
    ("ijb,jkb->bik", (2, 3, 4), (3, 5, 4), 0), ("i...,ij->j...", (3, 2), (3, 4), 1),
)  # fmt: skip
# These are none: no sum, one term, axes that do not lie as one, a label of one operand summed.
OTHERS = (
    ("i,j->ij", (3,), (4,)), ("ij,ij->ij", (2, 3), (2, 3)), ("ij,j->i", (2, 3), (3,)),
    ("acb,bcd->da", (2, 3, 4), (4, 3, 5)), ("ij,kl->il", (2, 3), (4, 5)),
)  # fmt: skip


class TestEinsum:
    def sum(self, device, equation, *shapes, ready=None):
        rng = np.random.default_rng(10)
        operands = [numbers(rng, shape, float32) for shape in shapes]
        expected = np.einsum(equation, *[a.astype(np.float64) for a in operands])
        out, kernel = made(
            EinsumKernel, device, "Einsum", {"equation": equation}, operands, expected.shape, ready
        )
        spread = np.einsum(equation, *map(np.abs, operands)) * unit_roundoff(float32)
        assert mismatch(out, expected, 100, spread) is None, equation
        return kernel.product

    def test_products_of_matrices_are_those_of_matmul(self, device):
        found = get_device(device)
        for equation, x, y, calls in SUMS:
            product = calls > 0 or not found.has("cublas")
            assert (self.sum(found, equation, x, y) is not None) == product, equation
        for equation, x, y in OTHERS:
            assert self.sum(get_device(device), equation, x, y) is None, equation

    @pytest.mark.parametrize(("equation", "x", "y", "calls"), SUMS)
    def test_by_cublas(self, equation, x, y, calls):
        with with_cublas() as (device, gemm):

            def ready(arrays):
                gemm.ranges = [(a.flat.data.ptr, a.nbytes) for a in arrays]

            kernel = self.sum(device, equation, x, y, ready=ready)
            assert (isinstance(kernel, CuBLAS), len(gemm.calls)) == (calls > 0, calls)
