"""The symbols of a compiled unit: the addresses of its kernels, shared arrays and variables."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"),
     ("size", "<u8")]
)  # fmt: skip
_SECTION = struct.Struct("<IIQQQQIIQQ")
_OBJECT, _SYMTAB, _WRITABLE, _PROTECTED = 1, 2, 1, 3
# A static local in the names of C++: _ZZ, the function, E, the variable's name with its length.
_LOCAL = re.compile(r"_ZZ.*E(\d+)(\w+?)(?:_\d+|__\d+_)?$")


@dataclass(frozen=True, slots=True)
class Variable:
    """Memory of a unit: address in the file, bytes, the name in the source, __shared__ or not.

    constant: a kernel may only read it. guard: a flag for whether a static local has been
    constructed. GCC checks it before using an array of a class, such as __half, even if there is
    nothing to construct.
    """

    address: int
    nbytes: int
    name: str
    shared: bool
    constant: bool
    guard: bool

    @property
    def kind(self) -> str:
        """Its kind, as messages call it."""
        return "shared array" if self.shared else "constant" if self.constant else "variable"


@dataclass(frozen=True, slots=True)
class Symbols:
    """anchor: the address in the file of sim_anchor, from which the others are reached.

    code: the address range of its functions.
    """

    anchor: int
    code: tuple[int, int]
    kernels: tuple[str, ...]
    variables: tuple[Variable, ...]


def read(path: Path) -> Symbols:
    """The symbols of a shared library (64-bit ELF, little-endian)."""
    data = path.read_bytes()
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, start + i * size) for i in range(count)]
    section_names = sections[names_at]
    table = next(s for s in sections if s[1] == _SYMTAB)
    names = sections[table[6]]
    symbols = np.frombuffer(data, _SYMBOL, table[5] // _SYMBOL.itemsize, table[4])
    anchor, kernels, variables = 0, [], []
    for name_at, info, other, section, value, nbytes in symbols.tolist():
        begin = names[4] + name_at
        name = data[begin : data.index(b"\0", begin)].decode()
        if name == "sim_anchor":
            anchor = value
        elif name.startswith("sim_enter_"):
            kernels.append(name.removeprefix("sim_enter_"))
        elif info & 15 == _OBJECT and nbytes and 0 < section < count:
            if sections[section][2] & _WRITABLE and not name.startswith(("_DYNAMIC", "__")):
                variables.append(_variable(name, value, nbytes, other & 3 == _PROTECTED))
    text = next(s for s in sections if data.startswith(b".text\0", section_names[4] + s[0]))
    code = text[3], text[3] + text[5]
    return Symbols(anchor, code, tuple(sorted(kernels)), tuple(variables))


def _variable(symbol: str, address: int, nbytes: int, constant: bool) -> Variable:
    shared = symbol.startswith("_ZZ")
    found = _LOCAL.match(symbol) if shared else None
    name = found.group(2)[: int(found.group(1))] if found else symbol
    return Variable(address, nbytes, name, shared, constant, symbol.startswith("_ZGV"))
