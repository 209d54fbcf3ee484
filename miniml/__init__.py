"""miniml: define a primitive with a gradient, check it, and train small networks with it."""

import importlib
import typing

from . import errors as errors
from . import public
from .backends import cpu as cpu
from .backends.kernel import Kernel as Kernel
from .backends.kernel import Launch as Launch
from .backends.registry import elementwise_kernel as elementwise_kernel
from .backends.registry import kernel as kernel
from .backends.registry import raw_kernel as raw_kernel
from .backends.registry import view_kernel as view_kernel
from .backends.signature import ArraySpec as ArraySpec
from .backends.signature import KernelAttr as KernelAttr
from .classic import PrimitiveWithCheck as PrimitiveWithCheck
from .classic import PrimitiveWithInfer as PrimitiveWithInfer
from .classic import prim_attr_register as prim_attr_register
from .dtype import bfloat16 as bfloat16
from .dtype import bool_ as bool_
from .dtype import float16 as float16
from .dtype import float32 as float32
from .dtype import float64 as float64
from .dtype import int8 as int8
from .dtype import int16 as int16
from .dtype import int32 as int32
from .dtype import int64 as int64
from .dtype import uint8 as uint8
from .dtype import uint16 as uint16
from .dtype import uint32 as uint32
from .dtype import uint64 as uint64
from .infer import infer_rule as infer_rule
from .parameter import Parameter as Parameter
from .primitive import Primitive as Primitive
from .random import Generator as Generator
from .random import manual_seed as manual_seed
from .random import random_state as random_state
from .settings import GRAPH_MODE as GRAPH_MODE
from .settings import PYNATIVE_MODE as PYNATIVE_MODE
from .settings import context as context
from .settings import set_context as set_context
from .tensor import Tensor as Tensor
from .trace import install_eager as _install_eager
from .tracebacks import explain_uncaught as _explain_uncaught

from . import ops as ops  # isort: skip
from .graph.function import trace as trace
from .graph.passes import register_pass as register_pass
from .graph.passes import register_rule as register_rule
from .graph.passes import schedule_pass as schedule_pass
from .graph.passes import unregister_pass as unregister_pass
from .graph.saved import load_graph as load_graph
from .graph.saved import save_graph as save_graph
from .runtime.eager import EagerTrace as _EagerTrace
from .runtime.explain import explain as explain
from .runtime.finite import debug_nans as debug_nans
from .runtime.hooks import hooks as hooks
from .runtime.jit import jit as jit
from .runtime.profile import profile as profile

__version__ = "0.1.0"

_install_eager(_EagerTrace())
_explain_uncaught()

if typing.TYPE_CHECKING:  # checkers read the imports
    from . import data as data
    from . import grad as grad
    from . import nn as nn
    from . import onnx as onnx
    from . import optim as optim
    from . import testing as testing
    from . import train as train
    from . import viz as viz
    from .nn.recompute import recompute as recompute
    from .train import load_checkpoint as load_checkpoint
    from .train import save_checkpoint as save_checkpoint
    from .train import train_step as train_step
    from .viz import draw as draw
else:  # imported where they are first used: whoever runs a graph needs none of them
    _LATER = ("data", "grad", "nn", "onnx", "optim", "testing", "train", "viz")
    _OF = {"recompute": "nn.recompute", "draw": "viz"}
    _OF |= dict.fromkeys(("load_checkpoint", "save_checkpoint", "train_step"), "train")
    __all__, __dir__, _missing = public.names(globals(), "errors", "ops", *_LATER, *_OF)

    def __getattr__(name: str) -> object:
        if name in _LATER:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _OF:
            found = getattr(importlib.import_module(f"{__name__}.{_OF[name]}"), name)
            return globals().setdefault(name, found)
        return _missing(name)
