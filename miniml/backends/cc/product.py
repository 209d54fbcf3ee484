"""Matrices in C: products, from register tiles over packed panels; and what is made of small ones.

An epilogue, the loops of a row program, takes the sums of a product while those are in registers.
Then linear systems, Cholesky's factor and determinants, computed in float64: a vector has an
element of each of several matrices. One without a result gets NaN, as by LAPACK. Source: Golub, Van
Loan, "Matrix Computations" (2013), sections 3.1, 3.4 and 4.2. Last attention and its gradients, in
blocks that never hold all scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil, prod
from typing import Any, ClassVar

import numpy as np

from ...core.abstract import ArraySpec, DType, bool_, float64, int32
from ...core.signature import ATTENTION, ATTENTION_GRAD, ATTENTION_MASK_GRAD, WIDE, with_sums
from ..expressions import C_TYPES, Load, Reduce, RowProgram, Statement
from ..kernel import Array, Arrays, KernelNode
from ..product import Axis, Product, broadcast_steps, dense_strides, merged, product_of, steps_of
from ..registry import kernel
from .native import Keeping, NativeKernel, Packing
from .rows import Loops
from .scalars import STORED
from .units import LINE, NUMBERS, Source, defined, header, run_by, template

_NAMES = "vectors quads tiles panels cut product pack dots lines split factors stacks".split()
VECTORS, QUADS, TILES, PANELS, CUT, PRODUCT, PACK, DOTS, LINES, SPLIT, _FORM, _STACKS = (
    template(f"text/{name}.c") for name in _NAMES
)
DEPTH = 128  # lines of y that are packed at a time: with 64 columns of float32, 32 KB of L1
TALLEST = 192  # rows of a block, whose sums of 64 columns are 48 KB
GROUP = 4  # panels for which a block of a transposed x is copied once
UNSPLIT = 2_000_000  # multiplications and additions of a part: 12 us on one core
STREAMED = 1 << 17  # elements of y of a part, half a megabyte: 20 us from the third cache
MOST_PARTS = 16
MOST_SUMS = 2048  # of a part of lines of y: all parts' are on the stack, at most 256 KB
FEWEST = 5  # rows for which y may be packed: fewer stream through it once
UNPACKED = 64, 28  # rows up to which y is read in place: too few to pay for a copy; see `_unpacked`


def product_text(
    product: Product,
    dtype: DType,
    epilogue: str | None = None,
    operands: tuple[int, int] = (0, 1),
    shared: tuple[str, ...] = (),
    words: int | None = None,
) -> Source:
    """The kernel of a product of `dtype`, float32 or float64, whose sums `epilogue` takes; of int32
    one of quads, whose elements are four bytes each: unsigned ones of x, signed ones of y.

    epilogue: the text of `static inline void KERNEL_epilogue(char *const *at, long batch, long i,
    long j, long count, const T *restrict sums)`, which is called once for each piece of a row:
    `count` sums of row i from column j on. By default it is `stored(product, dtype)`. operands: the
    positions of x and y in `at`. shared: texts that the epilogue needs. words: the position in
    `at` of the words of a Keeping, by which `pack_text` may have packed y, which is the same in the
    whole batch.
    """
    if not product.m * product.n * product.batches:
        return Source("void KERNEL(char *const *at) {}\n")
    quads = dtype == int32
    epilogue = stored(product, dtype) if epilogue is None else epilogue
    swapped = product.n == 1 < product.m and not quads
    computed = product.transposed if swapped else product
    operands = operands[::-1] if swapped else operands
    constants = _constants(computed, operands) | _placed(words)
    emit = _BY_COLUMN if swapped else _BY_ROW
    body = (DOTS,) if _dots(computed) and not quads else (CUT, PRODUCT)
    lines = _by_lines(computed)
    ending = (CUT, LINES) if lines else (*body, SPLIT)
    parts = _in(dtype, _defines(constants)), epilogue, *(_in(dtype, t) for t in (emit, *ending))
    room, wide = (
        0 if DOTS in body and not lines else _room(computed, dtype, lines, vectors)
        for vectors in (_NARROW, _WIDE)
    )
    panels = (_in(dtype, PANELS),) * (PRODUCT in ending)
    made = Source("\n".join(parts), (*_tiles(dtype), *panels, *shared), room=room, wide=wide)
    return made._replace(text=made.constant) if lines else made  # their arrays are of fixed sizes


# Bytes of a vector and the sums of a tile: of SSE2 and aarch64, and of AVX and AVX-512.
_NARROW, _WIDE = ((16, 12), (16, 18)), ((32, 12), (64, 24))


def _room(p: Product, dtype: DType, lines: bool, vectors: Sequence[tuple[int, int]]) -> int:
    """Bytes of the rooms of a product by any of these vectors: of sums, of a packed panel of y, and
    of a copied block of x."""
    blocks = _split(p)[0]
    height = p.m // blocks + 13 if blocks > 1 else p.m
    depth, group, most = min(p.k, DEPTH), GROUP if _copies(p) else 1, 0
    for size, sums in vectors:
        lanes = size // dtype.itemsize
        columns = lanes * (8 if p.m == 1 else sums // 6)
        across = columns if p.n >= columns else -(-p.n // lanes) * lanes
        in_place = p.m <= _unpacked(p) and p.y[1] == 1 and p.y[0] > 0
        beyond = -(p.n % columns) % lanes
        unread = -(-beyond // p.y[0]) if in_place else p.k
        elements = group * height * across + max(1, min(depth, unread) * across)
        elements += depth * height if _copies(p) else 0
        if lines:
            elements = _split(p)[1] * p.m * -(-p.n // lanes) * lanes
        most = max(most, elements)
    return most * dtype.itemsize


def pack_text(product: Product, dtype: DType) -> Source:
    """The kernel that packs y, at[0], if the words of a Keeping, at[1], say so, for products with
    this y of one row, or of any greater number; `packed_size` elements."""
    p = product._replace(m=min(product.m, 2))
    constants = _constants(p, (0, 0)) | {"OUT": "1"}
    text = _defines(constants) + _in(dtype, CUT + PACK)
    return Source(text, (*_tiles(dtype), _in(dtype, PANELS)))


def _tiles(dtype: DType) -> tuple[str, ...]:
    return (VECTORS, *header("apart"), *(QUADS,) * (dtype == int32), _in(dtype, TILES))


def packing(
    product: Product,
    dtype: DType,
    epilogue: str | None = None,
    operands: tuple[int, int] = (0, 1),
    shared: tuple[str, ...] = (),
    words: int = 3,
) -> Packing | None:
    """The product that may read a packed y; None where that is no faster, as for few or short rows.
    words: the position in `at` of those of a Keeping."""
    many = product.m >= FEWEST and product.n >= 64 // dtype.itemsize
    pays = many, _slow_in_place(product, dtype)
    if product.batches != 1 or product.n == 1 or _dots(product) or not any(pays):
        return None
    kernel = product_text(product, dtype, epilogue, operands, shared, words)
    keeps = Keeping(operands[1], packed_size(product, dtype) * dtype.itemsize)
    return Packing(kernel, keeps, pack_text(product, dtype), pays)


def _slow_in_place(p: Product, dtype: DType) -> bool:
    """True where a packed y saves about a tenth or more: where it would be packed at each call, for
    too few rows to hide that; and for few rows, where its lines lie far apart, so that a panel is
    read from many pages, or begin inside of vectors. To look whether it is there takes 0.1 us."""
    if p.y[1] != 1 or p.m > _unpacked(p):
        return p.m <= UNPACKED[0] and p.k * p.n >= 1 << 12
    line, far = p.y[0] * dtype.itemsize, 1024 if p.m <= 2 else 2048
    return p.m <= 8 and p.k * p.n >= 1 << 14 and (line >= far or line % LINE > 0)


def packed_size(product: Product, dtype: DType) -> int:
    """The elements of a packed y, on a machine with vectors of any width up to 64 bytes."""
    lanes = 64 // dtype.itemsize
    return product.k * -(-product.n // lanes) * lanes


# The templates' call of the epilogue; of a product by one column they compute the transpose.
_BY_ROW = "#define KERNEL_emit KERNEL_epilogue\n"
_BY_COLUMN = """\
static inline void KERNEL_emit(
    char *const *at, long batch, long j, long i, long count, const REAL *restrict sums) {
  for (long c = 0; c < count; ++c) KERNEL_epilogue(at, batch, i + c, j, 1, sums + c);
}
"""


def _dots(p: Product) -> bool:
    """True where x has few rows, and these and the columns of y are contiguous."""
    return p.m <= 4 and p.k >= 16 and p.x[1] == 1 and p.y[0] == 1


def _by_lines(p: Product) -> bool:
    """True where threads share few rows, and so few columns that a part of these would be pieces of
    pages, which leave a part of the caches empty."""
    few = p.batches == 1 and p.m < FEWEST and 128 <= p.n <= MOST_SUMS // p.m
    return few and p.y[1] == 1 and not _dots(p) and _split(p)[1] > 1


def stored(product: Product, dtype: DType, at: int = 2, accumulate: bool = False) -> str:
    """The epilogue that stores the sums in `at`, or adds them to what is there."""
    row, column = product.out
    index = f"{offset(product.axes, 2)} + i * {row}L + (j + c) * {column}L"
    return _in(
        dtype,
        f"""\
static inline void KERNEL_epilogue(
    char *const *at, long batch, long i, long j, long count, const REAL *restrict sums) {{
{NUMBERS}
  REAL *restrict out = (REAL *)at[{at}];
  MINIML_ROLLED
  for (long c = 0; c < count; ++c) out[{index}] {"+=" if accumulate else "="} sums[c];
}}
""",
    )


def _in(dtype: DType, text: str) -> str:
    return text.replace("REAL", {float64: "double", int32: "quad"}.get(dtype, "float"))


def _defines(constants: dict[str, str]) -> str:
    return "".join(f"#define KERNEL_{name} {value}\n" for name, value in constants.items())


def _constants(product: Product, operands: tuple[int, int]) -> dict[str, str]:
    p = product
    blocks, parts = _split(p)
    numbers = {
        "M": p.m, "N": p.n, "K": p.k, "BATCHES": p.batches, "BLOCKS": blocks, "PARTS": parts,
        "X": operands[0], "X_ROW": p.x[0], "X_COLUMN": p.x[1],
        "Y": operands[1], "Y_ROW": p.y[0], "Y_COLUMN": p.y[1], "OUT_ROW": p.out[0],
        "GROUP": GROUP if _copies(p) else 1, "LINES": DEPTH, "UNPACKED": _unpacked(p),
    }  # fmt: skip
    starts = {f"{name}_START": offset(p.axes, i) for i, name in enumerate(("X", "Y", "OUT"))}
    constants = {name: f"{number}L" for name, number in numbers.items()} | starts
    return constants | ({"COPIES": ""} if _copies(p) else {})


def _placed(words: int | None) -> dict[str, str]:
    """Constants: if y is packed, and where it is."""
    plain = "((const REAL *)at[KERNEL_Y] + KERNEL_Y_START)"
    if words is None:
        return {"PACKED": "0", "Y_AT": plain}
    word = f"((const int64_t *)at[{words}])"
    at = f"(KERNEL_PACKED ? (const REAL *)(intptr_t){word}[1] : {plain})"
    return {"PACKED": f"({word}[0] != 0)", "Y_AT": at}


def _unpacked(p: Product) -> int:
    """Rows up to which y is read in place: fewer where each tile would find what another one reads
    gone from the first cache, since lines 2048 bytes apart have a few places there."""
    return UNPACKED[p.y[0] % 512 == 0]


def _copies(p: Product) -> bool:
    """True where blocks of a transposed x are copied: their columns lie far apart and many panels
    read them, which would miss the caches each time."""
    return p.x[0] == 1 and p.x[1] >= 512 and p.k > DEPTH and p.n >= 256


def _split(p: Product) -> tuple[int, int]:
    """The blocks of rows of each product, and the parts that threads may compute: a power of 2, so
    that two or four threads get as much each."""
    read = p.n * p.k * p.batches
    worth = max(2 * p.m * read // UNSPLIT, read // STREAMED)
    parts = min(1 << max(worth, 1).bit_length() - 1, MOST_PARTS)
    panels = p.batches * -(-p.n // 64)
    blocks = max(-(-p.m // TALLEST), min(-(-parts // panels), p.m // 48), 1)
    return blocks, min(parts, panels * blocks)


def offset(axes: Sequence[Axis], array: int) -> str:
    """C for the offset of the matrix of `batch` in one of the arrays of these axes, in elements."""
    terms, inner = [], prod(extent for extent, _ in axes)
    for extent, steps in axes:
        inner //= max(extent, 1)
        if steps[array]:
            terms.append(f"batch / {inner}L % {extent}L * {steps[array]}L")
    return f"({' + '.join(terms) or '0'})"


class ProductKernel(NativeKernel):
    """MatMul by one product, perhaps stored transposed."""

    strided = True

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        product = product_of(node).folded
        self.source = product_text(product, node.outputs[0].dtype)
        self.packing = partial(packing, product, node.outputs[0].dtype)


for _name in ("MatMul", "TurnedMatMul"):
    kernel(_name, "cpu", "ff->f", "dd->d", provider="cc", total=True)(ProductKernel)


# --- Epilogues of matrix products -----------------------------------------------------------------


def epilogue(program: RowProgram, sums: int, rows: int) -> tuple[str, tuple[str, ...]]:
    """The text of `KERNEL_epilogue` for a product of `rows` rows, and the texts that it needs.

    program: the loops over the product's output, its last axis being the row; array number `sums`
    is the product, the others lie in `at` in their order.
    """
    return Epilogue(program, sums, rows).text()


class Epilogue(Loops):
    """The code of an epilogue: a piece of one row, whose elements a product has just computed."""

    def __init__(self, program: RowProgram, sums: int, rows: int):
        super().__init__(program)
        self.sums, self.count = sums, rows

    def text(self) -> tuple[str, tuple[str, ...]]:
        """The function, and the texts that it needs."""
        return "\n".join(self._lines()) + "\n", tuple(self.shared)

    def _lines(self) -> Iterator[str]:
        c = STORED[self.program.arrays[self.sums].dtype]
        yield "static inline void KERNEL_epilogue("
        yield "    char *const *at, long batch, long row, long j, long count,"
        yield f"    const {c} *restrict sums) {{"
        yield NUMBERS
        yield from self._pointers()
        yield from (f"  {line}" for line in self.body())
        yield "}"

    def _pointers(self) -> Iterator[str]:
        for i, array in enumerate(self.program.arrays):
            if i != self.sums:
                c = f"{'const ' * (i < self.program.inputs)}{STORED[array.dtype]} *"
                yield f"  {c}a{i} = ({c})at[{i - (i > self.sums)}];"

    def indices(self) -> Iterator[str]:
        yield f"const long r = batch * {self.count}L + row;"
        yield from super().indices()

    def last_axis(
        self, elements: Sequence[Statement], reduces: Sequence[Reduce], n: int
    ) -> Iterator[str]:
        yield "MINIML_APART MINIML_ROLLED"
        yield "for (long i = j; i < j + count; ++i) {"
        yield from (f"  {self.statement(s, True)}" for s in elements)
        yield "}"

    def statement(self, s: Statement, each: bool) -> str:
        if isinstance(s, Load) and s.array == self.sums:
            return self.set(s.value, "sums[i - j]")
        return super().statement(s, each)


# --- Linear systems, Cholesky factors and determinants of small matrices --------------------------

LARGEST = 128  # rows; LAPACK takes the matrices that have more
_COLUMNS, _FEWER = 32, 8  # of right sides that are solved at a time; of several matrices
_LANES = 8  # matrices in the widest vector
_MOST = 8  # parts of a kernel, each with room of its own
_SPLIT = 200_000  # multiplications, some 50 us, from which on matrices are divided


class OfMatrices(NativeKernel):
    """A function of small matrices; of larger ones the kernel that ranks next, called in Python."""

    strided = True

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        n = node.inputs[0].shape[-1]
        if n > LARGEST:
            self._delegate(node)
            return
        count, k = prod(node.inputs[0].shape[:-2]), self.columns(node)
        self.parts = max(1, min(_MOST, count // _LANES, count * n * n * (n + 3 * k) // 3 // _SPLIT))
        fewest = 2 + min(n + k, 64) // 16
        wide = count >= fewest
        self.room = (_LANES if wide else 1) * max(1, n * (n + min(k, _COLUMNS)))
        constants = self.constants(node) | {
            node.name: 1,
            "T": C_TYPES[node.inputs[0].dtype],
            "N": f"{n}L",
            "COUNT": f"{count}L",
            "PARTS": f"{self.parts}L",
            "ROOM": f"{self.room}L",
            "WORK": len(node.inputs) + len(node.outputs),
            "FEWEST": fewest,
            "SIDE": "MINIML_LANES_double" if wide else 1,
            "wide_LANES": "KERNEL_SIDE",
            "one_LANES": 1,
        }
        forms = [_FORM.replace("NAME", f"KERNEL_{name}") for name in ("wide", "one")[not wide :]]
        shared = *(VECTORS,) * wide, *header("types"), *header("apart")
        self.source = defined(constants, "".join([*forms, _STACKS]), shared)

    def columns(self, node: KernelNode) -> int:
        """The number of right sides."""
        return 0

    def constants(self, node: KernelNode) -> dict[str, Any]:
        """Numbers in the text: where the matrices of each input lie."""
        shape = node.inputs[0].shape[:-2]
        strides = [self._strides(node, i) for i in range(len(node.inputs))]
        axes = merged(shape, [own[:-2] for own in strides])
        found: dict[str, Any] = {}
        for i, own in enumerate(strides):
            found |= {f"ROW{i}": f"{own[-2]}L", f"COLUMN{i}": f"{own[-1]}L"}
            found[f"START{i}"] = offset(axes, i)
        return found

    def _strides(self, node: KernelNode, index: int) -> tuple[int, ...]:
        own = node.strides[index] if node.strides else None
        return own or dense_strides(node.inputs[index].shape, 1)

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (ArraySpec((self.parts * self.room,), float64),) if self.native else ()

    def _delegate(self, node: KernelNode) -> None:
        entry = node.target.without("cc").select(node.name, node.inputs, node.outputs).entry
        self.native, self.reason = False, f"large: by the kernel of provider {entry.provider!r}"
        self.other, self.body_of_other = entry.made(), entry.body
        if self.other is not None:
            self.other.prepare(node)

    def launch(self, inputs: Arrays, workspace: Arrays, outputs: Arrays, stream: Any) -> None:
        if self.native:
            super().launch(inputs, workspace, outputs, stream)
        elif self.other is not None:
            self.other.launch(inputs, workspace, outputs, stream)
        else:
            out = outputs if len(outputs) > 1 else outputs[0]
            self.body_of_other(*inputs, out=out, **self.node.attrs)


class Solved(OfMatrices):
    """Solutions for right sides."""

    def columns(self, node: KernelNode) -> int:
        return node.inputs[1].shape[-1]

    def constants(self, node: KernelNode) -> dict[str, Any]:
        k = self.columns(node)
        blocks = {"wide_BLOCK": f"{min(k, _FEWER)}L", "one_BLOCK": f"{min(k, _COLUMNS)}L"}
        return super().constants(node) | {"K": f"{k}L"} | blocks


class SolvedTriangle(Solved):
    """Solutions by the triangle of a matrix."""

    def constants(self, node: KernelNode) -> dict[str, Any]:
        found, attrs = super().constants(node), node.attrs
        if attrs["transpose"]:
            found |= {"ROW0": found["COLUMN0"], "COLUMN0": found["ROW0"]}
        upwards, unit = attrs["upper"] != attrs["transpose"], attrs["unit_diagonal"]
        return found | {"UPWARDS": int(upwards), "UNIT": int(unit)}


for _name, _body, _signatures in (
    ("Cholesky", OfMatrices, ("f->f", "d->d")),
    ("Det", OfMatrices, ("f->f", "d->d")),
    ("SlogDet", OfMatrices, ("f->ff", "d->dd")),
    ("Solve", Solved, ("ff->f", "dd->d")),
    ("TriangularSolve", SolvedTriangle, ("ff->f", "dd->d")),
):
    kernel(_name, "cpu", *_signatures, provider="cc")(_body)


# --- Attention ------------------------------------------------------------------------------------


QUERIES = 64  # of a block, at most: 4 vectors of 512 bits, as wide as a tile
KEYS = 96  # of a block, at most: 24 KB of scores in float32
ROWS = 6  # rows of a tile
SHARED_FROM = 4_000_000  # multiplications and additions from which on threads share the work: 25 us
PARTS = 16  # that threads may compute, each with scratch memory of its own
SUMS = 8  # parts that may have dk and dv of their own, of the size of k and v of one matrix

_SHARED = dict.fromkeys((*header("exp"), *header("log"), *header("philox")))


class Sizes:
    """The sizes of a node's arrays: T queries, S keys, of E and F numbers, in so many batches."""

    def __init__(self, node: KernelNode):
        q, _, v = (x.shape for x in node.inputs[:3])
        self.dtype = node.inputs[0].dtype
        self.lead, (self.t, self.e), (self.s, self.f) = q[:-2], q[-2:], v[-2:]
        self.batches = prod(self.lead)
        self.blocks = max(-(-self.t // QUERIES), 1)
        self.lanes = self.padded(max(-(-self.t // self.blocks), 1))
        self.keys = max(min(KEYS, self.s), 1)
        self.masked = not node.constant(3, _hides_nothing)
        self.drops = bool(node.attrs["dropout"])
        self.causal = bool(node.attrs["causal"])

    def padded(self, count: int) -> int:
        """A number of elements rounded up to a multiple of those in a cache line."""
        lanes = LINE // self.dtype.itemsize
        return -(-count // lanes) * lanes

    def room(self, depth: int) -> int:
        """The scratch elements in which a block transposes its mask and draws, or its results of
        so many numbers."""
        transposed = 2 * self.keys if self.masked or self.drops else 0
        return self.lanes * max(self.padded(depth), transposed)

    @property
    def numbers(self) -> dict[str, int]:
        names = ("t", "s", "e", "f", "batches", "blocks", "lanes", "keys")
        heights = self.heights
        own = {"HEIGHTS": sum(1 << rows for rows in heights), "TALLEST": max(heights)}
        return {name.upper(): getattr(self, name) for name in names} | own

    @property
    def heights(self) -> set[int]:
        """The rows of the tiles of which products have E, F, or as many rows as a block of queries
        takes keys at a time."""
        last = ((block + 1) * self.t // self.blocks for block in range(self.blocks))
        seen = {min(end, self.s) for end in last} if self.causal else {self.s}
        rows = {self.e, self.f, *(end % self.keys for end in seen)}
        rows |= {self.keys} if max(seen) >= self.keys else set()
        tiles = {(count, -(-count // ROWS)) for count in rows if count}
        return {end // n for count, n in tiles for end in (count, count + n - 1)} or {1}


class Attending(NativeKernel):
    """A kernel of attention of float32 or float64; text: the file that goes with `attention.c`."""

    strided = True
    text: ClassVar[str]

    def prepare(self, node: KernelNode) -> None:
        super().prepare(node)
        sizes = Sizes(node)
        numbers = sizes.numbers | self.divided(sizes, node)
        self.scratch = ArraySpec((numbers["PARTS"] * numbers["SCRATCH"],), sizes.dtype)
        self.own = (np.array(node.attrs["skip"], np.uint64),)
        real = "double" if sizes.dtype == float64 else "float"
        words = {name: f"{number}L" for name, number in numbers.items()}
        words |= _words(node, sizes, real) | _steps(node, sizes)
        defines = "".join(f"#define KERNEL_{name} {word}\n" for name, word in words.items())
        work = 2 * sizes.batches * sizes.t * sizes.s * (sizes.e + sizes.f)
        texts = defines, run_by(work > SHARED_FROM), template("attention.c"), template(self.text)
        shared = VECTORS, TILES.replace("REAL", real), *_SHARED
        self.source = Source("".join(texts).replace("REAL", real), shared)

    def divided(self, sizes: Sizes, node: KernelNode) -> dict[str, int]:
        """The number of parts that threads may compute, the scratch memory of each, and the number
        of runs of blocks into which a batch is split."""
        raise NotImplementedError

    def workspace(self) -> tuple[ArraySpec, ...]:
        return (self.scratch,)


class Attention(Attending):
    """softmax(q k^T scale + mask) v, and the logarithms of the sums; a unit of work is a block."""

    text = "attention_forward.c"

    def divided(self, sizes: Sizes, node: KernelNode) -> dict[str, int]:
        scratch = sizes.lanes * (sizes.e + sizes.keys + sizes.f) + sizes.room(sizes.f)
        return {"PARTS": min(PARTS, sizes.batches * sizes.blocks), "SCRATCH": scratch}


class AttentionGrad(Attending):
    """dq, dk and dv; parts that share a batch have sums of dk and dv of their own."""

    text = "attention_grad.c"

    def divided(self, sizes: Sizes, node: KernelNode) -> dict[str, int]:
        splits = max(min(SUMS // max(sizes.batches, 1), sizes.blocks), 1)
        e, f = sizes.padded(sizes.e), sizes.padded(sizes.f)
        lines = 2 * sizes.e + e + sizes.f + f + 2 * sizes.keys
        scratch = sizes.s * (e + f) + sizes.lanes * lines + sizes.room(sizes.e)
        return {"PARTS": min(SUMS, sizes.batches * splits), "SPLITS": splits, "SCRATCH": scratch}


class AttentionMaskGrad(Attending):
    """dmask; parts have other rows of it, or other matrices along the first axis."""

    text = "attention_mask_grad.c"

    def divided(self, sizes: Sizes, node: KernelNode) -> dict[str, int]:
        (out,) = node.outputs
        *steps, row, _ = broadcast_steps(out.shape, (*sizes.lead, sizes.t, sizes.s))
        groups = sizes.lead[0] if steps and steps[0] else 1
        splits = sizes.blocks if row else 1
        scratch = sizes.lanes * (sizes.e + sizes.f + 2 * sizes.keys) + sizes.room(sizes.keys)
        return {
            "PARTS": min(PARTS, groups * splits), "SPLITS": splits, "SCRATCH": scratch,
            "GROUPS": groups, "SIZE": prod(out.shape),
        }  # fmt: skip


def _words(node: KernelNode, sizes: Sizes, real: str) -> dict[str, str]:
    """The macros of the types, the scale and the mask."""
    bits = str(8 * sizes.dtype.itemsize)
    words = {
        "CAUSAL": str(int(sizes.causal)),
        "SCALE": f"(({real}){float(node.attrs['scale']).hex()})",
        "EXP": f"miniml_exp_float{bits}",
        "WEIGHT": f"miniml_weight_float{bits}",
        "LOG": f"miniml_log_float{bits}",
        "PADDED(n)": f"(((n) * {sizes.dtype.itemsize}L + {LINE - 1}L) / {LINE}L"
        f" * {LINE // sizes.dtype.itemsize}L)",
    }
    if sizes.drops:
        kept = 1.0 - node.attrs["dropout"]
        words |= {
            "DROPS": "1",
            "SKIP": str(len(node.inputs) + len(node.outputs) + 1),  # after the scratch memory
            "THRESHOLD": f"{ceil(kept * 2.0**24)}u",
            "KEPT": f"(({real}){(1.0 / kept if kept else 0.0).hex()})",
        }
    if not sizes.masked:
        return words
    if node.inputs[3].dtype == bool_:
        return words | {"MASK": "uint8_t", "MASKED(x, m)": "((m) != 0 ? (x) : -INFINITY)"}
    return words | {"MASK": real, "MASKED(x, m)": "((x) + (m))"}


def _steps(node: KernelNode, sizes: Sizes) -> dict[str, str]:
    """The macros of the offset of `batch`'s matrices in each input, and of their strides."""
    count = len(sizes.lead)
    full = (*sizes.lead, sizes.t, sizes.s)
    steps = dict(zip(("Q", "K", "V", "M", "STATE", "LSE", "DELTA", "DOUT"), steps_of(node)))
    words = {"STATE_STEP": f"{steps.pop('STATE')[0]}L"}
    steps["M"] = broadcast_steps(node.inputs[3].shape, full, steps["M"])
    steps["OUT"] = broadcast_steps(node.inputs[3].shape, full)
    for name, own in steps.items():
        words[f"{name}_START"] = offset(merged(sizes.lead, [own[:count]]), 0)
        words |= {f"{name}_{a}": f"{s}L" for a, s in zip(("ROW", "COLUMN"), own[count:])}
    return words


def _hides_nothing(mask: Array) -> bool:
    return mask.dtype == bool_ and bool(mask.all())


_NAME = "ScaledDotProductAttention"
for _name, _class, _patterns in (
    (_NAME, Attention, ATTENTION),
    (f"{_NAME}Grad", AttentionGrad, ATTENTION_GRAD),
    (f"{_NAME}MaskGrad", AttentionMaskGrad, ATTENTION_MASK_GRAD),
):
    kernel(_name, "cpu", *with_sums(WIDE, *_patterns), provider="cc", total=True)(_class)
