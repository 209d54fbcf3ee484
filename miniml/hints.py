"""What names of PyTorch, JAX and MindSpore are called here: one table, for every AttributeError."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection
from typing import Any

# Keyed by what to use here: the names that people look for.
_INSTEAD = {
    # tensors
    "t.asnumpy()": "numpy block_until_ready",
    "miniml.grad.grad(f)(x), as gradients are results of a call": "backward grad retain_grad",
    "miniml.grad.grad(f)(x), which says by argnums what to differentiate": "requires_grad",
    "p.requires_grad = False, for a Parameter": "requires_grad_",
    "t.asnumpy(), or p.set_data(value) to change a Parameter": "data",
    "p.set_data(value), for a Parameter": "copy_ fill_ zero_",
    "ops.stop_gradient(t)": "detach",
    "t.reshape(...)": "view view_as reshape_as",
    "t.transpose(...)": "permute",
    "t.T": "t mT",
    "t.flatten()": "ravel",
    "t.ndim": "dim rank",
    "t.size": "numel",
    "t.device": "is_cuda get_device",
    "not needed: tensors never change": "clone copy contiguous",
    "t.astype(ml.float32)": "float",
    "t.astype(ml.float64)": "double",
    "t.astype(ml.float16)": "half",
    "t.astype(ml.int32)": "int",
    "t.astype(ml.int64)": "long",
    "t.astype(dtype)": "type type_as",
    "t.to('cuda'), for a network too": "cuda",
    "t.to('cpu'), for a network too": "cpu",
    "t.to(device)": "device_put",
    "ops.scatter(t, index, value)": "at index_put index_put_ masked_scatter",
    "ops.where(condition, t, other)": "where",
    # operations
    "ops.cast(t, dtype)": "astype convert_element_type",
    "ops.expand_dims(t, axis)": "unsqueeze",
    "ops.broadcast_to(t, shape)": "expand expand_as",
    "ops.tile(t, reps), or ops.repeat(t, repeats) for each element by itself": "repeat",
    "ops.split(t, sections)": "chunk",
    "ops.concat([x, y], axis)": "cat concat concatenate hstack vstack",
    "ops.stack([x, y], axis)": "stack dstack",
    "ops.gather(t, indices, axis)": "index_select take embedding GatherV2",
    "ops.scatter_add(t, indices, updates)": "index_add index_add_",
    "ops.clip(t, low, high)": "clamp clamp_ clip_by_value",
    "ops.matmul(x, y)": "mm bmm dot mv dot_general BatchMatMul",
    "ops.matmul(x, w) + b": "linear addmm",
    "ops.add(x, y)": "TensorAdd",
    "ops.sub(x, y)": "subtract",
    "ops.mul(x, y)": "multiply",
    "ops.div(x, y)": "divide true_divide",
    "ops.mod(x, y)": "remainder fmod",
    "ops.pow(x, y)": "power float_power",
    "ops.neg(x)": "negative",
    "ops.abs(x)": "absolute",
    "ops.inv(a)": "inverse",
    "ops.slogdet(a)[1]": "logdet",
    "ops.svd(a)[1]": "svdvals",
    "ops.eigh(a)[0]": "eigvalsh",
    "ops.triangular_solve(a, b)": "solve_triangular",
    "ops, for its functions": "linalg",
    "ops.asin(x)": "arcsin",
    "ops.acos(x)": "arccos",
    "ops.atan(x)": "arctan",
    "ops.equal(x, y)": "eq",
    "ops.not_equal(x, y)": "ne",
    "ops.less(x, y)": "lt",
    "ops.less_equal(x, y)": "le",
    "ops.greater(x, y)": "gt",
    "ops.greater_equal(x, y)": "ge",
    "ops.sum(x, axis)": "ReduceSum reduce_sum",
    "ops.mean(x, axis)": "ReduceMean reduce_mean",
    "ops.max(x, axis)": "amax ReduceMax reduce_max",
    "ops.min(x, axis)": "amin ReduceMin reduce_min",
    "ops.resize(x, size), or scale_factor=, with mode='linear' for bilinear": (
        "interpolate upsample ResizeBilinearV2"
    ),
    "ops.unfold(x, kernel_size)": "im2col",
    "ops.fold(x, output_size, kernel_size)": "col2im",
    "ops.normal(shape), or nn.init.normal(p) for a Parameter": (
        "randn randn_like normal_ StandardNormal"
    ),
    "ops.uniform(shape), or nn.init.uniform(p) for a Parameter": (
        "rand rand_like random uniform_ UniformReal"
    ),
    "ops.permutation(n), or ops.permutation(x, axis)": "randperm shuffle",
    "ops.categorical(logits, shape)": "multinomial Categorical",
    "ops.lgamma(x)": "gammaln",
    "ops.nonzero(x)": "argwhere flatnonzero",
    "ops.unique_all(x), for the inverse and counts": "unique_counts unique_inverse",
    "np.allclose(x, y)": "allclose isclose",
    "ops.zeros(shape, dtype)": "new_zeros",
    "ops.ones(shape, dtype)": "new_ones",
    "ops.scan(f, init, xs), whose f takes (carry, x) and gives (carry, y)": "fori_loop",
    "ops, which has the functions": "functional lax",
    # layers and losses
    "nn.Cell, with construct": "Module",
    "nn.LSTM(n_in, n), nn.GRU or nn.RNN; of one step: T = 1, with a state": (
        "RNNCell LSTMCell GRUCell"
    ),
    "nn.MultiHeadAttention(d, heads), batch first": "MultiheadAttention",
    "nn.TransformerEncoderLayer(d, heads, hidden), several in nn.Sequential or nn.CellList": (
        "Transformer TransformerEncoder"
    ),
    "nn.TransformerDecoderLayer(d, heads, hidden), several in nn.CellList": "TransformerDecoder",
    "nn.SinusoidalPositions(d), nn.LearnedPositions(length, d) or nn.RotaryPositions(d)": (
        "PositionalEncoding PositionalEmbedding RotaryEmbedding RotaryPositionalEmbeddings"
    ),
    "ops.scaled_dot_product_attention(q, k, v, mask)": (
        "dot_product_attention flash_attention multi_head_attention_forward"
    ),
    "nn.Dense(in_features, out_features)": "Linear LazyLinear",
    "nn.Sequential(...)": "SequentialCell",
    "nn.CellList([...])": "ModuleList",
    "nn.CellDict({...})": "ModuleDict",
    "one attribute for each, as self.w = ml.Parameter(value)": "ParameterList ParameterDict",
    "nn.GlobalAvgPool()": "GlobalAvgPool1d GlobalAvgPool2d GlobalAvgPool3d",
    "nn.GlobalMaxPool()": "GlobalMaxPool1d GlobalMaxPool2d GlobalMaxPool3d",
    "nn.ConvTranspose2d": "Conv2dTranspose",
    "nn.Upsample(scale_factor=2.0, mode='linear')": "UpsamplingBilinear2d ResizeBilinear",
    "nn.Upsample(scale_factor=2)": "UpsamplingNearest2d",
    "ops.unfold(x, kernel_size), in construct": "Unfold",
    "ops.fold(x, output_size, kernel_size), in construct": "Fold",
    "nn.Dropout2d(p), of whole channels": "SpatialDropout2D FeatureAlphaDropout",
    "nn.SiLU()": "Swish",
    "nn.CrossEntropyLoss()(logits, labels)": "SoftmaxCrossEntropyWithLogits softmax_cross_entropy",
    "ops.mse_loss(x, y)": "l2_loss",
    "ops.bce(probs, target)": "binary_cross_entropy BinaryCrossEntropy",
    "ops.bce_with_logits(logits, target)": "binary_cross_entropy_with_logits",
    "ops.huber_loss(x, y)": "SmoothL1Loss smooth_l1_loss",
    "nn.init.constant(p, value)": "constant_ initializer",
    "nn.init.zeros(p)": "zeros_",
    "nn.init.ones(p)": "ones_",
    "ops.truncated_normal(shape), or nn.init.truncated_normal(p) for a Parameter": (
        "trunc_normal_ trunc_normal TruncatedNormal"
    ),
    "nn.init.xavier_uniform(p)": "xavier_uniform_ glorot_uniform XavierUniform",
    "nn.init.xavier_normal(p)": "xavier_normal_ glorot_normal",
    "nn.init.kaiming_uniform(p)": "kaiming_uniform_ he_uniform HeUniform",
    "nn.init.kaiming_normal(p)": "kaiming_normal_ he_normal HeNormal",
    "nn.init.orthogonal(p)": "orthogonal_",
    # networks
    "net.get_parameters(), or net.trainable_params() for an optimizer": "parameters",
    "net.parameters_dict()": "buffers named_buffers",
    "opt.parameters_dict(), or ml.save_checkpoint(opt, path)": "state_dict",
    "ml.load_checkpoint(path, opt)": "load_state_dict",
    "net.cells()": "modules children named_modules named_children",
    "net.set_train()": "train",
    "net.set_train(False)": "eval",
    "construct, which is run when the cell itself is called": "forward",
    "self.name = ml.Parameter(value, requires_grad=False)": "register_buffer",
    "self.name = ml.Parameter(value)": "register_parameter",
    # training
    "opt.update(gradients), or ml.train_step(net, loss_fn, opt)": (
        "step minimize apply_gradients apply_updates"
    ),
    "not needed: gradients are results of a call, so there is nothing to clear": (
        "zero_grad clear_grad set_grad set_grad_enabled"
    ),
    "opt.params and opt.lr; optim.Groups(opt1, opt2) for groups": "param_groups add_param_group",
    "optim.SGD(params, lr, momentum=0.9)": "Momentum",
    "optim.AdamW(params, lr, weight_decay=0.01)": "AdamWeightDecay",
    "optim.RMSprop(params, lr)": "RMSProp",
    "optim.Optimizer, of which a subclass defines rule": "Adadelta NAdam RAdam Adamax",
    "opt.lr = value, between steps, or a schedule for lr, such as optim.cosine(0.1, steps=1000)": (
        "lr_scheduler set_lr LRScheduler LambdaLR CosineAnnealingLR"
    ),
    "optim.step_decay(lr, every, factor), as the lr of an optimizer": "StepLR ExponentialLR",
    "optim.one_cycle(lr, steps), as the lr of an optimizer": "OneCycleLR",
    "optim.OnPlateau(lr), as the lr of an optimizer": "ReduceLROnPlateau",
    "optim.chained(schedules, milestones), as the lr of an optimizer": "SequentialLR MultiStepLR",
    "optim.clip_by_global_norm(gradients, clip)": ("utils clip_grad_norm clip_grad_norm_"),
    "optim.clip_by_value(gradients, clip)": "clip_grad_value_",
    "optim.EMA(opt, decay)": "AveragedModel swa_utils ExponentialMovingAverage",
    "ml.train_step(net, loss_fn, opt)": "TrainOneStepCell WithLossCell",
    "train.Model(net, loss_fn, opt), which has fit, evaluate and predict": (
        "Trainer LightningModule"
    ),
    "train.SaveBest(path), or resume= of fit for all of a run": "ModelCheckpoint",
    "train.Log(path)": "CSVLogger",
    "optim.LossScale(), for ml.train_step(net, loss_fn, opt, loss_scale=...)": (
        "GradScaler DynamicLossScaleManager FixedLossScaleManager LossScaleManager"
    ),
    "ml.context(autocast=ml.float16)": "amp auto_mixed_precision to_float",
    "data.DataLoader(x, y, size=64)": "TensorDataset Dataset NumpySlicesDataset GeneratorDataset",
    "data.split(rows, share), which gives row numbers": "random_split train_test_split",
    # the package
    "ml.Tensor(data)": "as_tensor from_numpy array asarray FloatTensor",
    "not needed: nothing is recorded unless a gradient is asked for": "no_grad inference_mode",
    "miniml.grad": "autograd",
    "miniml.grad.custom_bprop(bprop)": "custom_vjp custom_jvp custom_gradient Function",
    "miniml.grad.hook_gradient(x, fn)": "HookBackward InsertGradientOf register_hook",
    "net.register_forward_pre_hook(fn), register_forward_hook or register_backward_hook": (
        "register_full_backward_hook register_full_backward_pre_hook register_backward_pre_hook"
    ),
    "ml.recompute(f)": "checkpoint remat checkpoint_sequential",
    "miniml.grad.jacobian(f)": "jacrev jacfwd",
    "ml.jit(f)": "compile ms_function script",
    "ml.trace(f, x)": "make_jaxpr",
    "ml.debug_nans()": "detect_anomaly set_detect_anomaly",
    "ml.manual_seed(seed)": "PRNGKey seed set_seed",
    "ml.save_checkpoint(obj, path)": "save",
    "ml.load_checkpoint(path, obj)": "load",
    "ml.context(device_target=name)": "device set_default_device",
    "not available: ops work on whole batches": "vmap pmap",
    "not available: ONNX is read, not written; ml.save_graph(f, path, x) writes a graph": (
        "miniml.onnx.save miniml.onnx.export"
    ),
    "np, for what is not to be differentiated; ops for what is": "jnp np",
}
# Keyed by what to write here: keywords that people try. Where the key begins with a parameter, it
# is for what has that parameter.
_ARGUMENTS = {
    "axis=": "dim dims",
    "keepdims=": "keepdim keep_dims",
    "size=": "batch_size",
    "seed=0, which shuffles; None keeps the order": "shuffle sampler",
    "prefetch=2, for a thread that makes batches ahead": "num_workers prefetch_factor",
    "transform=, which is given a batch of rows": "collate_fn",
    "bias=": "has_bias use_bias",
    "in_features=": "input_dim",
    "out_features=": "output_dim units",
    "n_in=": "input_size",
    "n=": "hidden_size",
    "count=": "num_embeddings vocab_size",
    "features=": "embedding_dim embedding_size",
    "d=": "embed_dim d_model",
    "heads=": "num_heads nhead",
    "hidden=": "dim_feedforward",
    "shape=": "normalized_shape",
    "slope=": "negative_slope",
    "min=": "min_val",
    "max=": "max_val",
    "ignore_index=": "ignore_label",
    "lr=": "learning_rate",
    "clip=": "clip_grad max_norm gradient_clip_val",
    "loss_scale=": "scaler",
    "mask=, where True says that a query sees a key": "attn_mask src_mask tgt_mask",
    "mask=, of shape (N, 1, 1, S), where True says that a key is seen": (
        "key_padding_mask src_key_padding_mask tgt_key_padding_mask padding_mask"
    ),
    "memory_mask=, of shape (N, 1, 1, S), where True says that a key is seen": (
        "memory_key_padding_mask"
    ),
    "is_causal=": "causal tgt_is_causal",
    "validation=": "val_data validation_data val_loader",
    "reduction=": "size_average reduce",
    "nothing, as tensors never change": "inplace",
    "nothing, as the batch comes first": "batch_first",
    "net.to(dtype), after it is made": "dtype",
    "net.to(device), after it is made": "device",
    "nothing, as batches are arrays of this process": "pin_memory persistent_workers",
}
HINTS = {name: hint for hint, names in _INSTEAD.items() for name in names.split()}

ARGUMENTS = {name: hint for hint, names in _ARGUMENTS.items() for name in names.split()}
_UNEXPECTED = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
_TWO_ARRAYS = "Model.fit() got multiple values for argument 'epochs'"  # fit(x, labels, epochs=3)

_PACKAGES = {
    "miniml.ops": "ops",
    "miniml.nn": "nn",
    "miniml.grad": "miniml.grad",
    "miniml.optim": "optim",
    "miniml.nn.init": "nn.init",
    "miniml.data": "data",
    "miniml.train": "train",
    "miniml": "ml",
}


def unknown(owner: str, name: str, obj: object) -> AttributeError:
    """The AttributeError for a name that an object lacks, with the replacement, if one is known.

    owner: the full name of a package, or what an object is called.
    """
    hint = "" if name.startswith("_") else hint_for(name, owner)
    who = f"module {owner!r}" if owner in _PACKAGES else owner
    would_do = f"; in miniml: {hint}" if hint else ""
    return AttributeError(f"{who} has no attribute {name!r}{would_do}", name=name, obj=obj)


def hint_for(name: str, owner: str = "miniml") -> str:
    """The equivalent here of what other libraries call `name`; "" where none is known."""
    return (
        HINTS.get(f"{owner}.{name}")
        or HINTS.get(name)
        or _same_name(name, owner)
        or _in_place(name, owner)
    )


def argument_hint(name: str, takes: Collection[str]) -> str:
    """What to write here for a keyword of another library, of what takes these; "" if unknown."""
    hint = ARGUMENTS.get(name, "")
    parameter, equals, _ = hint.partition("=")
    return "" if equals and parameter not in takes else hint


def note_argument(error: BaseException) -> None:
    """Add to Python's error for an unknown keyword of a function of `ops`, or in the call of a
    layer, what it is called here."""
    if isinstance(error, TypeError) and str(error) == _TWO_ARRAYS:
        error.add_note("in miniml: fit(data.DataLoader(x, labels, size=64, seed=0), epochs=3)")
    found = _UNEXPECTED.match(str(error)) if isinstance(error, TypeError) else None
    function = _function(found[1]) if found else None
    if found is None or function is None:
        return
    hint = argument_hint(found[2], inspect.signature(function).parameters)
    note = f"in miniml: {hint}"
    if hint and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _function(qualified: str) -> Any:
    """A function of `ops`, or a method of a class in `nn`, `optim` or `train`, by its name."""
    owner, _, method = qualified.rpartition(".")
    for package in ("ops",) if not owner else ("nn", "optim", "train"):
        found = vars(sys.modules[f"miniml.{package}"]).get(owner or method)
        if found is not None:
            return getattr(found, method) if owner else found
    return None


def _in_place(name: str, owner: str) -> str:
    """t.add_(y) is ops.add(t, y)."""
    found = hint_for(name[:-1], owner) if name.endswith("_") else ""
    return f"{found}, which gives a new tensor" if found else ""


def _same_name(name: str, owner: str) -> str:
    """The same public name in another package, or in this one with other capitalization."""
    for package, short in _PACKAGES.items():
        if name in dir(sys.modules.get(package)):
            value = getattr(sys.modules[package], name)
            if owner in _PACKAGES:
                return f"{short}.{name}"
            return "" if inspect.ismodule(value) else f"{short}.{name}{_arguments(value)}"
    for known in dir(sys.modules[owner]) if owner in _PACKAGES else ():
        if known.lower() == name.lower():
            return f"{_PACKAGES[owner]}.{known}"
    return ""


def _arguments(function: Any) -> str:
    """The arguments without default, as a call shows them: those of a tensor `t` first."""
    if isinstance(function, type) or not callable(function):
        return ""
    takes = inspect.signature(function).parameters.values()
    names = [p.name for p in takes if p.default is p.empty]
    return f"({', '.join('t' if n == 'x' else n for n in names)})"
