"""Products of matrices: by cuBLAS, by tensor cores, and by tiles in shared memory."""

from __future__ import annotations

from typing import Any, ClassVar

from ....dtype import DType
from ...expressions.types import accumulation
from ...kernel import Kernel, KernelNode
from ...product import Product, product_of
from ...registry import kernel
from ...signature import ArraySpec
from ...typecodes import BF16, FLOAT, INT, same
from ..text.source import unit
from .cublas import CuBLAS
from .product import PRODUCT, arguments, stored
from .tiles import REGISTERS, TENSOR_CORES, TILES

# This many blocks of large tiles keep a GPU busy; with fewer, small tiles are faster.
BUSY = 64


class Tiles(Kernel):
    """A product by tiles of 64 x 64 or 16 x 16 results, of which a block computes one at a time."""

    source: ClassVar[str]
    threads: ClassVar[dict[int, int]]

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        self.plan(product_of(node), node.inputs[0].dtype, node.device)

    def plan(self, product: Product, dtype: DType, device: Any) -> bool:
        """Prepare for a product of any origin; True, since tiles can compute all of them."""
        self.args = arguments(product)
        tiles = {s: product.batches * -(-product.m // s) * -(-product.n // s) for s in self.threads}
        side = 64 if min(product.m, product.n) > 32 and tiles[64] >= BUSY else 16
        self.grid, self.block = (min(max(tiles[side], 1), 1 << 20),), (self.threads[side],)
        code = unit(self.source, T=dtype, S=accumulation(dtype), Product=PRODUCT)
        self.function = device.compiler.function(code, f"matmul_{side}")
        return True

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        arrays = [a.flat for a in (*inputs, *outputs)]
        self.function(self.grid, self.block, (*arrays, *self.args))


class RegisterTiles(Tiles):
    """Sums in the registers of threads: any dtype, any device."""

    source = TILES + REGISTERS
    threads: ClassVar = {64: 256, 16: 64}


class TensorCoreTiles(Tiles):
    """float16 or bfloat16 multiplied by tensor cores and summed in float32."""

    source = "#include <mma.h>\n" + TILES + TENSOR_CORES
    threads: ClassVar = {64: 128, 16: 32}


class Foreign(Kernel):
    """A MatMul kernel without support for products of other primitives, applied to one: the
    operands are arrays that it takes, in other shapes."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def plan(self, product: Product, dtype: DType, target: Any) -> bool:
        """Prepare the kernel; False if MatMul does not take such operands."""
        out = stored(product, 2)
        self.exchanged = out is not None and out.transposed
        product = product.transposed if self.exchanged else product
        x, y, out = (stored(product, operand) for operand in range(3))
        if x is None or y is None or out is None:
            return False
        turns = {"transpose_x": x.transposed, "transpose_y": y.transposed}
        specs = [ArraySpec(operand.shape, dtype) for operand in (x, y, out)]
        self.shapes = x.shape, y.shape, out.shape
        self.kernel.prepare(KernelNode("MatMul", tuple(specs[:2]), (specs[2],), turns, target))
        return True

    def workspace(self) -> tuple[ArraySpec, ...]:
        return self.kernel.workspace()

    def launch(self, inputs: Any, workspace: Any, outputs: Any, stream: object) -> None:
        given = inputs[::-1] if self.exchanged else inputs
        x, y, out = (a.reshape(s) for a, s in zip((*given, *outputs), self.shapes, strict=True))
        self.kernel.launch((x, y), workspace, (out,), stream)

    def release(self) -> None:
        self.kernel.release()


def planned(product: Product, dtype: DType, target: Any) -> Kernel | None:
    """The kernel of MatMul that the target selects for a dtype, prepared for a product of another
    primitive; None if that kernel cannot compute it."""
    like = ArraySpec((), dtype)
    selection = target.select("MatMul", (like, like), (like,))
    made = target.device.bare_kernel(selection.entry)
    if isinstance(made, Tiles | CuBLAS):
        return made if made.plan(product, dtype, target.device) else None
    foreign = Foreign(made)
    return foreign if selection.cast is None and foreign.plan(product, dtype, target) else None


# Of the kernels with one key whose requirements the device meets, the highest priority runs.
kernel("MatMul", "cuda", *same(2, FLOAT), requires=("cublas",), priority=2)(CuBLAS)
kernel("MatMul", "cuda", *same(2, "e"), requires=("wmma",), priority=1)(TensorCoreTiles)
kernel("MatMul", "cuda", *same(2, BF16), requires=("wmma_bfloat16",), priority=1)(TensorCoreTiles)
kernel("MatMul", "cuda", *same(2, "?" + INT + FLOAT))(RegisterTiles)
