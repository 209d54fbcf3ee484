"""Lives of kernel objects: prepared before anything runs, released once on every way out; what they
make of constants is made once."""

import gc
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import miniml as ml
from miniml import Kernel, Primitive, kernel, ops, view_kernel
from miniml.backends.kernel import _made
from miniml.errors import DeclarationError, KernelNotFoundError

EVENTS = []


class Noted(Kernel):
    """Copies its input, and notes what happens to it."""

    def prepare(self, node):
        super().prepare(node)
        self.held = node.attrs["tag"]
        EVENTS.append(f"prepare {self.held}")
        if self.held == "bad":
            raise DeclarationError("this kernel takes no more than 3-D")

    def launch(self, inputs, workspace, outputs, stream):
        EVENTS.append(f"launch {self.held}")
        outputs[0][...] = inputs[0]

    def release(self):
        EVENTS.append(f"release {self.held}")


class Tagged(Primitive):
    tag: str

    def infer_shape(self, x):
        return x

    def infer_dtype(self, x):
        return x


kernel("Tagged", "cpu", "f->f")(Noted)
X = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def fresh():
    gc.collect()
    EVENTS.clear()


class TestFailures:
    @pytest.mark.parametrize("count", [1, 3])
    def test_a_refusal_in_prepare_comes_before_anything_runs(self, count):
        tags = [f"{i}" for i in range(count)]

        def fn(x):
            for tag in (*tags, "bad", "after"):
                x = Tagged(tag)(x) + 1
            return x

        run = ml.jit(fn)
        for _ in range(2):
            EVENTS.clear()
            with pytest.raises(DeclarationError, match="no more than 3-D") as caught:
                run(X)
            prepared = [f"prepare {t}" for t in (*tags, "bad")]
            assert [*prepared, "release bad", *(f"release {t}" for t in tags[::-1])] == EVENTS
            del caught

    def test_one_that_no_kernel_can_serve(self):
        with pytest.raises(KernelNotFoundError):
            ml.jit(lambda x: (Tagged("a")(x), Tagged("b")(ops.cast(x, "int64"))))(X)
        assert not [e for e in EVENTS if e.startswith("launch")]

    def test_eagerly(self):
        with pytest.raises(DeclarationError, match="no more than 3-D"):
            Tagged("bad")(ml.Tensor(X))
        assert EVENTS == ["prepare bad", "release bad"]

    def test_a_release_that_raises_does_not_hide_why(self, monkeypatch):
        monkeypatch.setattr(Noted, "release", lambda self: self.missing)
        with pytest.raises(DeclarationError, match="no more than 3-D"):
            Tagged("bad")(ml.Tensor(X))


class TestEnds:
    def test_of_a_program(self):
        run = ml.jit(lambda x: Tagged("a")(x) + Tagged("b")(x))
        run(X)
        run(X)
        assert [e for e in EVENTS if "launch" not in e] == ["prepare a", "prepare b"]
        gc.disable()
        try:
            del run
            assert sorted(EVENTS[-2:]) == ["release a", "release b"]
        finally:
            gc.enable()

    def test_of_the_eager_cache(self):
        Tagged("a")(ml.Tensor(X))
        kernel("LifeElsewhere", "cpu", "f->f")(np.exp)  # call plans are made anew
        ops.add(ml.Tensor(X), 1.0)
        gc.collect()
        assert EVENTS[-1] == "release a"

    def test_of_a_view(self):
        class Row(Primitive):
            def infer_shape(self, x):
                return x[1:]

            def infer_dtype(self, x):
                return x

        @view_kernel("Row", "cpu")
        class View(Kernel):
            def prepare(self, node):
                EVENTS.append("prepare")
                self.call = lambda x: x[0]

            def release(self):
                EVENTS.append("release")

        row = Row()
        assert row(ml.Tensor(X)).shape == row(ml.Tensor(X)).shape == (3,)
        assert EVENTS == ["prepare"]

    def test_at_the_exit_the_last_prepared_first(self):
        code = """
        import numpy as np, miniml as ml
        from miniml import Kernel, Primitive, kernel, ops

        class Named(Primitive):
            tag: str
            def infer_shape(self, x): return x
            def infer_dtype(self, x): return x

        @kernel("Named", "cpu", "f->f")
        class Held(Kernel):
            def prepare(self, node):
                self.tag = node.attrs["tag"]
            def launch(self, inputs, workspace, outputs, stream):
                outputs[0][...] = inputs[0]
            def release(self):
                print("release", self.tag, ops.add(ml.Tensor(1.0), 1.0).item(), flush=True)
                if self.tag == "b":
                    raise RuntimeError("in release")

        run = ml.jit(lambda x: Named("b")(Named("a")(x)))
        x = ml.Tensor(np.ones(3, np.float32))
        run(x), Named("eager")(x)
        print("end", flush=True)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stdout.splitlines() == [
            "end", "release eager 2.0", "release b 2.0", "release a 2.0"
        ], done.stderr  # fmt: skip
        assert done.stderr.count("RuntimeError: in release") == 1
        assert done.returncode == 0


class Both(Primitive):
    """Two inputs, the shape of the first: what runs for empty ones is the kernel's to say."""

    def infer_shape(self, x, y):
        return x

    def infer_dtype(self, x, y):
        return x


class AnyEmpty(Kernel):
    """It does not run where an input is empty."""

    def can_run(self, node):
        return all(0 not in spec.shape for spec in node.inputs)

    def launch(self, inputs, workspace, outputs, stream):
        EVENTS.append("launch")
        outputs[0][...] = 7


class Always(AnyEmpty):
    def can_run(self, node):
        return True


class Usual(AnyEmpty):
    def can_run(self, node):
        return super(AnyEmpty, self).can_run(node)


kernel("Both", "cpu", "ff->f")(AnyEmpty)
kernel("Both", "cpu", "ff->f", provider="always")(Always)
kernel("Both", "cpu", "ff->f", provider="usual")(Usual)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
class TestEmpty:
    @pytest.mark.parametrize(
        ("provider", "launched"), [("miniml", []), ("usual", []), ("always", ["launch"])]
    )
    def test_outputs(self, provider, launched, compiled):
        call = ml.jit(Both()) if compiled else Both()
        with ml.context(providers=provider):
            out = call(ml.Tensor(np.zeros((0, 3), "f")), ml.Tensor(np.zeros((0, 3), "f")))
        assert (out.shape, EVENTS) == ((0, 3), launched)

    def test_inputs_whose_outputs_have_elements(self, compiled):
        call = ml.jit(Both()) if compiled else Both()
        x, y = ml.Tensor(X), ml.Tensor(np.zeros((0, 3), "f"))
        with pytest.raises(
            DeclarationError,
            match=r"Both kernel ff->f \(miniml\) does not run for float32\[2, 3\], "
            r"float32\[0, 3\], its can_run says, and nothing else would fill float32\[2, 3\]",
        ):
            call(x, y)
        with ml.context(providers="usual"):
            assert call(x, y).tolist() == [[7] * 3] * 2


class Packs(Kernel):
    """A product whose second factor is turned once, if it is a constant."""

    def prepare(self, node):
        super().prepare(node)
        self.turned = node.constant(1, turned)
        assert node.constant(0, turned) is None

    def launch(self, inputs, workspace, outputs, stream):
        x, w = inputs
        np.matmul(x, (turned(w) if self.turned is None else self.turned).T, out=outputs[0])


def turned(w):
    EVENTS.append("turned")
    assert not w.flags.writeable
    return np.ascontiguousarray(w.T)


class TurnedProduct(Primitive):
    def infer_shape(self, x, w):
        return x[0], w[1]

    def infer_dtype(self, x, w):
        return x


kernel("TurnedProduct", "cpu", "ff->f")(Packs)


class TestConstants:
    def test_are_made_once_and_shared_by_programs(self):
        w = ml.Tensor(np.arange(6, dtype=np.float32).reshape(3, 2))
        first = ml.jit(lambda x: TurnedProduct()(x, w) + 1)
        second = ml.jit(lambda x: TurnedProduct()(x * 2, w), dynamic={"x": (0,)})
        for n in (2, 4):
            x = np.ones((n, 3), np.float32)
            np.testing.assert_allclose(first(x).asnumpy(), x @ w.asnumpy() + 1)
            np.testing.assert_allclose(second(x).asnumpy(), 2 * x @ w.asnumpy())
        assert EVENTS == ["turned"]
        made = [
            k.instance.turned
            for run, n in ((first, 2), (first, 4), (second, 4))
            for k in run.compiled(np.ones((n, 3), np.float32)).program.prepared.values()
            if isinstance(k.instance, Packs)
        ]
        assert len(made) == 3
        assert all(m is made[0] for m in made)

    def test_what_varies_is_none(self):
        w = ml.Tensor(np.ones((3, 2), np.float32))
        TurnedProduct()(ml.Tensor(X), w)
        ml.jit(TurnedProduct())(X, w)
        assert EVENTS == ["turned"] * 2  # at the launches

    def _product(self):
        w = ml.Tensor(np.ones((3, 2), np.float32))
        return lambda x: TurnedProduct()(x, w)

    def test_it_goes_with_the_constant(self):
        before = len(_made)
        run = ml.jit(self._product())
        run(X)
        assert len(_made) == before + 1
        del run
        gc.collect()
        assert len(_made) == before


def test_sizes_by_name():
    class WithScratch(Noted):
        def workspace(self):
            return self.node.inputs[0], self.node.outputs[0]

    kernel("Tagged", "cpu", "f->f", provider="scratch")(WithScratch)
    with ml.context(providers="scratch"):
        (row,) = ml.explain(Tagged("a"), X).rows
    assert row.sizes.inputs == row.sizes.outputs == (24,)
    assert row.sizes.workspace == (24, 24)
