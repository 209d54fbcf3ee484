"""Functions and modules of PyTorch as functions and networks here: `from_torch`, `import_torch`.

In order: `from_torch`; functions of trees; what is refused; flat functions, which torch computes;
modules as Cells, with shared memory; `import_torch`, modules as graphs by way of ONNX.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np
import optree

from ..backends.selection import get_device
from ..core.abstract import Abstract
from ..core.errors import DTypeError, GraphError, MinimlError
from ..core.tensor import Array, Tensor
from ..core.trace import current_trace
from ..graph.ir import Graph
from ..nn.cell import Cell
from ..onnx.reader import load
from ..onnx.tensors import wheel
from .foreign import Adopted, Foreign, gradient_types, shared_parameter
from .pytorch import DTYPES, array_in, memory_in, tensor_in, tensor_out, torch, type_of

_Module: Any = torch.nn.Module


def from_torch(fn: Any, *example: Any) -> Any:
    """A function of torch tensors, or a torch.nn.Module, as one of miniml's tensors.

    Values and gradients, of any order, pass through torch: in a graph it is one node without
    effects, so that it stands in `train_step` and `jit` too. fn takes and gives trees of tensors of
    the CPU, or of the GPU that cupy uses, which share their memory; other arguments are constants.
    example: arguments with which it is tried now, arrays or tensors; without them it is tried when
    it is first called, on zeros. A module becomes a Cell whose Parameters are the memory of the
    module's, on the device where the module is.

    GraphError where fn is not a function of its arguments alone: it draws random numbers, or
    writes to an argument or a buffer, as in training mode; call module.eval(). MinimlError: torch
    is not installed.

    >>> import torch
    >>> from miniml.grad import grad
    >>> cosine = from_torch(torch.cos)
    >>> grad(lambda x: cosine(x).sum())(np.array([0.0, 1.0]))
    Tensor([-0.        , -0.84147098], shape=(2,), dtype=float64)
    """
    if isinstance(fn, torch.nn.Module):
        made: Any = TorchCell(fn)
    elif callable(fn):
        made = Imported(from_torch, fn)
    else:
        raise MinimlError(f"from_torch got {fn!r}; it takes a function of tensors, or a module")
    if example:
        made(*example)
    return made


class Imported(Adopted):
    """A function of trees of torch tensors, as one of trees of tensors."""

    module: Any = None  # the module whose call the function is

    def ours(self, leaf: Any) -> Any:
        """A tensor of torch, or an array, as a tensor."""
        if isinstance(leaf, torch.Tensor):
            return tensor_in(leaf)
        known = isinstance(leaf, (np.ndarray, np.generic)) and not isinstance(leaf, Tensor)
        return Tensor(leaf) if known else leaf

    def outputs(self, out: Any) -> tuple[list[Any], Any]:
        """The tensors that the function returned, and their structure."""
        leaves, spec = optree.tree_flatten(out, none_is_leaf=True)
        bad = next((leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)), None)
        if bad is not None or not leaves:
            what = "nothing" if not leaves else f"a {type(bad).__name__}"
            raise DTypeError(
                f"{self.__name__} returned {what}; from_torch takes functions that return tensors"
            )
        return leaves, spec

    def foreign(self, flat: Callable[..., Any], types: Sequence[Abstract], device: str) -> Foreign:
        """The flat function, after a call on zeros."""
        xs = [torch.zeros(t.shape, dtype=DTYPES[t.dtype], device=device) for t in types]
        _refuse_effects(self.__name__, flat, xs, self.module)
        return _FromTorch(self.__name__, flat, len(types), len(flat(*xs)), device)


def _refuse_effects(name: str, fn: Callable[..., Any], xs: Sequence[Any], module: Any) -> None:
    """GraphError for a function that does more than to return values, or returns others if called
    again."""
    random: Any = torch.cuda if any(x.is_cuda for x in xs) else torch
    state = random.get_rng_state()
    buffers = {} if module is None else {n: (b, b.clone()) for n, b in module.named_buffers()}
    versions = [x._version for x in xs]
    with torch.no_grad():
        fn(*xs)
    drew = not torch.equal(state, random.get_rng_state())
    random.set_rng_state(state)
    changed = [n for n, (b, old) in buffers.items() if not torch.equal(b, old)]
    with torch.no_grad():
        for n in changed:
            buffers[n][0].copy_(buffers[n][1])
    wrote = [i for i, (x, v) in enumerate(zip(xs, versions, strict=True)) if x._version != v]
    if not (drew or changed or wrote):
        return
    what = "draws random numbers" if drew else f"writes to argument {wrote[0]}" if wrote else ""
    what = what or f"writes to the buffer {changed[0]}"
    raise GraphError(
        f"from_torch refuses {name}, which {what}: here it has no effects, and its gradient runs "
        "it again; " + ("call module.eval() first" if module is not None else "return the values")
    )


class _FromTorch(Foreign):
    """A flat function of torch tensors, computed by torch on its device, "cpu" or "cuda"."""

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        count: int,
        outputs: int,
        device: str = "cpu",
        pulls: int = 0,
    ):
        super().__init__(name, count, outputs)
        self.fn, self.device, self.pulls = fn, device, pulls
        self.on_gpu = device == "cuda"

    def run(self, *arrays: Any) -> list[Any]:
        """The outputs, by torch: on a GPU on the stream of what is launched here, in whose order
        memory is then reused by torch and by cupy."""
        with torch.no_grad(), _stream_of(self.device):
            if self.pulls and not self.on_gpu:  # cotangents as torch itself lays them out
                arrays = tuple([a if a.flags.c_contiguous else a.copy("C") for a in arrays])
            outs = self.fn(*map(_borrowed, arrays))
            return list(map(array_in, outs))

    def types(self, inputs: tuple[Abstract, ...]) -> tuple[Abstract, ...]:
        """The types of the outputs, by fake tensors; by zeros where it does not run on these."""
        if self.pulls:
            return gradient_types(inputs, self.outputs)
        shapes = [(t.shape, DTYPES[t.dtype]) for t in inputs]
        with torch.no_grad():
            try:
                with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
                    fakes = [torch.empty(s, dtype=d, device=self.device) for s, d in shapes]
                    return tuple(map(type_of, self.fn(*fakes)))
            except Exception:  # whatever torch has no fake for
                xs = [torch.zeros(s, dtype=d, device=self.device) for s, d in shapes]
                return tuple(map(type_of, self.fn(*xs)))

    def pulled(self) -> Foreign:
        """The gradients, by torch.autograd."""
        count = self.count

        def pull(*values: Any) -> list[Any]:
            again = torch.is_grad_enabled()
            with torch.enable_grad():
                xs = [_wanted(x) for x in values[:count]]
                floats = [x for x in xs if x.dtype.is_floating_point]
                pairs = zip(self.fn(*xs), values[count:], strict=True)
                kept = [(o, d) for o, d in pairs if o.requires_grad]
                found = iter(
                    torch.autograd.grad(
                        [o for o, _ in kept], floats, [d for _, d in kept],
                        create_graph=again, allow_unused=True, materialize_grads=True,
                    ) if kept else map(torch.zeros_like, floats)
                )  # fmt: skip
            return [
                next(found) if x.dtype.is_floating_point else x.new_zeros(0, dtype=_F32) for x in xs
            ]

        pulls = self.pulls + 1
        name, inputs = f"{self.name}_bprop", count + self.outputs
        return _FromTorch(name, pull, inputs, count, self.device, pulls)


_F32 = torch.float32


def _stream_of(device: str) -> AbstractContextManager[object]:
    """torch's current stream is that of what is launched here."""
    if device == "cpu":
        return nullcontext()
    found: AbstractContextManager[object] = torch.cuda.stream(
        torch.cuda.ExternalStream(get_device(device).stream.ptr)
    )
    return found


def _wanted(x: Any) -> Any:
    """A tensor that autograd follows, if it is a float."""
    follow = x.dtype.is_floating_point and not x.requires_grad
    return x.detach().requires_grad_() if follow else x


def _borrowed(array: Any) -> Any:
    """A torch tensor around an array that torch will not write to."""
    if not isinstance(array, np.ndarray):
        return tensor_out(array)
    if any(stride < 0 for stride in array.strides):  # torch has no tensors like that
        array = array.copy()
    elif not array.flags.writeable:
        array = np.asarray(_Writable(array))
    return tensor_out(array)


class _Writable:
    """The memory of a read-only array, which torch cannot take without a warning."""

    def __init__(self, array: Array):
        self.array = array
        interface = dict(array.__array_interface__)
        interface["data"] = interface["data"][0], False
        self.__array_interface__ = interface


class _Part(Cell):
    """A part of a module of torch, which holds its parameters."""


class TorchCell(Cell):
    """A module of torch as a network; `module` is the module, with which it shares memory.

    Whether it trains is up to the module: from_torch takes those without effects. MinimlError once
    the module has other parameters, or has them in other memory.
    """

    silent = True  # torch tells nobody when a module changes

    def __init__(self, module: Any):
        self.module = module
        parts: dict[str, Cell] = {"": self}
        for path, parameter in module.named_parameters():
            above, _, last = path.rpartition(".")
            shared = shared_parameter(memory_in(parameter), path, parameter.requires_grad)
            setattr(_part(parts, above), last, shared)
        self.imported = Imported(from_torch, self._run, type(module).__name__)
        self.imported.module = module
        self.homes = self._homes()

    def _homes(self) -> tuple[tuple[str, int], ...]:
        """Where the module's parameters lie, by their paths."""
        return tuple([(path, p.data_ptr()) for path, p in self.module.named_parameters()])

    def _modes(self) -> tuple[bool, ...]:
        """Which parts of the module are training."""
        return tuple([part.training for part in self.module.modules()])

    @property
    def signature(self) -> tuple[object, ...]:
        """That of a Cell, and what a call of the module depends on besides."""
        return *super().signature, self._homes(), self._modes()

    def _run(self, weights: Any, modes: object, *args: Any, **named: Any) -> Any:
        """The module with other values for its parameters. modes: those that it is in."""
        dtypes = {w.dtype for w in weights.values()}
        held = dict(weights)
        if len(dtypes) == 1:  # buffers follow, as they would with module.to(dtype)
            (dtype,) = dtypes
            floats = [(n, b) for n, b in self.module.named_buffers() if b.is_floating_point()]
            held |= {n: b.to(dtype) for n, b in floats if b.dtype != dtype}
        return torch.func.functional_call(self.module, held, args, named)

    def construct(self, *args: Any, **named: Any) -> Any:
        """The module's output."""
        moved = [path for path, _ in {*self.homes} ^ {*self._homes()}]
        if moved:
            raise MinimlError(
                f"from_torch of {self.imported.__name__} does not share {min(moved)}, which the "
                "module got, lost or moved later; make the Cell again, from_torch(module)"
            )
        held = self.parameters_dict()
        weights = {path: current_trace().stand_in(held[path]) for path, _ in self.homes}
        return self.imported(weights, self._modes(), *args, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are Cells around a copy of the module, whose memory they share."""
        return _copied, (self.module, [p.requires_grad for p in self.get_parameters()])


def _copied(module: Any, wanted: Sequence[bool]) -> TorchCell:
    made = TorchCell(module)
    for parameter, requires_grad in zip(made.get_parameters(), wanted, strict=True):
        parameter.requires_grad = requires_grad
    return made


def _part(parts: dict[str, Cell], path: str) -> Cell:
    """The cell at a path, made where it is missing."""
    if path not in parts:
        above, _, last = path.rpartition(".")
        parts[path] = _Part()
        setattr(_part(parts, above), last, parts[path])
    return parts[path]


# --- Modules as graphs ----------------------------------------------------------------------------


def import_torch(module: Any, *example: Any) -> Graph:
    """A torch.nn.Module as a Graph of miniml's own operations, by way of ONNX.

    torch is needed for this call alone: the graph computes, trains and compiles here, for arguments
    of the types of `example`, tensors or arrays. Its Parameters are copies, under the module's
    names; what the module does not train, buffers and frozen parameters, is not trained here
    either. The module is taken in the mode in which it is: call `module.eval()` for inference.
    torch's newer exporter is used where the package onnxscript is installed, else the older one.

    MinimlError: no module, no example, a module that torch cannot export, or torch or onnx are
    not installed. OnnxError: an operator that miniml does not read.

    >>> import torch
    >>> graph = import_torch(torch.nn.Linear(3, 2).eval(), torch.ones(4, 3))
    >>> [p.name for p in graph.trainable_params()], graph(np.ones((4, 3), np.float32)).shape
    (['weight', 'bias'], (4, 2))
    """
    if not isinstance(module, torch.nn.Module) or not example:
        raise MinimlError(
            f"import_torch got {type(module).__name__} and {len(example)} arguments; the call is "
            "import_torch(module, *example), with arguments of the types that the graph will take"
        )
    exported = _Exported(module)
    graph = load(exported.model(tuple(map(_as_theirs, example))), train_constants=False)
    every = module.named_parameters(remove_duplicate=False)
    fixed = {name for name, p in every if not p.requires_grad}
    fixed |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    for parameter in graph.trainable_params():
        parameter.name = parameter.name.removeprefix("module.")
        parameter.requires_grad = parameter.name not in fixed
    return graph


def _as_theirs(value: Any) -> Any:
    return value if isinstance(value, torch.Tensor) else tensor_out(np.array(value))


class _Exported(_Module):  # type: ignore[misc]
    """A module as torch's exporters take it, so that each of its tensors is in the file by name.

    The older exporter makes one initializer of tensors that are equal, as new norms have them, but
    where the outermost module trains: this one does, around the other, which keeps its own mode.
    """

    def __init__(self, module: Any):
        super().__init__()
        self.module = module
        self.training = True

    def forward(self, *args: Any) -> Any:
        """The module's output."""
        return self.module(*args)

    def model(self, example: tuple[Any, ...]) -> Any:
        """The ModelProto."""
        onnx, new = wheel(), find_spec("onnxscript") is not None
        file = BytesIO()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the exporters' own future
                if new:
                    return torch.onnx.export(
                        self, example, dynamo=True, optimize=False, verbose=False
                    ).model_proto
                torch.onnx.export(
                    self, example, file, dynamo=False, do_constant_folding=False,
                    training=torch.onnx.TrainingMode.PRESERVE,
                )  # fmt: skip
        except Exception as error:  # whatever it meets in a module
            more = "" if new else "; torch has a newer exporter: pip install onnxscript"
            raise MinimlError(
                f"import_torch cannot export {type(self.module).__name__}: torch's exporter says "
                f"{type(error).__name__}: {error}{more}"
            ) from error
        return onnx.load_from_string(file.getvalue())
