"""The names of PyTorch, JAX and MindSpore, by what to write here instead.

First the names that packages of the core show, and that stand in wings; then the tables of hints,
and the hints that errors take from them.
The validator has checks under MindSpore's names, which programs import from `miniml.ops`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection
from typing import Any

from ..core.hints import PACKAGES, stand_in, steps_of
from ..core.scope import Location

stand_in("compat", "core.hints", "argument_hint", "hint_for", "note_habits")
stand_in("array_api", "core.tensor", "namespace")
stand_in("compat.classic", "grad", "GradOperation")
stand_in("interop.dlpack", "core.tensor", "device_of", "exported", "imported")
stand_in("interop.custom", "ops", "Custom", "custom", "pack_attribute", "unpack_attribute")
stand_in("interop.foreign", "nn", "load_torch_state", "torch_state")
stand_in("viz.pictures", "train", "LivePlot", "TensorBoard")
stand_in("viz.summary", "nn.cell", "summary")

# Keyed by what to use here: the names that people look for.
INSTEAD = {
    # tensors
    "t.asnumpy()": "numpy block_until_ready",
    "miniml.grad.grad(f)(x), as gradients are results of a call": (
        "backward grad retain_grad grad_fn is_leaf"
    ),
    "miniml.grad.grad(f)(x), which says by argnums what to differentiate": "requires_grad",
    "p.requires_grad = False, for a Parameter": "requires_grad_",
    "t.asnumpy(), or p.set_data(value) to change a Parameter": "data",
    "p.set_data(value), for a Parameter": "copy_ fill_ zero_",
    "ops.stop_gradient(t)": "detach",
    "t.reshape(...)": "view view_as reshape_as",
    "t.transpose(...)": "permute movedim",
    "t.T": "t",
    "t.flatten()": "ravel",
    "t.ndim": "dim rank ndimension",
    "t.size": "numel nelement",
    "t.device": "is_cuda is_cpu get_device",
    "not needed: tensors never change": "clone copy contiguous is_contiguous data_ptr storage",
    "t.astype(ml.float32), or net.to(ml.float32) for a network": "float",
    "t.astype(ml.float64), or net.to(ml.float64) for a network": "double",
    "t.astype(ml.float16), or net.to(ml.float16) for a network": "half",
    "t.astype(ml.int32)": "int",
    "t.astype(ml.int64)": "long",
    "t.astype(ml.bool_)": "bool",
    "t.astype(ml.uint8)": "byte",
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
    "ops.split(t, sections)": "chunk tensor_split",
    "ops.unstack(t, axis)": "unbind",
    "ops.dot(x, y)": "vdot",
    "ops.repeat(t, repeats)": "repeat_interleave",
    "t[start:stop]": "narrow",
    "x * y + z": "addcmul addcdiv addmv baddbmm addbmm",
    "ops.log(p / (1 - p))": "logit",
    "ops.floor(x / y)": "floor_divide",
    "ops.maximum(x, low)": "clamp_min",
    "ops.minimum(x, high)": "clamp_max",
    "ops.einsum('i,j->ij', x, y), with other letters for other products": (
        "tensordot ger bilinear"
    ),
    "ops.concat([x, y], axis)": "cat concat concatenate hstack vstack",
    "ops.stack([x, y], axis)": "stack dstack",
    "ops.gather(t, indices, axis)": "index_select take embedding GatherV2",
    "ops.scatter_add(t, indices, updates)": "index_add index_add_",
    "ops.clip(t, low, high)": "clamp clamp_ clip_by_value",
    "ops.matmul(x, y)": "mm bmm mv dot_general BatchMatMul",
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
    "ops.max(x, axis)": "ReduceMax reduce_max",
    "ops.min(x, axis)": "ReduceMin reduce_min",
    "ops.logcumsumexp(x, axis)": "cumlogsumexp",
    "ops.bitwise_not(x), or ~x": "invert bitwise_invert",
    "ops.left_shift(x, y), or x << y": "bitwise_left_shift",
    "ops.right_shift(x, y), or x >> y": "bitwise_right_shift",
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
    "ops.zeros(shape, dtype)": "new_zeros empty empty_like new_empty",
    "ops.ones(shape, dtype)": "new_ones",
    "ops.scan(f, init, xs), whose f takes (carry, x) and gives (carry, y)": "fori_loop",
    "ops, which has the functions": "functional lax",
    "isinstance(x, ml.Tensor)": "is_tensor",
    # layers and losses
    "nn.Cell, with construct": "Module",
    "nn.MultiHeadAttention(d, heads), batch first": "MultiheadAttention",
    "nn.TransformerEncoder(layers) and nn.TransformerDecoder(layers)": "Transformer",
    "nn.WeightNorm(layer)": "weight_norm parametrizations",
    "nn.SpectralNorm(layer)": "spectral_norm",
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
    "one attribute for each, as self.w = ml.Parameter(value)": "ParameterDict",
    "nn.GlobalAvgPool()": "GlobalAvgPool1d GlobalAvgPool2d GlobalAvgPool3d",
    "nn.GlobalMaxPool()": "GlobalMaxPool1d GlobalMaxPool2d GlobalMaxPool3d",
    "nn.ConvTranspose2d": "Conv2dTranspose",
    "nn.Upsample(scale_factor=2.0, mode='linear')": "UpsamplingBilinear2d ResizeBilinear",
    "nn.Upsample(scale_factor=2)": "UpsamplingNearest2d",
    "ops.unfold(x, kernel_size), in construct": "Unfold",
    "ops.fold(x, output_size, kernel_size), in construct": "Fold",
    "nn.Dropout2d(p), of whole channels": "SpatialDropout2D FeatureAlphaDropout",
    "nn.SiLU()": "Swish",
    "a * ops.sigmoid(b), of the halves a, b = ops.split(x, 2, axis)": "GLU glu",
    "nn.Softmax()(-x)": "Softmin softmin",
    "nn.Softmax(axis=1)": "Softmax2d",
    "x - ops.tanh(x)": "Tanhshrink tanhshrink",
    "ops.softshrink(x)": "Softshrink",
    "ops.where(ops.abs(x) > 0.5, x, 0)": "Hardshrink hardshrink",
    "ops.threshold(x, threshold, value)": "Threshold",
    "ops.softmax(logits + ops.gumbel(logits.shape))": "gumbel_softmax",
    "ops.reshape(x, shape), in construct": "Unflatten unflatten",
    "ops.reshape and ops.transpose, in construct": "ChannelShuffle channel_shuffle",
    "ops.pad(x, padding), with a pair for each axis, in construct": (
        "ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d"
    ),
    "ops.pad(x, padding, mode='reflect'), with a pair for each axis, in construct": (
        "ReflectionPad1d ReflectionPad2d ReflectionPad3d"
    ),
    "ops.pad(x, padding, mode='edge'), with a pair for each axis, in construct": (
        "ReplicationPad1d ReplicationPad2d ReplicationPad3d"
    ),
    "ops.pad(x, padding, mode='wrap'), with a pair for each axis, in construct": (
        "CircularPad1d CircularPad2d CircularPad3d"
    ),
    "nn.Dropout(p)": "AlphaDropout alpha_dropout",
    "ops.einsum('ni,oij,nj->no', x, w, y), with a Parameter w": "Bilinear",
    "ops.norm(x - y, axis=-1)": "PairwiseDistance pairwise_distance",
    "a function of tensors made of ops, which ml.train_step takes for a loss": (
        "MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss SoftMarginLoss "
        "HingeEmbeddingLoss"
    ),
    "not available: layers are given the extents of their inputs": (
        "LazyConv1d LazyConv2d LazyConv3d LazyBatchNorm1d LazyBatchNorm2d"
    ),
    "not available: one process trains on one device": (
        "DataParallel DistributedDataParallel SyncBatchNorm DistributedSampler"
    ),
    "nn.CrossEntropyLoss()(logits, labels)": "SoftmaxCrossEntropyWithLogits softmax_cross_entropy",
    "ops.mse_loss(x, y)": "l2_loss",
    "ops.bce(probs, target)": "binary_cross_entropy BinaryCrossEntropy",
    "ops.bce_with_logits(logits, target)": "binary_cross_entropy_with_logits",
    "ops.focal_loss(logits, target)": "sigmoid_focal_loss",
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
    "net.parameters_dict()[path]": "get_parameter get_buffer",
    "one attribute after the other, as self.body.conv": "get_submodule",
    "setattr(net, name, cell)": "add_module register_module",
    "del net[i], or del cells[name] of a CellDict": "pop",
    "net.append(cell), for each": "extend",
    "nn.Sequential(*net[:i], cell, *net[i:])": "insert",
    "a method describe(self), which gives one line": "extra_repr",
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
    "optim.Optimizer, of which a subclass defines rule": "ASGD Adafactor Muon Rprop",
    "opt.lr = value, between steps, or a schedule for lr, such as optim.cosine(0.1, steps=1000)": (
        "lr_scheduler set_lr LRScheduler LambdaLR MultiplicativeLR ConstantLR"
    ),
    "optim.step_decay(lr, every), for the lr of an optimizer": (
        "StepLR ExponentialLR ExponentialDecay"
    ),
    "optim.cosine(lr, steps), for the lr of an optimizer": "CosineAnnealingLR CosineDecay",
    "optim.warm_restarts(lr, steps), for the lr of an optimizer": "CosineAnnealingWarmRestarts",
    "optim.cyclic(low, high, up), for the lr of an optimizer": "CyclicLR CyclicalLearningRate",
    "optim.polynomial(lr, steps), for the lr of an optimizer": "PolynomialLR PolynomialDecay",
    "optim.warmup(steps, then), for the lr of an optimizer": "LinearLR WarmUpLR",
    "optim.one_cycle(lr, steps), for the lr of an optimizer": "OneCycleLR",
    "optim.chained(schedules, milestones), for the lr of an optimizer": (
        "SequentialLR ChainedScheduler MultiStepLR"
    ),
    "optim.OnPlateau(lr), for the lr of an optimizer; in fit train.ReduceRate()": (
        "ReduceLROnPlateau"
    ),
    "train.find_rate(model, x, y)": "lr_find lr_finder LRFinder",
    "optim.clip_by_global_norm(gradients, clip)": "utils clip_grad_norm clip_grad_norm_",
    "optim.clip_by_value(gradients, clip)": "clip_grad_value_",
    "optim.EMA(opt, decay)": "ExponentialMovingAverage",
    "optim.SWA(opt, start)": "AveragedModel swa_utils",
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
    "data.DataLoader(x, y, size=64, seed=0), which shuffles by the seed": (
        "Sampler RandomSampler BatchSampler SequentialSampler"
    ),
    "data.Stream(samples, size=64)": "IterableDataset",
    "data.weighted(weights), for sampler= of a DataLoader": "WeightedRandomSampler",
    "data.bucketed(lengths), for sampler= of a DataLoader": "BucketIterator",
    "data.class_weights(labels)": "compute_class_weight",
    "data.random_affine(degrees)": "RandomAffine RandomRotation",
    "data.random_erase()": "RandomErasing",
    "data.random_color(brightness, contrast, saturation, hue)": "ColorJitter RandomBrightness",
    "train.auc()": "roc_auc_score AUC AUROC",
    "data.split(rows, share), which gives row numbers": "random_split train_test_split Subset",
    # the package
    "ml.Tensor(data)": "as_tensor from_numpy array asarray FloatTensor",
    "not needed: nothing is recorded unless a gradient is asked for": (
        "no_grad inference_mode enable_grad is_grad_enabled"
    ),
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
    "ml.random_state": "get_rng_state set_rng_state",
    "not needed: equal seeds give equal bits": "use_deterministic_algorithms",
    "ml.context(threads=n)": "set_num_threads",
    "np.set_printoptions()": "set_printoptions",
    "np.finfo(dtype)": "finfo",
    "ml.save_checkpoint(obj, path)": "save",
    "ml.load_checkpoint(path, obj)": "load",
    "ml.context(device_target=name)": "device set_default_device",
    "ml.vmap(f)": "pmap vectorize",
    "ml.onnx.save(net, path, *example_args)": "miniml.onnx.export",
    "np, for what is not to be differentiated; ops for what is": "jnp np",
}
# Keyed by what to write here: keywords that people try. Where the key begins with a parameter, it
# is for what has that parameter.
KEYWORDS = {
    "axis=": "dim dims",
    "keepdims=": "keepdim keep_dims",
    "x=": "input",
    "y=": "other",
    "correction=": "unbiased ddof",
    "depth=": "num_classes",
    "size=": "batch_size",
    "seed=0, which shuffles; None keeps the order": "shuffle",
    "workers=2, for processes, or prefetch=2, for a thread": "num_workers",
    "prefetch=": "prefetch_factor",
    "collate=": "collate_fn",
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
    "padding_index=": "padding_idx",
    "variance=": "var",
    "lr=": "learning_rate max_lr initial_learning_rate base_lr",
    "steps=": "T_max total_steps total_iters decay_steps warmup_steps",
    "every=": "step_size accumulation_steps",
    "factor=": "gamma decay_rate",
    "end=": "eta_min",
    "low=": "min_lr",
    "history=": "history_size",
    "initial=": "initial_accumulator_value",
    "lr=lambda step: lr / (1 + decay * step)": "lr_decay",
    "nothing: one update is one iteration": "max_iter max_eval",
    "line_search=20, the most trials of a step": "line_search_fn",
    "the negative of the loss": "maximize",
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
    "epochs=": "max_epochs num_epochs",
    "model.fit(x, y, sample_weight=weights), or step(x, y, weights) of nn.SampleWeighted": (
        "sample_weight"
    ),
    "validation=(x, y), of rows that data.split(len(x), share) gives": "validation_split",
    "model.fit(x, y, class_weight=data.class_weights(y)), or weight= of the loss": "class_weight",
    "show=": "verbose",
    "validation=": "val_data validation_data val_loader",
    "mode=": "larger_is_better",
    "folder=": "log_dir logdir",
    "reduction=": "size_average reduce",
    "nothing, as tensors never change": "inplace out",
    "nothing, as ops.dropout always draws; nn.Dropout looks at the mode of the network": "training",
    "nothing, as the updates of all parameters are one kernel": "foreach fused",
    "nothing, as weights of attention are not kept": "need_weights average_attn_weights",
    "nothing, as data go where the parameters are": "map_location",
    "nothing, as loading runs no code": "weights_only",
    "ml.load_checkpoint(path, net, strict=False), which reads a file": "strict",
    "nothing, as the batch comes first": "batch_first",
    "net.to(dtype), after it is made": "dtype",
    "net.to(device), after it is made": "device",
    "nothing, as batches are arrays of this process": "pin_memory persistent_workers",
}
# Keyed by functions that people give several extents, axes or arrays one by one.
TUPLES = {
    "reshape": "ops.reshape(x, (2, 3)), with the shape as one tuple",
    "broadcast_to": "ops.broadcast_to(x, (2, 3)), with the shape as one tuple",
    "tile": "ops.tile(x, (2, 3)), with all counts in one tuple",
    "squeeze": "ops.squeeze(x, (0, 1)), with the axes in one tuple",
    "transpose": "ops.transpose(x, (1, 0)), with all axes in one tuple, or ops.swapaxes(x, 0, 1)",
}
HINTS = {name: hint for hint, names in INSTEAD.items() for name in names.split()}
ARGUMENTS: dict[str, list[str]] = {}  # keywords of other libraries, with what may be meant
for _hint, _names in KEYWORDS.items():
    for _name in _names.split():
        ARGUMENTS.setdefault(_name, []).append(_hint)


# --- Hints ----------------------------------------------------------------------------------------


_UNEXPECTED = re.compile(
    r"([\w.]+)\(\) got (?:an unexpected keyword|multiple values for) argument '(\w+)'"
)
_SURPLUS = re.compile(r"(?:\w+\.)*(\w+)\(\) takes .*positional arguments? but \d+ were given")
_SIZE = re.compile(r"\.size\([^()]*\)$")


def hint_for(name: str, owner: str = "miniml") -> str:
    """The equivalent here of what other libraries call `name`; "" where none is known."""
    return (
        HINTS.get(f"{owner}.{name}")
        or HINTS.get(name)
        or _same_name(name, owner)
        or _in_place(name, owner)
    )


def argument_hint(name: str, takes: Collection[str]) -> str:
    """The equivalent here of a keyword of another library, of what takes these; "" if unknown."""
    for hint in ARGUMENTS.get(name, ()):
        parameter, equals, _ = hint.partition("=")
        if not (equals and parameter.isidentifier() and parameter not in takes):
            return hint
    return ""


def note_argument(error: BaseException) -> None:
    """Add to Python's error for an unknown keyword of a public function, or of a method of a public
    class, what it is called here, also for one which an argument took the place of; for axes,
    extents or arrays one by one, that they are one argument; for a function of another library that
    got a traced tensor, what does."""
    if isinstance(error, TypeError) and "TracedTensor" in str(error):
        note_hint(
            error,
            "functions of ops, as ops.tanh(x): a compiled function is traced, on "
            "tensors whose values are not known yet, so other libraries cannot take them",
        )
    surplus = _SURPLUS.match(str(error)) if isinstance(error, TypeError) else None
    if surplus is not None and surplus[1] in TUPLES:
        note_hint(error, TUPLES[surplus[1]])
    found = _UNEXPECTED.match(str(error)) if isinstance(error, TypeError) else None
    function = _function(found[1]) if found else None
    if found is None or function is None:
        return
    hint = argument_hint(found[2], inspect.signature(function).parameters)
    if hint:
        note_hint(error, hint)


def note_hint(error: BaseException, hint: str) -> None:
    """Add to an error what to write in miniml, once."""
    note = f"in miniml: {hint}"
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _function(qualified: str) -> Any:
    """A public function, or a method of a public class, by its name."""
    owner, _, method = qualified.rpartition(".")
    for package in PACKAGES:
        found = getattr(sys.modules.get(package), "__dict__", {}).get(owner or method)
        if callable(found):
            return getattr(found, method, None) if owner else found
    return None


def _in_place(name: str, owner: str) -> str:
    """t.add_(y) is ops.add(t, y)."""
    found = hint_for(name[:-1], owner) if name.endswith("_") else ""
    return f"{found}, which gives a new tensor" if found else ""


def _same_name(name: str, owner: str) -> str:
    """The same public name in another package, or in this one with other capitalization."""
    for package, short in PACKAGES.items():
        if name in dir(sys.modules.get(package)):
            value = getattr(sys.modules[package], name)
            if owner in PACKAGES:
                return f"{short}.{name}"
            return "" if inspect.ismodule(value) else f"{short}.{name}{_arguments(value)}"
    for known in dir(sys.modules[owner]) if owner in PACKAGES else ():
        if _letters(known) == _letters(name):
            return f"{PACKAGES[owner]}.{known}"
    return ""


def _letters(name: str) -> str:
    """A name without what people write differently: hardtanh, hard_tanh and HardTanh."""
    return name.lower().replace("_", "")


def _arguments(function: Any) -> str:
    """The arguments without default, as a call shows them: those of a tensor `t` first."""
    if isinstance(function, type) or not callable(function):
        return ""
    takes = inspect.signature(function).parameters.values()
    names = [p.name for p in takes if p.default is p.empty]
    return f"({', '.join('t' if n == 'x' else n for n in names)})"


def note_habits(error: BaseException) -> None:
    """Add to Python's own errors what to write: for a keyword of another library, and for a call
    of `size`."""
    note_argument(error)
    if isinstance(error, TypeError) and str(error) == "'int' object is not callable":
        trace = steps_of(error.__traceback__)[-1:]
        if trace and _SIZE.search(Location(trace[0].tb_frame.f_code, trace[0].tb_lasti).text):
            note_hint(error, "t.shape, or t.shape[0]; t.size is the number of elements")
