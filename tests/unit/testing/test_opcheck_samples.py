"""opcheck on an OpInfo's samples alone, as the library's tests use it: each planted fault fails a
sound primitive, and the second witness of gradients sees those of gradients."""

import numpy as np
import pytest

from miniml import float64, ops
from miniml.errors import ArityError, ShapeError
from miniml.testing import OpInfo, Refusal, Sample, opcheck
from tests.faults import judging
from tests.faults.planted import PRODUCT, REFERENCE, Planted, bprop_of, planted
from tests.frame.gradients import check_gradients


def found(row):
    """What the check of every day finds, as (check, severity, message)."""
    report = judging.check_planted(row, budget=60, draws="samples")
    return [(f.check, f.severity, f.message) for f in report.findings]


def product(name, check="", **pieces):
    """x * y with pieces replaced, and an OpInfo."""
    return Planted(name, PRODUCT, check, **{"row": REFERENCE, **pieces})


def pulls(rule):
    return {"bprop": bprop_of(lambda self, x, y, out, dout: rule(x, y, dout))}


def all_but_one(x, y, *, out):
    x, y = np.broadcast_arrays(x, y)
    np.multiply(x.reshape(-1)[1:], y.reshape(-1)[1:], out=out.reshape(-1)[1:])


def careless(x, y, *, out):
    x *= 2
    np.multiply(x / 2, y, out=out, casting="unsafe")


def reads_late(x, y, *, out):
    out[...] = 1
    np.multiply(out, x, out=out)
    np.multiply(out, y, out=out)


def in_memory_order(x, y, *, out):
    x, y = np.broadcast_arrays(x, y)
    out.reshape(-1)[...] = x.ravel("K") * y.ravel("K")


def rough(x, y, *, out):
    np.multiply(x, y, out=out)
    out *= np.float32(1 + 1e-4)


def rounds_too_often(x, y, *, out):
    out[...] = (x.astype(np.float16) * y.astype(np.float16)).astype(out.dtype)


def tame(x, y, *, out):
    out[...] = np.nan_to_num(x * y)


def clips(x, y, *, out):
    out[...] = np.clip(x * y, -10, 10)


def longer(self, x, y):
    return (*x[:-1], x[-1] + 1) if x else x


class Drifting:
    calls = 0

    def __call__(self, x, y, *, out):
        self.calls += 1
        np.multiply(x, y * out.dtype.type(self.calls), out=out)


HALF_WIDE = (1.0, 1.01)
GRADIENTS = (
    product("Swapped", "^gradient$", **pulls(lambda x, y, d: (d * x, d * y))),
    product("Halved", "^gradient$", **pulls(lambda x, y, d: (d * y, 0.5 * d * x))),
    product("Negated", "^gradient$", **pulls(lambda x, y, d: (d * y, -d * x))),
    product("Missing", "^gradient$", **pulls(lambda x, y, d: (d * y, None))),
    product("WrongInOrderTwo", "^gradient$",
        **pulls(lambda x, y, d: (d * ops.stop_gradient(y), d * x))),
)  # fmt: skip
FAULTS = (
    *GRADIENTS,
    product("WrongWhereNarrow", "gradient in narrow dtypes",
        **pulls(lambda x, y, d: (d * y * HALF_WIDE[x.dtype != float64], d * x))),
    product("WidensItsGradient", "bprop",
        **pulls(lambda x, y, d: (ops.cast(d * y, "float64"), d * x))),
    product("LongerByOne", "rules", body={"infer_shape": longer}),
    product("AlwaysDouble", "rules|kernels|draws", body={"infer_dtype": lambda s, x, y: float64}),
    product("RoughProvider", "kernels", others=((rough, "f", {"provider": "other"}),)),
    product("RoundsTooOften", "kernels", others=((rounds_too_often, "f", {}),)),
    product("MemoryOrder", "layouts", fn=in_memory_order),
    product("AllButOne", "memory", fn=all_but_one),
    product("AddsToItsOutput", "memory", fn=lambda x, y, *, out: np.add(out, x * y, out=out)),
    product("WritesIntoItsInput", "memory", fn=careless),
    product("FalselyInPlace", "memory", fn=reads_late, options={"inplace": (0,)}),
    product("LosesNaN", "special", fn=tame),
    product("LosesInfinity", "special", fn=clips),
    product("LosesNaNUnseen", "special", fn=tame, row={"reference": None}, severity="warning"),
    product("Drifts", "repeat", fn=Drifting()),
    product("RefusesItsSamples", "draws", row={
        "reference": None,
        "samples": lambda rng, dtype: [Sample((np.ones(3, dtype), np.ones(2, dtype)))]}),
)  # fmt: skip


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.name)
def test_a_planted_fault_is_found_and_named(row):
    judgement = judging.judge_planted(row, budget=60, draws="samples")
    assert judgement.named, judgement.text


def test_a_sound_primitive_passes():
    assert not found(product("Sound", options={"inplace": (0, 1)}))


@pytest.mark.parametrize("row", GRADIENTS, ids=lambda row: row.name)
def test_the_second_witness_sees_a_wrong_gradient(row):
    says = r"the derivative by argument . is .*differences"
    with planted(row) as (_, info), pytest.raises(AssertionError, match=says):
        check_gradients(info, np.random.default_rng(0))


def test_the_second_witness_passes_a_sound_primitive():
    with planted(product("SoundToo")) as (_, info):
        check_gradients(info, np.random.default_rng(0))


REFUSED = np.ones(3), np.ones(2)


@pytest.mark.parametrize(
    ("text", "match", "complaint"),
    [
        (None, "shapes", "is accepted"),
        ("PoorlyRefused got two shapes", "ranks", "which lacks 'ranks'"),
        ("two shapes came", "shapes", "does not begin with the name"),
        ("", "", "is refused with ValueError"),
    ],
)
def test_a_poor_refusal_is_found(text, match, complaint):
    def refusing(self, x, y):
        try:
            return np.broadcast_shapes(x, y)
        except ValueError:
            if text:
                raise ShapeError(text) from None
            if text is None:
                return x
            raise

    refused = {"reference": None, "refused": (Refusal(REFUSED, match),)}
    row = product(
        "PoorlyRefused", fn=lambda x, y, *, out: out.fill(0), body={"infer_shape": refusing},
        row=refused,
    )  # fmt: skip
    messages = [text for check, _, text in found(row) if check == "refusals"]
    assert any(complaint in m for m in messages), messages


def test_samples_alone_need_an_opinfo():
    with pytest.raises(ArityError, match="draws='samples' and an OpInfo"):
        opcheck(ops.Exp(), draws="samples")


def test_samples_are_the_only_calls():
    seen = []

    def samples(rng, dtype):
        yield Sample((np.full(3, 0.5, dtype),))

    def reference(x):
        seen.append(x.shape)
        return np.exp(x)

    info = OpInfo(ops.Exp, samples, reference=reference, dtypes="fd")
    report = opcheck(ops.Exp(), info, draws="samples")
    assert set(seen) == {(3,)}
    assert report.calls["rules"] == 2
