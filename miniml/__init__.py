"""miniml: define a primitive with a gradient, check it, and train small networks with it."""

import importlib
import sys
import typing

from . import compat as compat
from .backends.kernel import Kernel as Kernel
from .backends.kernel import Launch as Launch
from .backends.registry import elementwise_kernel as elementwise_kernel
from .backends.registry import kernel as kernel
from .backends.registry import raw_kernel as raw_kernel
from .backends.registry import view_kernel as view_kernel
from .core import errors as errors
from .core import hints
from .core.abstract import ArraySpec as ArraySpec
from .core.abstract import KernelAttr as KernelAttr
from .core.abstract import bfloat16 as bfloat16
from .core.abstract import bool_ as bool_
from .core.abstract import complex64 as complex64
from .core.abstract import complex128 as complex128
from .core.abstract import float16 as float16
from .core.abstract import float32 as float32
from .core.abstract import float64 as float64
from .core.abstract import int8 as int8
from .core.abstract import int16 as int16
from .core.abstract import int32 as int32
from .core.abstract import int64 as int64
from .core.abstract import uint8 as uint8
from .core.abstract import uint16 as uint16
from .core.abstract import uint32 as uint32
from .core.abstract import uint64 as uint64
from .core.infer import infer_rule as infer_rule
from .core.parameter import Generator as Generator
from .core.parameter import Parameter as Parameter
from .core.parameter import manual_seed as manual_seed
from .core.parameter import random_state as random_state
from .core.primitive import Primitive as Primitive
from .core.primitive import PrimitiveWithCheck as PrimitiveWithCheck
from .core.primitive import PrimitiveWithInfer as PrimitiveWithInfer
from .core.primitive import prim_attr_register as prim_attr_register
from .core.settings import GRAPH_MODE as GRAPH_MODE
from .core.settings import PYNATIVE_MODE as PYNATIVE_MODE
from .core.settings import context as context
from .core.settings import set_context as set_context
from .core.tensor import Tensor as Tensor
from .core.trace import install_eager as _install_eager

from . import ops as ops  # isort: skip
from .backends import cpu as cpu
from .graph.passes import register_pass as register_pass
from .graph.passes import register_rule as register_rule
from .graph.passes import schedule_pass as schedule_pass
from .graph.passes import unregister_pass as unregister_pass
from .graph.tracing import trace as trace
from .runtime.eager import EagerTrace as _EagerTrace
from .runtime.jit import jit as jit
from .runtime.observe import debug_nans as debug_nans
from .runtime.observe import hooks as hooks

__version__ = "0.2.0"

# Modules that stood elsewhere before: programs import from these paths.
_STOOD = {
    name: f"core.{name}" for name in "abstract errors infer parameter primitive tensor".split()
}
for _path, _home in {
    **_STOOD,
    "dtype": "core.abstract",
    "ops.validator": "compat.validator",
}.items():
    _module = importlib.import_module(f"{__name__}.{_home}")
    _parent, _, _name = f"{__name__}.{_path}".rpartition(".")
    setattr(sys.modules[_parent], _name, _module)
    sys.modules[f"{_parent}.{_name}"] = _module

_install_eager(_EagerTrace())


if typing.TYPE_CHECKING:  # checkers read the imports
    from . import array_api as array_api
    from . import data as data
    from . import distributed as distributed
    from . import export as export
    from . import grad as grad
    from . import interop as interop
    from . import nn as nn
    from . import onnx as onnx
    from . import optim as optim
    from . import testing as testing
    from . import train as train
    from . import viz as viz
    from .array_api.functions import from_dlpack as from_dlpack
    from .export import export_c as export_c
    from .export.saved import load_graph as load_graph
    from .export.saved import save_graph as save_graph
    from .grad.batching import vmap as vmap
    from .interop.formula import elementwise as elementwise
    from .nn.container import recompute as recompute
    from .train import load_checkpoint as load_checkpoint
    from .train import save_checkpoint as save_checkpoint
    from .train import train_step as train_step
    from .viz import draw as draw
    from .viz.reports import explain as explain
    from .viz.reports import profile as profile
else:  # imported where they are first used: whoever runs a graph needs none of them
    _LATER = ("array_api", "data", "distributed", "export", "grad", "interop", "nn", "onnx")
    _LATER += ("optim", "testing", "train", "viz")
    for _module, _names in {
        "array_api.functions": "from_dlpack",
        "export.exporter": "export_c",
        "export.saved": "load_graph save_graph",
        "grad.batching": "vmap",
        "interop.formula": "elementwise",
        "nn.container": "recompute",
        "train.checkpoint": "load_checkpoint save_checkpoint",
        "train.step": "train_step",
        "viz.pictures": "draw",
        "viz.reports": "explain profile",
    }.items():
        hints.stand_in(_module, "", *_names.split())
    __all__, __dir__, _found = hints.names(globals(), "errors", "ops", *_LATER)

    def __getattr__(name: str) -> object:
        return importlib.import_module(f"{__name__}.{name}") if name in _LATER else _found(name)
