"""Random functions in the neighbourhood of what each pass looks for: indices of rank 0, extents 0
and 1, operands that are shared or repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import miniml as ml
from miniml import ops

Drawn = tuple[Callable[..., Any], list[Any]]
Draw = Callable[[np.random.Generator], Drawn]


class Pool:
    """Values of one function, some of which are read again; `new` arrays are its arguments."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.args: list[Any] = []

    def new(self, *shape: int) -> int:
        """The number of a further argument."""
        self.args.append(self.rng.normal(size=shape))
        return len(self.args) - 1

    def whole(self, top: int, *shape: int) -> int:
        """The same for int64 indices, some of them negative."""
        self.args.append(self.rng.integers(-top, top, shape) if top else np.zeros(shape, np.int64))
        return len(self.args) - 1

    def one_of(self, *some: Any) -> Any:
        return some[self.rng.integers(len(some))]

    def often(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)


def replayed(p: Pool, body: Callable[[Pool, list[Any]], Any]) -> Drawn:
    """A function that draws the same each time it is traced."""
    seed = int(p.rng.integers(2**31))

    def fn(*args: Any) -> Any:
        return body(Pool(np.random.default_rng(seed)), list(args))

    return fn, p.args


def rows_by_one_matrix(rng: np.random.Generator) -> Drawn:
    """Products with one factor of rows that are read by scalars, vectors, matrices of indices, by
    slices, or computed; and sums of products over rows."""
    p = Pool(rng)
    steps, batch, width = p.one_of(1, 3, 4), p.one_of(0, 1, 2), p.one_of(1, 3)
    x, w = p.new(steps, batch, width), p.new(width, p.one_of(1, 2, width))
    at = [p.whole(steps), p.whole(steps), p.whole(steps, 1), p.whole(steps, 2)]

    among = p.one_of(range(6), (0,), (1,), (0, 1, 3), (2, 4, 5))  # some pass looks for one kind

    def body(p: Pool, v: list[Any]) -> Any:
        def rows() -> Any:
            kind = p.one_of(*among)
            i = int(p.rng.integers(steps))
            if kind == 0:
                return v[x][v[p.one_of(*at[:2])]]
            if kind == 1:
                return ops.gather(v[x], v[p.one_of(*at[:2])], 0)
            if kind == 2:
                return ops.reshape(ops.gather(v[x], v[p.one_of(*at[2:])], 0), (-1, width))
            if kind == 3:
                return v[x][i]
            if kind == 4:
                return ops.reshape(v[x][i : i + 2], (-1, width))
            return ops.tanh(v[x][i])

        made = [rows() for _ in range(p.rng.integers(2, 6))]
        made += [p.one_of(*made)] * p.often()  # one that is repeated
        turned = p.often(0.3)
        factor = ops.transpose(v[w]) if turned else v[w]
        products = [ops.matmul(r, factor, transpose_y=turned) for r in made]
        grown = [ops.matmul(ops.transpose(r), r) for r in made]
        return ops.concat(products, 0), sum(grown[1:], start=grown[0])

    return replayed(p, body)


def looked_up(rng: np.random.Generator) -> Drawn:
    """Products of rows of a small table, by indices of rank 0 to 2, and slices of them."""
    p = Pool(rng)
    table = p.new(p.one_of(1, 2, 3), p.one_of(1, 24, 24))
    rows, width = p.args[table].shape
    w = p.new(width, p.one_of(1, 40))
    shape = p.one_of((), (0,), (1,), (40,), (5, 8), (1, 40), (40,), (40,))
    i = p.whole(rows, *shape)

    def body(p: Pool, v: list[Any]) -> Any:
        x = ops.gather(v[table], v[i], 0)
        x = ops.reshape(x, (-1, width)) if p.often() or len(shape) == 0 else x
        y = ops.matmul(x, v[w])
        return y[..., :1], y[1:], ops.sum(y * y) if p.often() else ops.sum(y)

    return replayed(p, body)


def scaled_channels(rng: np.random.Generator) -> Drawn:
    """Convolutions and products, then scales and shifts of several shapes; some results are read
    twice."""
    p = Pool(rng)
    n, c, size = p.one_of(0, 1, 2), p.one_of(1, 2, 16), p.one_of(1, 4)
    image = p.often(0.7)
    x = p.new(n, 2, size, size) if image else p.new(n, 3)
    w = p.new(c, 2, 1, 1) if image else p.new(3, c)
    shapes = (
        [(c, 1, 1), (1, c, 1, 1), (), (1,), (1, 1, 1, 1)] if image else [(c,), (1, c), (), (1,)]
    )
    terms = [p.new(*p.one_of(*shapes)) for _ in range(4)]

    def body(p: Pool, v: list[Any]) -> Any:
        y = ops.conv2d(v[x], v[w]) if image else ops.matmul(v[x], v[w])
        seen = [y]
        for _ in range(p.rng.integers(1, 6)):
            t = v[p.one_of(*terms)]
            y = p.one_of(ops.add, ops.mul)(*((y, t) if p.often(0.7) else (t, y)))
            seen.append(y)
        return (y, p.one_of(*seen)) if p.often(0.3) else y

    return replayed(p, body)


def identities(rng: np.random.Generator) -> Drawn:
    """Chains of calls that may be taken out: neutral operands of several shapes, views of views,
    casts of casts, choices that are known."""
    p = Pool(rng)
    shape = p.one_of((), (1,), (0,), (3,), (1, 3), (3, 1), (2, 0), (2, 3), (2, 1, 3))
    x, y = p.new(*shape), p.new(*p.one_of(shape, shape[-1:], ()))

    def neutral(p: Pool, z: Any) -> Any:
        number = p.one_of(0.0, -0.0, 1.0, -1.0, 2.0)
        full = ops.full(p.one_of((), z.shape, (1, *z.shape), z.shape[-1:]), number, ml.float64)
        call = p.one_of(ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum, ops.pow, ops.div)
        if call in (ops.pow, ops.div):
            return call(ops.abs(z) + 1.0, full if number > 0 else full * 0.0 + 1.0)
        return call(*((z, full) if p.often(0.7) else (full, z)))

    def view(p: Pool, z: Any) -> Any:
        kind, rank = p.rng.integers(4), len(z.shape)
        if kind == 0 and rank:
            return ops.transpose(z, tuple(int(a) for a in p.rng.permutation(rank)))
        if kind == 1:
            return ops.reshape(z, p.one_of(z.shape, (1, *z.shape), (*z.shape, 1)))
        if kind == 2:
            return ops.broadcast_to(z, p.one_of(z.shape, (1, *z.shape), (2, *z.shape)))
        return ops.squeeze(z)

    def other(p: Pool, z: Any) -> Any:
        kind = p.rng.integers(6)
        if kind == 0:
            return ops.neg(ops.neg(z)) if p.often() else ops.neg(z)
        if kind == 1:
            for dtype in (p.one_of(ml.float64, ml.float32), p.one_of(ml.float32, ml.float64)):
                z = ops.cast(z, dtype)
            return ops.cast(z, ml.float64)
        if kind == 2:
            chosen = ops.full(p.one_of((), z.shape), p.often(), ml.bool_)
            return ops.select(chosen, z, p.one_of(z * 2.0, z))
        if kind == 3 and z.shape and z.shape[-1] == 1:
            return p.one_of(ops.max, ops.min, ops.prod)(z, -1, True)
        if kind == 4 and len(z.shape) == 2:
            equation = p.one_of("ij,kj->ik", "ij,kj->ki", "ji,jk->ik", "ij,ij->i", "ij,ij->ji")
            return ops.einsum(equation, z, z)
        if kind == 5 and len(z.shape) > 1:
            turn = ops.transpose(z, (*range(len(z.shape) - 2), len(z.shape) - 1, len(z.shape) - 2))
            product = ops.matmul(turn, z) if p.often() else ops.matmul(z, turn)
            return view(p, product)
        return ops.square(z) + z

    def body(p: Pool, v: list[Any]) -> Any:
        z, made = v[x], [v[y]]
        for _ in range(p.rng.integers(3, 9)):
            z = p.one_of(neutral, neutral, view, view, other)(p, z)
            z = z if len(z.shape) < 5 else ops.squeeze(ops.reshape(z, (-1, 1)))
            made.append(z)
        return z, p.one_of(*made)

    return replayed(p, body)


def repeated_calls(rng: np.random.Generator) -> Drawn:
    """The same and nearly the same calls, constants among them, some of whose results nobody
    reads."""
    p = Pool(rng)
    shape = p.one_of((), (1,), (0, 2), (2, 2), (3, 1, 3), (4, 3, 3))
    x = p.new(*shape)

    def call(p: Pool, z: Any) -> Any:
        axis = int(p.rng.integers(-1, len(z.shape))) if z.shape else None
        axes = () if not z.shape else None if axis == -1 else axis
        filled = z.shape and 0 not in z.shape
        return p.one_of(
            lambda: ops.sum(z, axes, p.often()),
            lambda: ops.mean(z * 1.0, axes, p.often()) if filled else ops.sum(z),
            lambda: ops.split(z, z.shape[0], 0)[0] if filled else z,
            lambda: ops.cumsum(z, 0) if z.shape else z,
            lambda: ops.max(z, axes) if filled else z,
            lambda: z + ops.arange(z.shape[-1], dtype=ml.float64) if z.shape else z,
            lambda: ops.linspace(0.0, 1.0, 3) * ops.full((3,), 2.0, ml.float64),
        )()

    def body(p: Pool, v: list[Any]) -> Any:
        z = ops.tanh(v[x])
        made = [call(p, z) for _ in range(8)]
        sums = [ops.sum(m) for m in made]
        kept = [s for s in sums if p.often(0.7)]
        return sum(kept, start=ops.sum(z) * ops.sum(z)), p.one_of(*made)

    return replayed(p, body)


def loops(rng: np.random.Generator) -> Drawn:
    """Scans of 0, 1 or several steps; what no step changes, what nobody reads, equal scans, and
    indices that each step checks."""
    p = Pool(rng)
    steps, width = p.one_of(1, 1, 3, 5), p.one_of(1, 2)
    h, xs, w = p.new(2, width), p.new(steps, 2, width), p.new(width, width)
    table, at = p.new(3, width), p.whole(2, steps, p.one_of(1, 2))

    def body(p: Pool, v: list[Any]) -> Any:
        fixed, kinds, reads = p.often(), p.rng.integers(0, 4, 2), p.often()

        def step(kind: int) -> Callable[[Any, Any], Any]:
            def one(c: Any, given: Any) -> Any:
                x, i = given
                own = ops.exp(v[w]) * 0.1
                new = ops.tanh(ops.matmul(c, ops.transpose(own)) + (v[xs][0] if fixed else x))
                read = ops.sum(ops.gather(v[table], i, 0) + ops.gather(new, i, 0), 0)
                return new + read * reads, (None, new, (c, new), ops.sum(new * read))[kind]

            return one

        ys, first = ops.scan(step(kinds[0]), v[h], (v[xs], v[at]))
        zs, second = ops.scan(step(kinds[1]), p.one_of(v[h], first), (v[xs], v[at]))
        return first, ys, second, zs

    return replayed(p, body)


def branches(rng: np.random.Generator) -> Drawn:
    """Branches that share operands, are equal, give a value twice, look at parts or reduce, alone,
    in each other and in scans."""
    p = Pool(rng)
    steps, width = p.one_of(1, 3), p.one_of(0, 1, 2, 40)
    h, xs, at = p.new(2, width), p.new(steps, 2, width), p.whole(2, steps)

    def body(p: Pool, v: list[Any]) -> Any:
        kinds, bounds = p.rng.integers(0, 6, 4), p.rng.normal(size=2)

        def taken(kind: int) -> Callable[..., Any]:
            return (
                lambda c, x, i: (c + x, ops.tanh(x)),
                lambda c, x, i: (c, c),
                lambda c, x, i: (x * 0.5, ops.sin(c) - x),
                lambda c, x, i: (c[::-1], ops.broadcast_to(x[:1], c.shape)),
                lambda c, x, i: (c * ops.sum(x), ops.gather(c, ops.reshape(i, (1,)), 0) * x),
                lambda c, x, i: ops.cond(ops.sum(x) > bounds[1], taken(0), taken(2), c, x, i),
            )[kind]

        def step(c: Any, given: Any) -> Any:
            x, i = given
            return ops.cond(ops.sum(c) > bounds[0], taken(kinds[0]), taken(kinds[1]), c, x, i)

        ys, last = ops.scan(step, v[h], (v[xs], v[at]))
        first = step(v[h], (v[xs][0], v[at][0]))
        return (
            ys,
            last,
            first,
            ops.cond(v[at][0] > 0, taken(kinds[2]), taken(kinds[3]), *first, v[at][0]),
        )

    return replayed(p, body)


def moved(rng: np.random.Generator) -> Drawn:
    """Indices, parts and views of what is computed or given, and additions where indices say."""
    p = Pool(rng)
    shape = p.one_of((3,), (1, 4), (4, 1), (3, 4), (2, 3, 4), (1, 1, 2))
    x = p.new(*shape)
    i = [p.whole(shape[0], *s) for s in ((), (1,), (3,), (2, 2), (0,))]

    def body(p: Pool, v: list[Any]) -> Any:
        z, made = v[x], []
        for _ in range(p.rng.integers(2, 6)):
            at, kind = v[p.one_of(*i)], p.rng.integers(7)
            if not z.shape or z.shape[0] != shape[0]:
                z = v[x] * p.one_of(1.5, 2.0)
            if kind == 0:
                made.append(ops.tanh(z)[at])
            elif kind == 1:
                made.append(ops.gather(z, at, 0) * 2.0)
            elif kind == 2:
                made += ops.split(ops.exp(z), z.shape[0], 0)
            elif kind == 3:
                made.append(ops.flip(ops.sin(z), p.one_of(0, -1)) * z)
            elif kind == 4:
                made.append(ops.scatter_add(z, at, ops.gather(z, at, 0)))
            elif kind == 5:
                made.append(z[::-1][::2] + 1.0)
            else:
                made.append(ops.roll(ops.cos(z), 1, 0) + ops.flip(z, 0))
            z = made[-1] if p.often() else z
        return made

    return replayed(p, body)


def turned_products(rng: np.random.Generator) -> Drawn:
    """Products whose heads are exchanged and flattened, as in attention, and images by
    convolutions with operands in other orders."""
    p = Pool(rng)
    b, h, n, k = p.one_of(1, 2), p.one_of(1, 3), p.one_of(1, 2, 5), p.one_of(1, 3, 4)
    x, y = p.new(b, h, n, k), p.new(b, h, k, n)

    def body(p: Pool, v: list[Any]) -> Any:
        z = ops.matmul(v[x], v[y])
        axes = p.one_of((0, 2, 1, 3), (0, 2, 1, 3), (0, 1, 3, 2), (1, 0, 2, 3), (0, 2, 3, 1))
        turned = ops.transpose(z, axes)
        flat = ops.reshape(turned, p.one_of((b, -1), (-1,), turned.shape))
        beside = p.one_of(lambda: z, lambda: turned * 2.0, lambda: ops.sum(flat))()
        return (flat, beside) if p.often() else ops.reshape(flat, (-1, 1))

    return replayed(p, body)


def images_beside_moves(rng: np.random.Generator) -> Drawn:
    """A convolution, a pool or a product, and beside it what is moved: flipped, rolled, exchanged,
    cut, stretched, gathered, summed up from the end."""
    p = Pool(rng)
    n, c, size = p.one_of(1, 2, 16), p.one_of(1, 2, 16), p.one_of(1, 4, 5)
    shape = n, c, size, size
    x, y, at = p.new(*shape), p.new(*shape), p.whole(size, size)
    weights = [p.new(c, c, *k) for k in ((1, 1), (3, 1), (3, 3))]
    weights.append(p.new(size, size))

    def body(p: Pool, v: list[Any]) -> Any:
        def move(z: Any) -> Any:
            return p.one_of(
                lambda: ops.flip(z, p.one_of(-1, 2, 1, 0, (-2, -1))),
                lambda: z[..., ::-1],
                lambda: z[:, ::-1, :, ::-1],
                lambda: ops.roll(z, 1, p.one_of(-1, 1)),
                lambda: ops.transpose(z, (0, 1, 3, 2)),
                lambda: ops.broadcast_to(p.one_of(z[..., :1], z[:, :1], z[..., -1:, :]), shape),
                lambda: ops.gather(z, v[at], p.one_of(2, 3)),
                lambda: ops.cumsum(z, p.one_of(-1, -2), reverse=True),
                lambda: ops.cumprod(z, -1, reverse=True),
                lambda: ops.pad(z[..., 1:], ((0, 0), (0, 0), (0, 0), (1, 0))),
                lambda: ops.concat([z[:, 1:], z[:, :1]], 1),
            )()

        def anchor(z: Any, k: int) -> Any:
            if k == 3:
                return ops.matmul(z, v[weights[3]])
            taps = weights[k], v[weights[k]].shape[2:]
            call = p.one_of(ops.conv2d, ops.conv_transpose2d)
            return call(z, v[taps[0]], padding=tuple(t // 2 for t in taps[1]))

        first = anchor(v[x], int(p.rng.integers(4)))
        beside = move(p.one_of(ops.cos(v[y]), v[y], ops.tanh(v[x])))
        z = p.one_of(ops.add, ops.mul)(first, beside)
        again = anchor(move(z), int(p.rng.integers(4))) if p.often(0.4) else ops.exp(-ops.abs(z))
        return (again, move(ops.sin(z))) if p.often() else again

    return replayed(p, body)


def composed_calls(rng: np.random.Generator) -> Drawn:
    """Softmaxes, norms and losses that are done by their parts, over axes of extent 1 and 0 too,
    one of them read twice."""
    p = Pool(rng)
    shape = p.one_of((1, 1), (3, 1), (1, 4), (0, 3), (3, 4), (2, 3, 4), (2, 1, 4), (2, 3, 2, 2))
    x, classes = p.new(*shape), shape[1]
    weight, shift = p.new(shape[-1]), p.new(shape[-1])
    of_channels = p.new(classes), p.new(classes)
    labels = p.whole(classes, shape[0])
    p.args[labels] %= classes

    def body(p: Pool, v: list[Any]) -> Any:
        def call(z: Any) -> Any:
            axis = int(p.rng.integers(-len(shape), len(shape)))
            axis = -1 if shape[axis] == 0 else axis
            loss, own = len(z.shape) == 2 and shape[0] > 0, [v[i] for i in of_channels]
            return p.one_of(
                lambda: ops.softmax(z, axis),
                lambda: ops.log_softmax(z * 3.0, axis),
                lambda: z - ops.logsumexp(z, axis, True),
                lambda: ops.layer_norm(z, v[weight], v[shift]),
                lambda: ops.batch_norm(z, *own, training=True)[0] if shape[0] > 1 else z,
                lambda: z + ops.cross_entropy(z, v[labels]) if loss else ops.softmax(z, -1),
            )()

        z = call(p.one_of(lambda: v[x], lambda: ops.sin(v[x]))())
        again = call(z)
        return (again, z) if p.often() else again

    return replayed(p, body)


def rows_along_any_axis(rng: np.random.Generator) -> Drawn:
    """Softmaxes, norms and sums along axes that are moved to the end for it, in loops that wait for
    a number or for a vector of the others; results in either order, some of them read twice."""
    p = Pool(rng)
    shape = p.one_of((2, 5, 3, 4), (3, 4, 5), (17, 3), (2, 3, 40), (1, 4, 1, 6))
    x, y = p.new(*shape), p.new(*shape)
    axis = int(p.rng.integers(len(shape)))
    scale, labels = p.new(shape[axis]), p.whole(shape[axis] + 1, *shape[:axis], *shape[axis + 1 :])

    def body(p: Pool, v: list[Any]) -> Any:
        def rows(z: Any) -> Any:
            z = ops.moveaxis(z, axis, -1)
            return ops.reshape(z, (-1, shape[axis])) if flat else z

        def back(z: Any) -> Any:
            ends = (*shape[:axis], *shape[axis + 1 :], shape[axis])
            return ops.moveaxis(ops.reshape(z, ends), -1, axis)

        def call(z: Any) -> Any:
            return p.one_of(
                lambda: ops.softmax(z, -1),
                lambda: z - ops.mean(z, -1, True),
                lambda: z * v[scale],
                lambda: z / (1.0 + ops.mean(ops.square(z))),
                lambda: z * ops.exp(-ops.mean(ops.square(z), tuple(range(z.ndim - 1)))),
                lambda: z - ops.reshape(ops.one_hot(v[labels], shape[axis], z.dtype), z.shape),
                lambda: z * rows(ops.sin(v[y])),
            )()

        flat = p.often()
        z = call(rows(ops.exp(v[x]) if p.often() else v[x]))
        again = call(z)
        total = ops.sum(z * again, tuple(range(z.ndim - 1))) if p.often() else ops.sum(again, -1)
        made = back(again) if p.often(0.7) else again
        return p.one_of((made, total), made, (made, back(z)), (back(call(again)), total))

    return replayed(p, body)


def placed_parts(rng: np.random.Generator) -> Drawn:
    """Sums of parts of a matrix, each with zeros around it: disjoint, side by side, overlapping,
    empty, with steps, along both axes, read twice, beside whole terms."""
    p = Pool(rng)
    shape = p.one_of((1, 1), (9, 3), (12, 4), (12, 1), (4, 0))
    x, y = p.new(*shape), p.new(*shape)

    def body(p: Pool, v: list[Any]) -> Any:
        def term() -> Any:
            axis = p.one_of(0, 0, 0, 1)
            begin, end = sorted(int(i) for i in p.rng.integers(0, shape[axis] + 1, 2))
            cut = [(0, extent, 1) for extent in shape]
            cut[axis] = begin, end, p.one_of(1, 1, 1, 1, 2)
            part = ops.sin(v[x][tuple(slice(*c) for c in cut)])
            return ops.SliceGrad(shape, *zip(*cut, strict=True))(part)

        total, terms = term(), [term() for _ in range(int(p.rng.integers(2, 9)))]
        for one in terms:
            total = p.one_of(ops.add(total, one), ops.add(one, total))
            total = total + v[y] if p.often(0.2) else total
        return (total, terms[0]) if p.often(0.3) else ops.exp(total)

    return replayed(p, body)


def shifted_parts(rng: np.random.Generator) -> Drawn:
    """Differences and products of neighbours along any axis, what is rolled, and parts of unequal
    extents that are joined, computed or not, some of them read twice."""
    p = Pool(rng)
    shape = p.one_of((1, 70), (5, 4), (3, 66), (2, 5, 70), (4, 66, 2), (66, 3))
    flat = p.often(0.3)  # then all of it is read through views
    x, y = (p.new(int(np.prod(shape))) if flat else p.new(*shape) for _ in range(2))

    def body(p: Pool, v: list[Any]) -> Any:
        def cut(z: Any, begin: int, end: int | None, axis: int) -> Any:
            return z[(slice(None),) * axis + (slice(begin, end),)]

        def move(z: Any, w: Any) -> Any:
            axis = int(p.rng.integers(len(shape)))
            first, rest = cut(z, 0, 1, axis), cut(w, 1, None, axis)
            few = shape[axis] < 2
            return p.one_of(
                lambda: ops.roll(z * p.one_of(1.0, -2.0), 1, axis),
                lambda: ops.concat([first, rest * cut(w, 0, -1, axis)], axis) if not few else z,
                lambda: ops.concat([-first, p.one_of(ops.exp, ops.abs)(rest)], axis),
                lambda: ops.concat([rest, first, first + 1.0], axis),
                lambda: ops.pad(rest - cut(z, 0, -1, axis), 1) if not few else w,
            )()

        given = [ops.reshape(v[i], shape) for i in (x, y)]
        z = move(*given)
        again = move(z * 0.5, z) if p.often() else ops.sin(z) * 2.0
        if p.often(0.3) and again.shape == shape:
            again = ops.concat([again, given[0]], int(p.rng.integers(len(shape))))
        return (again, z) if p.often(0.3) else again

    return replayed(p, body)


def products_of_bytes(rng: np.random.Generator) -> Drawn:
    """Products and convolutions of levels, of other integers, and what reads both."""
    p = Pool(rng)
    k, groups = p.one_of(12, 19), p.one_of(1, 2)
    x, w = p.new(3, k), p.new(k, p.one_of(2, 17))
    image, taps = p.new(1, 4, 5, p.one_of(3, 6)), p.new(2, 4 // groups, 2, 2)

    def body(p: Pool, v: list[Any]) -> Any:
        def levels(z: Any, dtype: Any = ml.int32) -> Any:
            kind, shift = p.one_of((ml.int8, 0), (ml.uint8, 128), (ml.int16, 0))
            made = ops.cast(
                ops.clip(ops.round(z * 40.0) + shift, shift - 128.0, 127.0 + shift), kind
            )
            return ops.cast(made, dtype) - p.one_of(0, 3, shift)

        known = p.rng.integers(-128, p.one_of(1, 128, 300), v[w].shape).astype(np.int32)
        product = ops.matmul(levels(v[x]), known if p.often() else levels(v[w]))
        filters = p.rng.integers(*p.one_of((-128, 127), (-9, 240)), v[taps].shape)
        filters = filters.astype(np.float64) + p.one_of(0.0, 0.0, 0.5)
        padding = p.one_of(((0, 0), (0, 0)), ((1, 0), (2, 1)))
        sums = ops.Conv2D((1, p.one_of(1, 2)), padding, groups=groups)(
            levels(v[image], ml.float64), filters
        )
        read = sums * 0.5 if p.often() else product * 2
        return product, ops.cast(sums, ml.int32), read, v[x] * 2.0  # which has a gradient

    return replayed(p, body)


NEIGHBOURS: dict[str, Draw] = {
    "fold": repeated_calls, "share": repeated_calls, "prune": repeated_calls,
    "simplify": identities, "loops": loops, "checks": loops, "scale": scaled_channels,
    "slices": placed_parts, "stack": rows_by_one_matrix, "lookups": looked_up, "movement": moved,
    "decompose": composed_calls, "turn": turned_products, "narrow": products_of_bytes,
    "placed": shifted_parts, "formats": images_beside_moves, "fuse": rows_along_any_axis,
    "selections": branches,
}  # fmt: skip
"""By the name of the pass; `legalize` cannot be left out, and every program runs it."""
