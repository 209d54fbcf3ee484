"""Row programs in CUDA C whose neighbouring elements are moved together."""

from __future__ import annotations

from collections.abc import Sequence

from ...expressions.rows import Load, RowProgram, Store
from .loops import Each, Text, used

BYTES = 16  # that a thread moves at once
_MOST = 8  # elements of a pack, because compilers unroll each of them


class Packed(Text):
    """pack: how many elements are moved together; 0 where arrays do not have them side by side."""

    def __init__(self, program: RowProgram):
        super().__init__(program)
        self.wide = _wide(program)
        sizes = [program.arrays[a].dtype.itemsize for a in self.wide]
        self.pack = min(_MOST, BYTES // max(sizes)) if sizes else 0

    def packs(self) -> str:
        """How many packs of neighbours a row has, or all rows together; 0 where they are not
        aligned."""
        program, extents = self.program, self.program.extents
        apart = [n for a in self.wide for n in program.arrays[a].strides[:-1]]
        apart += [s.offset for s in program.statements() if isinstance(s, Load)]
        parts = [s.strides for s in program.statements() if isinstance(s, Load) and s.strides]
        apart += [n for strides in parts for n in strides[:-1]]
        whole = len(extents) == 1 or extents[-1] % self.pack == 0
        count = self.packed_elements() // self.pack if whole else 0
        return self.number("packs", 0 if any(n % self.pack for n in apart) else count)

    def strip(self, statements: Sequence[Each], axes: Sequence[int], name: str) -> list[str]:
        """The statements for the elements of a pack, of which `f` is the first. name: that of the
        number of an element."""
        last, width = len(self.program.extents) - 1, self.pack
        before: list[str] = []
        inside: list[str] = []
        after: list[str] = []
        for s, each in statements:
            if isinstance(s, Load) and each:
                near = self.program.along(s)[-1]
                element = f"a{s.array}[{self.loaded_from(s, True)}]"
                pack = f"Pack<T{s.array}, {width}>"
                one = f"T{s.array} p{s.value} = {element}"
                whole = f"{pack} p{s.value} = *(const {pack}*)&{element}"
                before.append(f"const {whole if near else one};")
                inside.append(self.set(s.value, f"load(p{s.value}{'.at[v]' * bool(near)})"))
            elif isinstance(s, Store) and each:
                pack = f"Pack<T{s.array}, {width}>"
                index = self.index(("array", s.array), self.program.arrays[s.array].strides)
                before.append(f"{pack} q{s.array};")
                inside.append(f"q{s.array}.at[v] = store<T{s.array}>(v{s.of});")
                after.append(f"*({pack}*)(a{s.array} + {index}) = q{s.array};")
            else:
                inside.append(self.statement(s, each))
        inside = used({f"x{last}": "begin + v", name: "f + v"}, inside)
        lines = [*before, "#pragma unroll", f"for (int v = 0; v < {width}; ++v) {{"]
        lines += [*(f"  {line}" for line in inside), "}", *after]
        return self.located(axes, "f", used({"begin": f"x{last}"}, lines))

    def packed_elements(self) -> int:
        """How many elements follow one another where there are packs."""
        return self.length


def _wide(program: RowProgram) -> list[int]:
    """The arrays whose elements along the last axis are neighbours; none where those of another one
    are further apart."""
    found: dict[int, None] = {}
    for s in (s for p in program.passes for s in p.elements):
        if isinstance(s, (Load, Store)):
            along = program.along(s)
            if along[-1] not in (0, 1) or (isinstance(s, Store) and not along[-1]):
                return []
            found |= {s.array: None} if along[-1] else {}
    return [*found]
