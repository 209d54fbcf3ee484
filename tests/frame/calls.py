"""From a row's samples to calls: tensors, references, and every kernel that takes them."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from miniml.abstract import Abstract
from miniml.arguments import arguments
from miniml.backends import registry
from miniml.backends.kernel import Kernel, KernelEntry, KernelNode
from miniml.backends.signature import ArraySpec
from miniml.dtype import ALL, DType, from_letter, is_float
from miniml.graph.ir import interleave
from miniml.infer import infer
from miniml.primitive import Primitive
from miniml.tensor import Tensor
from miniml.testing import OpInfo, Sample
from miniml.trace import current_trace


def dtypes_of(row: OpInfo) -> tuple[DType, ...]:
    """The working dtypes of a row: its own letters, or the kernel table's for input 0."""
    if row.dtypes is not None:
        return tuple(map(from_letter, row.dtypes))
    entries = registry.table.get((row.primitive.name, "cpu"), [])
    found = {(e.signature.inputs or e.signature.outputs)[0] for e in entries}
    return tuple(d for d in ALL if d in found)


def rng_of(*words: object) -> np.random.Generator:
    """A generator that depends on the words only, so that a test draws the same alone."""
    return np.random.default_rng(zlib.crc32("-".join(map(str, words)).encode()))


@dataclass(frozen=True)
class Call:
    """One sample, made ready: the primitive, its inputs as bind would pass them on."""

    row: OpInfo
    sample: Sample
    primitive: Primitive
    arrays: tuple[np.ndarray, ...]
    consts: dict[str, Any]

    @property
    def attrs(self) -> dict[str, Any]:
        return {**self.primitive.attributes, **self.consts}

    @property
    def inferred(self) -> tuple[Abstract, ...]:
        abstracts = [Abstract(a.shape, a.dtype) for a in self.arrays]
        return infer(self.primitive, interleave(self.primitive, abstracts, self.consts))

    @property
    def terms(self) -> int:
        """A bound on the number of terms in any sum the call can make."""
        return max([1, *(a.size for a in self.arrays)])

    def entries(self) -> list[KernelEntry]:
        """Every CPU kernel, of every provider, that takes and gives these dtypes as they are."""
        dtypes = tuple(a.dtype for a in self.arrays)
        table = registry.table.get((self.primitive.name, "cpu"), [])
        found = [e for e in table if registry.supported(e) and e.signature.accepts(dtypes)]
        if self.primitive.dynamic_outputs:
            return found
        outs = tuple(a.dtype for a in self.inferred)
        return [e for e in found if e.signature.gives(outs)]

    def args(self, arrays: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Arguments of the primitive, const inputs in their places."""
        tensors = list(self.arrays if arrays is None else arrays)
        return tuple(interleave(self.primitive, tensors, self.consts))

    def run(self, arrays: tuple[Any, ...] | None = None) -> tuple[np.ndarray, ...]:
        """The call, eagerly."""
        outs = self.primitive(*self.args(arrays))
        return tuple(o.asnumpy() for o in as_tuple(outs))

    def __str__(self) -> str:
        shapes = ", ".join(str(Abstract(a.shape, a.dtype)) for a in self.arrays)
        consts = "".join(f", {k}={v!r}" for k, v in self.consts.items())
        return f"{self.primitive!r}({shapes}{consts})"


def calls(row: OpInfo, dtype: DType, rng: np.random.Generator) -> Iterator[Call]:
    """The row's samples for a working dtype."""
    for sample in row.samples(rng, dtype):
        primitive = row.primitive(**sample.attrs)
        tensors, consts = arguments(primitive, sample.inputs, current_trace().bind)
        arrays = tuple(t.asnumpy() for t in tensors)
        yield Call(row, sample, primitive, arrays, consts)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def wide(value: Any) -> Any:
    """A float array in float64; anything else as it is."""
    if isinstance(value, Tensor):
        value = value.asnumpy()
    if isinstance(value, np.ndarray) and is_float(value.dtype):
        return value.astype(np.float64)
    return value


def reference(call: Call, inputs: tuple[Any, ...] | None = None) -> tuple[np.ndarray, ...]:
    """What the row's reference says of a call: one array per output."""
    assert call.row.reference is not None
    given = call.args() if inputs is None else inputs
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = call.row.reference(*map(wide, given), **call.sample.attrs)
    outs = as_tuple(result) if not call.primitive._single else (result,)
    return tuple(np.asarray(wide(np.asarray(o))) for o in outs)


def run_entry(
    entry: KernelEntry, call: Call, arrays: tuple[np.ndarray, ...], outs: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, ...]:
    """Launch one kernel into `outs`; view kernels and dynamic ones give their own arrays."""
    body: Any = entry.body
    with np.errstate(all="ignore"):
        if entry.view is not None or call.primitive.dynamic_outputs:
            return as_tuple(body(*arrays, **call.attrs))
        ins, filled = (
            tuple(ArraySpec(a.shape, a.dtype) for a in group) for group in (arrays, outs)
        )
        node = KernelNode(call.primitive.name, ins, filled, call.attrs)
        if isinstance(body, type) and issubclass(body, Kernel):
            _launch(body(), node, arrays, outs)
        else:
            given = (
                partial(body, **call.attrs) if entry.specialize is None else entry.specialize(node)
            )
            given(*arrays, out=outs[0] if call.primitive._single else outs)
    return outs


def _launch(
    kernel: Kernel,
    node: KernelNode,
    arrays: tuple[np.ndarray, ...],
    outs: tuple[np.ndarray, ...],
) -> None:
    kernel.prepare(node)
    scratch = tuple(np.full(w.shape, 7, w.dtype) for w in kernel.workspace())
    kernel.launch(arrays, scratch, outs, None)
    kernel.release()


def poisoned(call: Call, byte: int) -> tuple[np.ndarray, ...]:
    """Output buffers filled with one byte (with False or True where they are bools)."""
    if call.primitive.dynamic_outputs:
        return ()
    outs = []
    for abstract in call.inferred:
        out = np.empty(abstract.shape, abstract.dtype)
        out.reshape(-1).view(np.uint8)[...] = byte & 1 if out.dtype == bool else byte
        outs.append(out)
    return tuple(outs)
