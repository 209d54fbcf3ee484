"""NVIDIA's run-time compiler by itself: compiles CUDA C on a machine without GPU or driver.

It is a wheel (pip install 'miniml[sim]'). Programs are compiled as cupy compiles them for
`RawModule`, so what passes here compiles on a GPU too; and the assembler's report lists the
registers and the memory that each kernel needs.
"""

import ctypes
import importlib.util
import re
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import CompileError, DeviceError
from .text.source import OPTIONS, STATIC_SHARED

ARCHITECTURES = (75, 80, 90, 100, 120)

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_WARNING = re.compile(r"^.*\bwarning\s*[#:].*", re.MULTILINE | re.IGNORECASE)
_OF_CCCL = re.compile(r'cannot open source file "(?:nv/|cub/|cuda/|thrust/)')


class Usage(NamedTuple):
    """The resources of one kernel: a thread's registers, bytes of stack, and bytes of registers
    spilled to and loaded from memory; a block's bytes of static shared memory."""

    kernel: str
    registers: int
    shared: int
    stack: int
    stores: int
    loads: int


class Compiled(NamedTuple):
    """A text that compiles: its kernels, and the lines of the log that warn."""

    kernels: tuple[Usage, ...]
    warnings: tuple[str, ...]

    def faults(self) -> list[str]:
        """The faults of a text that compiles: warnings, spilled registers, and more static shared
        memory than a block may have."""
        found = list(self.warnings)
        for k in self.kernels:
            if k.stores or k.loads:
                found.append(
                    f"{k.kernel} spills registers: {k.stores} bytes of stores, {k.loads} of loads"
                )
            if k.shared > STATIC_SHARED:
                found.append(
                    f"{k.kernel} has {k.shared} bytes of static shared memory; a block may have "
                    f"{STATIC_SHARED}"
                )
        return found


class Nvrtc:
    """The compiler in one shared library, with the folder of CUDA's headers."""

    def __init__(self, library: Path, headers: Path):
        for part in library.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(part))  # NVRTC looks for it by name later, among loaded libraries only
        self.path, self.headers = library, headers
        self._library = ctypes.CDLL(str(library))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    @property
    def version(self) -> str:
        """Major and minor version, as in "13.0"."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    @property
    def architectures(self) -> list[int]:
        """The architectures it compiles for."""
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", found)
        return list(found)

    @cached_property
    def identity(self) -> str:
        """The compiler and its headers, on which a result depends besides text and options."""
        sizes = sorted((p.name, p.stat().st_size) for p in self.headers.glob("*.h*"))
        return f"NVRTC {self.version} {self.path.stat().st_size} {sizes}"

    def options(self, architecture: int) -> tuple[str, ...]:
        """The options that cupy passes for a GPU of that architecture: 90 stands for sm_90."""
        return (
            *OPTIONS, f"-I{self.headers}", "-ftz=true", f"-arch=sm_{architecture}",
            "--device-as-default-execution-space",
        )  # fmt: skip

    def compile(self, text: str, architecture: int, *more: str) -> Compiled:
        """The resources of a text's kernels, compiled with cupy's options and `more`.

        CompileError, with the compiler's log, for a text that does not compile; DeviceError for an
        architecture that the compiler does not know.
        """
        if architecture not in self.architectures:
            raise DeviceError(
                f"NVRTC {self.version} compiles for {', '.join(map(str, self.architectures))}; "
                f"got {architecture}"
            )
        program = ctypes.c_void_p()
        source = text.encode()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernel.cu", 0, None, None)
        try:
            given = (*self.options(architecture), "--ptxas-options=-v", *more)
            flags = (ctypes.c_char_p * len(given))(*[flag.encode() for flag in given])
            failed = self._library.nvrtcCompileProgram(program, len(given), flags)
            log = self._log(program)
            if failed:
                faults = Compiled(tuple(usages(log)), ()).faults()  # an error of the assembler's
                message = "; ".join(faults) or self._library.nvrtcGetErrorString(failed).decode()
                if _OF_CCCL.search(log):
                    message += (
                        "; cooperative_groups.h, cub and cuda/std need CCCL's headers: "
                        f"pip install 'nvidia-cuda-cccl=={self.version.partition('.')[0]}.*'"
                    )
                raise CompileError(
                    f"a text does not compile for sm_{architecture} (NVRTC {self.version}): "
                    f"{message}\n{log}"
                )
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))
        return Compiled(tuple(usages(log)), tuple(_WARNING.findall(log)))

    def _log(self, program: ctypes.c_void_p) -> str:
        size = ctypes.c_size_t()
        self._call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self._call("nvrtcGetProgramLog", program, log)
        return log.value.decode()

    def _call(self, name: str, *args: Any) -> None:
        failed = getattr(self._library, name)(*args)
        if failed:
            message = self._library.nvrtcGetErrorString(failed).decode()
            raise DeviceError(f"{name} of NVRTC failed: {message}")


def usages(log: str) -> list[Usage]:
    """The assembler's report: one kernel after the other, each with the functions it calls."""
    found = []
    _, *parts = _ENTRY.split(log)
    for name, message in zip(parts[::2], parts[1::2], strict=True):
        frames = [tuple(map(int, numbers)) for numbers in _FRAME.findall(message)]
        stack, stores, loads = map(sum, zip(*frames, strict=True)) if frames else (0, 0, 0)
        registers, shared = _number(_REGISTERS, message), _number(_SHARED, message)
        found.append(Usage(name, registers, shared, stack, stores, loads))
    return found


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0


@cache
def folders_of_cccl() -> tuple[str, ...]:
    """Options for the headers of cub, cuda/std and cooperative groups: of their own wheel, or of
    cupy's; () where neither is installed."""
    for package, parts in (
        ("nvidia", ("*/include/cccl",)),
        ("cupy", [f"_core/include/cupy/_cccl/{p}" for p in ("libcudacxx", "cub", "thrust")]),
    ):
        spec = importlib.util.find_spec(package)
        roots = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
        found = [p for root in roots for part in parts for p in sorted(root.glob(part))]
        if found:
            return tuple(f"-I{p}" for p in found)
    return ()


@cache
def compiler() -> Nvrtc:
    """The compiler that is installed as a wheel; DeviceError, with the remedy, if absent."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in spec.submodule_search_locations or ()] if spec else []
    libraries = sorted(p for root in roots for p in root.glob("*/lib/libnvrtc.so.*"))
    headers = [p.parent for root in roots for p in root.glob("*/include/cuda_fp16.h")]
    if not libraries or not headers:
        raise DeviceError(
            "NVIDIA's compiler is not installed; pip install 'miniml[sim]' (for Linux on x86-64 "
            "and aarch64)"
        )
    return Nvrtc(libraries[-1], headers[-1])
