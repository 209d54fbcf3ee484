"""Which names are public: what `dir` shows, and what `import *` takes."""

import builtins
import importlib
import re
import subprocess
import sys
from types import ModuleType

import pytest

import miniml as ml
from miniml import Primitive, nn, ops
from miniml.nn import Cell

CONTRACT = {
    "miniml": """bfloat16 bool_ float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32
        uint64 PYNATIVE_MODE GRAPH_MODE set_context context Tensor Parameter jit manual_seed
        save_checkpoint load_checkpoint save_graph load_graph train_step trace explain
        Primitive PrimitiveWithInfer PrimitiveWithCheck prim_attr_register infer_rule KernelAttr
        Kernel kernel ArraySpec elementwise_kernel raw_kernel Launch recompute hooks profile interop
        from_dlpack array_api debug_nans register_pass schedule_pass unregister_pass register_rule
        distributed draw nn onnx ops optim grad testing errors data viz train export_c""",
    "miniml.nn": """Cell CellList Sequential Dense ReLU LSTM GRU RNN MultiHeadAttention
        TransformerEncoderLayer TransformerDecoderLayer LearnedPositions RotaryPositions
        SinusoidalPositions load_torch_state CrossEntropyLoss MSELoss init""",
    "miniml.ops": "leaky_relu LeakyReLU zeros sum abs all any max min pow round slice sin add",
    "miniml.optim": """SGD Adam AdamW RMSprop Adagrad Lion LBFGS Optimizer LossScale OnPlateau
        chained cosine one_cycle polynomial step_decay warmup Groups Accumulate EMA
        clip_by_global_norm clip_by_value""",
    "miniml.grad": """grad value_and_grad vjp jvp jacobian hessian hvp GradOperation bprop_getters
        stop_gradient custom_bprop hook_gradient""",
    "miniml.testing": "gradcheck opcheck OpInfo",
    "miniml.data": """minibatches DataLoader split stratified_split k_fold chain normalize
        pad_images random_crop random_flip Vocabulary next_tokens pad_sequences""",
    "miniml.train": """train_step Snapshot Model Callback EarlyStopping SaveBest Log
        TensorBoard LivePlot Metric accuracy
        top_k confusion_matrix f1 perplexity mean_absolute_error mean_squared_error""",
    "miniml.distributed": """init rank size world Group loopback all_reduce all_gather
        reduce_scatter broadcast all_to_all send_recv""",
    "miniml.onnx": "load coverage register_operator Constant Setting",
    "miniml.viz": """draw to_html to_dot to_mermaid activations gradients histograms gradient_flow
        feature_maps confusion_matrix""",
}


@pytest.mark.parametrize("package", CONTRACT)
def test_dir_shows_the_contract_and_no_inner_module(package):
    module = importlib.import_module(package)
    shown = dir(module)
    assert set(CONTRACT[package].split()) <= set(shown)
    assert all(hasattr(module, name) and not name.startswith("_") for name in shown)
    modules = {name for name in shown if isinstance(getattr(module, name), ModuleType)}
    assert modules <= {
        "array_api",
        "data",
        "distributed",
        "errors",
        "export",
        "grad",
        "init",
        "interop",
        "nn",
        "onnx",
        "ops",
        "optim",
        "rules",
        "testing",
        "train",
        "validator",
        "viz",
    }


@pytest.mark.parametrize("package", CONTRACT)
def test_import_star_takes_what_dir_shows_and_shadows_nothing(package):
    taken = {}
    exec(f"from {package} import *", taken)
    del taken["__builtins__"]
    assert set(taken) == {name for name in dir(sys.modules[package]) if not hasattr(builtins, name)}


def test_only_what_python_has_itself_is_left_out_of_star_imports():
    left_out = set(dir(ops)) - set(ops.__all__)
    assert left_out == {
        "abs", "all", "any", "complex", "divmod", "map", "max", "min", "pow", "round", "slice",
        "sum",
    }  # fmt: skip


def test_every_layer_and_primitive_is_shown():
    for package, kind in ((nn, Cell), (ops, Primitive)):
        held = {n for n, v in vars(package).items() if isinstance(v, type) and issubclass(v, kind)}
        assert held <= set(dir(package))


def test_packages_that_come_later_need_no_import():
    code = "import miniml as ml; print(ml.testing.gradcheck, ml.data.minibatches, ml.viz.to_dot)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr


def test_import_miniml_leaves_the_checkers_alone():
    code = "import sys, miniml; print('miniml.testing' in sys.modules, 'hypothesis' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert run.stdout.split() == ["False", "False"]


def test_names_of_other_packages_are_pointed_to():
    with pytest.raises(AttributeError, match=r"'vjp'; in miniml: miniml\.grad\.vjp"):
        ml.vjp  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'tenser'$"):
        ml.tenser  # noqa: B018
    with pytest.raises(ImportError):
        exec("from miniml import tenser")
    with pytest.raises(TypeError, match=r"miniml\.grad is the package; .* miniml\.grad\.grad\(f\)"):
        ml.grad(lambda x: x)


@pytest.mark.parametrize("package", [ml.nn, ml.optim, ml.train, ml.data])
def test_docstrings_send_readers_to_public_names(package):
    for name in dir(package):
        named = re.findall(r"[Aa]s for `(\w+)`", getattr(package, name).__doc__ or "")
        assert set(named) <= {*dir(package), "train_step"}, name
