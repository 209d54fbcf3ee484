"""Every public function refuses wrong kinds of arguments with an error of miniml's own."""

import inspect

import numpy as np
import pytest

import miniml as ml
from miniml import ops
from miniml.errors import MinimlError

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
SQUARE = np.eye(3, dtype=np.float32)
SIGNAL, IMAGE, VOLUME = (np.ones((2, 4, *(4,) * n), np.float32) for n in (1, 2, 3))
KERNELS = [np.ones((4, 4, *(3,) * n), np.float32) for n in (1, 2, 3)]
INDICES, MASK = np.array([0, 1]), ROWS > 1

# Arguments that a function accepts: its own, or the first of these that it accepts.
USUAL = [
    (), (ROWS,), (SQUARE,), (ROWS, ROWS), (SQUARE, SQUARE), (ROWS, 1), (2,), (ROWS, (3, 2)),
    (1.0, 2.0),
    (MASK, ROWS, ROWS), (INDICES, 3), (ROWS, INDICES), (IMAGE, 2), ([ROWS, ROWS],),
    (ROWS, ROWS[0], ROWS[0]), (IMAGE, IMAGE, IMAGE), (SIGNAL, 2), (VOLUME, 2), (SIGNAL, KERNELS[0]),
    (IMAGE, KERNELS[1]), (VOLUME, KERNELS[2]), (3, 4), (ROWS, INDICES, ROWS), (MASK,),
    (ROWS, MASK, 0.0), (ROWS, np.array([[0, 1, 0]]), ROWS[:1]), (2, 0, 3), (ROWS, 0, 1), (INDICES,),
    (ROWS, ROWS, ROWS), (ROWS, ROWS, INDICES),
    (ROWS, "int32"), (ROWS[0], ROWS[0]), (ROWS, [[0, 1, 0]], 0),
]  # fmt: skip
OWN = {
    "affine_grid": (np.ones((1, 2, 3), np.float32), (1, 1, 2, 2)),
    "associative_scan": (ops.add, ROWS),
    "assign": (ml.Parameter(ROWS), ROWS),
    "batch_norm": (IMAGE, *[np.ones(4, np.float32)] * 4),
    "cond": (True, lambda: 1.0, lambda: 2.0),
    "ctc_loss": (np.zeros((4, 1, 3), np.float32), [[1]], [4], [1]),
    "einsum": ("ij,kj", ROWS, ROWS),
    "embedding_bag": (ROWS, INDICES, INDICES),
    "fori_loop": (0, 3, lambda i, x: x, 0.0),
    "fold": (np.ones((1, 4, 4), np.float32), (3, 3), 2),
    "group_norm": (IMAGE, 2),
    "grid_sample": (SIGNAL, np.ones((2, 3, 1), np.float32)),
    "lp_pool1d": (SIGNAL, 2, 2),
    "lp_pool2d": (IMAGE, 2, 2),
    "lp_pool3d": (VOLUME, 2, 2),
    "pack_attribute": (3, "<i4"),
    "resize": (IMAGE, 8),
    "map": (lambda x: x, ROWS),
    "switch": (0, [lambda x: x], ROWS),
    "masked_select": (ROWS, ROWS > 0),
    "scatter_nd": (ROWS, np.array([[0, 1]]), ROWS[0, :1]),
    **{
        f"segment_{of}": (ROWS, INDICES[: len(ROWS)], 9)
        for of in (
            "max",
            "mean",
            "min",
            "prod",
            "sum",
        )
    },
    "scan": (lambda carry, x: (carry, x), 0.0, ROWS),
    "unpack_attribute": ({"a": b"\1"}, "a", "u1"),
    "while_loop": (lambda x: ops.less(x, 3), lambda x: ops.add(x, 1), 0, 4),
}
WRONG = [
    None, "a", object(), [[1], [0, 1]], -1, 1.5, True, float("nan"), {}, (), int, (-1, 2), (1, "a"),
    np.ones(2), np.array(["a"]), np.zeros((0, 3)),
]  # fmt: skip
FUNCTIONS = [n for n in ops.__all__ if inspect.isfunction(getattr(ops, n)) and n != "custom"]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore")
def test_wrong_kinds_of_arguments_are_refused_by_name(name):
    function = getattr(ops, name)
    given = OWN[name] if name in OWN else next(args for args in USUAL if accepted(function, args))
    function(*given)
    calls = [(*given[:i], wrong, *given[i + 1 :]) for i in range(len(given)) for wrong in WRONG]
    taken = list(inspect.signature(function).parameters.values())
    options = [p.name for p in taken[len(given) :] if p.kind is not p.VAR_POSITIONAL]
    named = [{option: wrong} for option in options for wrong in WRONG]
    for args, keywords in [*((args, {}) for args in calls), *((given, kw) for kw in named)]:
        try:
            function(*args, **keywords)
        except MinimlError:
            pass
        except Exception as error:
            pytest.fail(f"{name}{args!r:.300} {keywords}: {error!r}")


def test_flags_take_no_other_values():
    for name in FUNCTIONS:
        function, given = getattr(ops, name), OWN.get(name)
        flags = [p.name for p in inspect.signature(function).parameters.values()
                 if isinstance(p.default, bool)]  # fmt: skip
        if flags and given is None:
            given = next(args for args in USUAL if accepted(function, args))
        for option in flags:
            for wrong in ("a", [1], 2.5, {}, int, np.ones(2)):
                with pytest.raises(MinimlError, match=rf"{option}="):
                    function(*given, **{option: wrong})


def accepted(function, args):
    try:
        function(*args)
    except (MinimlError, TypeError):
        return False
    return True


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.uniform(None), "Uniform got shape None; a shape is a tuple of ints"),
        (lambda: ops.normal((2, -1)), r"Normal got shape \(2, -1\); an extent is 0 or more"),
        (lambda: ops.randint(None, 0, 3), "randint got shape None; a shape is"),
        (lambda: ops.randint((2,), 0, True), "randint got low=0 and high=True; they are ints"),
        (lambda: ops.arange("a"), "Arange cannot count from 0 to a"),
        (lambda: ops.arange(ROWS), r"arange got shape \(2, 3\) for a number"),
        (lambda: ops.pad(ROWS, None), "Pad got padding None; give pairs"),
        (lambda: ops.pad(ROWS, 1, mode="circular"), "mode='circular'; .*its 'circular' 'wrap'"),
        (lambda: ops.pad(ROWS, 1, 2.0, "edge"), "got value=2.0 for mode='edge', which takes"),
        (lambda: ops.pad(ROWS[:0], 1, mode="wrap"), "axis 0 has no elements to go on with"),
        (lambda: ops.pad(ROWS, (-1, 0), mode="edge"), "numbers >= 0 per axis"),
        (lambda: ops.dropout(ROWS, "a"), "dropout got p='a'; a probability is in"),
        (lambda: ops.celu(ROWS, "a"), "celu got alpha='a'; expected a number > 0"),
        (lambda: ops.getitem(ROWS, [[1], [0, 1]]), "needs rows of equal length"),
        (lambda: ops.getitem(ROWS, object()), "getitem got <object .*> as an index; an index is"),
        (lambda: ops.getitem(ROWS, {}), "getitem got {} as an index; an index is made of ints"),
        (lambda: ops.slice(ROWS, "a", 2), "Slice got begin 'a', end 2 and strides None; these"),
        (lambda: ops.cond(True, 3, len), "Cond got on_true=3 of type int; give a function"),
        (lambda: ops.cond(True, len, 3), "Cond got on_false=3 of type int; give a function"),
        (lambda: ops.scan(3, 0.0, ROWS), "Scan got f=3 of type int; give a function"),
        (lambda: ops.scan(len, 0.0, length="a"), "Scan got length='a'; expected an int"),
        (lambda: ops.while_loop(3, len, 0), "WhileLoop got cond_fn=3 of type int; give a f"),
        (lambda: ops.while_loop(len, 3, 0), "WhileLoop got body_fn=3 of type int; give a f"),
        (lambda: ops.while_loop(len, len, 0, "a"), "got max_iterations='a'; expected an int"),
        (lambda: ops.while_loop(len, len, 0, -1), "got max_iterations=-1; expected an int >= 0"),
        (lambda: ops.full_like(ROWS, None), "Full got None to fill with; expected a number"),
    ],
)
def test_the_message_says_who_refuses_what(call, message):
    with pytest.raises(MinimlError, match=message):
        call()
