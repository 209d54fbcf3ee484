"""The C text of native kernels, and how several become one translation unit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# What every unit begins with. `miniml_start` gives it the services of the process that loads it.
SERVICES = """\
#include <stdint.h>
#include <stddef.h>
#include <string.h>

/* parallel: calls part(data, i) for every i < parts, perhaps on several threads, and returns when
   all have returned. sgemm, dgemm: a Fortran BLAS. */
typedef struct {
  void (*parallel)(void (*part)(void *, long), void *data, long parts);
  void *sgemm, *dgemm;
} miniml_services;

static void miniml_serial(void (*part)(void *, long), void *data, long parts) {
  for (long i = 0; i < parts; ++i) part(data, i);
}
static miniml_services miniml = {miniml_serial, 0, 0};
void miniml_start(const miniml_services *given) { miniml = *given; }
"""
KERNEL = "KERNEL"  # stands for the kernel's own name in its text


class Source(NamedTuple):
    """One native kernel in C11, for one node: extents, strides and scalars are numbers in the text.

    text: defines `void KERNEL(char *const *at)`, where `at` holds the addresses of the inputs, the
    outputs and the workspace, in this order; every other name that it defines is static and begins
    with KERNEL, as in KERNEL_tile. shared: texts that it needs before it, each of which is in a
    unit once. without: features of the processor that the compiler must not use. The result does
    not depend on how many threads run the parts of `miniml.parallel`.
    """

    text: str
    shared: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's name in C: equal for equal texts."""
        whole = "\0".join((*self.without, *self.shared, self.text))
        return f"k{hashlib.sha256(whole.encode()).hexdigest()[:24]}"

    @property
    def definition(self) -> str:
        """The text under the kernel's name."""
        return self.text.replace(KERNEL, self.name)


def unit(sources: Iterable[Source]) -> str:
    """The text of one translation unit with all these kernels."""
    sources = list(dict.fromkeys(sources))
    shared = dict.fromkeys(text for source in sources for text in source.shared)
    return "\n".join([SERVICES, *shared, *(source.definition for source in sources)])


def addresses_of(arrays: Sequence[object]) -> list[int]:
    """The addresses of NumPy arrays, as a kernel gets them."""
    return [array.__array_interface__["data"][0] for array in arrays]  # type: ignore[attr-defined]
