"""Convolution and pooling written out window by window in float64, for any number of axes."""

import numpy as np


def counts(extents, kernel, stride, padding, dilation):
    rows = zip(extents, kernel, stride, padding, dilation, strict=True)
    return [(n + sum(p) - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in rows]


def window(place, kernel, stride, dilation):
    """The slices of the padded axes that the window at `place` covers."""
    rows = zip(place, kernel, stride, dilation, strict=True)
    return tuple(slice(r * s, r * s + d * (k - 1) + 1, d) for r, k, s, d in rows)


def padded(x, padding, value=0.0):
    return np.pad(x.astype(np.float64), ((0, 0), (0, 0), *padding), constant_values=value)


def conv(x, w, stride, padding, dilation, groups):
    kernel, wide = w.shape[2:], padded(x, padding)
    out = np.zeros((len(x), len(w), *counts(x.shape[2:], kernel, stride, padding, dilation)))
    for place in np.ndindex(*out.shape[2:]):
        seen = wide[:, :, *window(place, kernel, stride, dilation)]
        for o in range(len(w)):
            first = o // (len(w) // groups) * w.shape[1]
            part = seen[:, first : first + w.shape[1]]
            out[:, o, *place] = (part * w[o]).reshape(len(x), -1).sum(1)
    return out


def conv_transpose(x, w, stride, padding, dilation, groups, output_padding):
    kernel, extents = w.shape[2:], x.shape[2:]
    rows = [*zip(extents, kernel, stride, dilation, strict=True)]
    spans = [(n - 1) * s + d * (k - 1) + 1 for n, k, s, d in rows]
    outer, inner = w.shape[1], x.shape[1] // groups
    wide = np.zeros((len(x), outer * groups, *np.add(spans, output_padding)))
    for place in np.ndindex(*extents):
        to = window(place, kernel, stride, dilation)
        for c in range(x.shape[1]):
            first = c // inner * outer
            share = x[:, c, *place].reshape(-1, *(1,) * (1 + len(kernel))) * w[c]
            wide[:, first : first + outer, *to] += share
    ends = zip(padding, wide.shape[2:], strict=True)
    return wide[:, :, *(slice(before, n - after) for (before, after), n in ends)]


def last_begins_inside(extents, kernel, stride, padding, dilation):
    """How many windows there are if a last one may reach beyond the padding behind."""
    found = []
    for n, k, s, (before, after), d in zip(extents, kernel, stride, padding, dilation, strict=True):
        starts = [0]  # counted from the padding ahead
        while starts[-1] + d * (k - 1) + 1 < n + before + after and starts[-1] + s < n + before:
            starts.append(starts[-1] + s)
        found.append(len(starts))
    return found


def pool(x, kernel, stride, padding, dilation, ceil_mode, reduce):
    """reduce(elements, how many lie in x or its padding) of each window of each channel; elements
    are those in x."""
    how = last_begins_inside if ceil_mode else counts
    out = np.zeros((*x.shape[:2], *how(x.shape[2:], kernel, stride, padding, dilation)))
    around = [(before, after + 99) for before, after in padding]
    wide = padded(x, around, np.nan)
    known = np.zeros(wide.shape[2:], bool)
    pairs = zip(x.shape[2:], padding, strict=True)
    known[tuple(slice(0, n + before + after) for n, (before, after) in pairs)] = True
    for place in np.ndindex(*out.shape[2:]):
        at = window(place, kernel, stride, dilation)
        seen = wide[:, :, *at].reshape(*x.shape[:2], -1)
        inside = ~np.isnan(seen[0, 0])
        out[:, :, *place] = reduce(seen[:, :, inside], known[at].sum())
    return out
