"""The compiler driver of the CUDA simulator: from CUDA C text to a cached shared library.

Parts: compilation, with the search for kernels in the text; explanations of a failed compilation
by the parts of CUDA C that the simulator lacks; the toolchain, with its cache and the runtime.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from ....core.errors import CompileError, DeviceError
from ...compiled import Cache, Job, Toolchain, content_of, digest
from ..text.source import INCLUDE_LINE

NAME = "kernel.cu"  # the name of the user's text in messages, unless it has #line directives


# --- Compilation ----------------------------------------------------------------------------------


# No host headers are included: NVRTC has none either.
_COMMON = (
    "-std=c++17", "-x", "c++", "-nostdinc", "-nostdinc++", "-fPIC", "-fvisibility=hidden",
    "-fno-strict-aliasing", "-fno-threadsafe-statics", "-fno-exceptions", "-fno-rtti",
    "-ffp-contract=off", "-fno-omit-frame-pointer",
)  # fmt: skip
_GCC_CHECKS = (
    "-fsanitize=thread", "--param=tsan-distinguish-volatile=1",
    "--param=tsan-instrument-func-entry-exit=0", "-fno-var-tracking",
    # A structure passed by value is copied in checked code, not by the call itself.
    "-fno-elide-constructors",
    "-Wmaybe-uninitialized", "-fsanitize=bounds-strict",  # of arrays at the end of a structure too
)  # fmt: skip
_CLANG_CHECKS = (
    "-fsanitize=thread", "-fsanitize=bounds", "-Wsometimes-uninitialized",
    "-mllvm", "-tsan-distinguish-volatile=1",
    "-mllvm", "-tsan-instrument-func-entry-exit=0",
    "-mllvm", "-tsan-instrument-read-before-write=1",
    "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset",
)  # fmt: skip
_UNDEFINED = (
    "-fsanitize=shift,signed-integer-overflow,alignment,float-cast-overflow,integer-divide-by-zero"
)
# -Og: accesses stay on their lines, no call is the last jump of a function, and compiling takes a
# third of the time that -O1 takes, provided that nothing is inlined by force (cuda_sim.h).
# DWARF 4: in version 5 the first #line directive does not name the file.
_FLAGS = {
    "fast": ("-O2", "-g1", "-gdwarf-4", "-fwrapv", "-w"),
    "check": ("-Og", "-g1", "-gdwarf-4", "-DSIM_CHECK", _UNDEFINED, "-Wuninitialized"),
}
# A second compilation, for its warnings about local variables; its code is not run. Where functions
# are inlined, g++ follows the members of structures. Without the passes that merge branches or
# loops its lines are right, and without those that replace an unset value by any constant it sees
# the variables that some paths leave unset.
_GCC_LOOK = (
    "-O2", "-fno-if-conversion", "-fno-ssa-phiopt", "-fno-tree-vectorize", "-fno-ipa-icf",
    "-fno-tree-ccp", "-fno-tree-vrp", "-fno-tree-fre", "-fno-tree-pre",
    "-Wuninitialized", "-Wmaybe-uninitialized", "-S", "-o", "/dev/null",
)  # fmt: skip
# Local variables that are read too early hold the same bytes each time, if the compiler can do so.
_REPEATABLE = "-ftrivial-auto-var-init=pattern"


def build(code: str, options: Sequence[str], mode: str) -> Path:
    """The shared library with the kernels of `code`, compiled unless the cache has it.

    CompileError: the text is not valid CUDA C; the message is the compiler's log with the user's
    lines.
    """
    passed = passed_options(options)
    flags = [*_COMMON, *_FLAGS[mode]]
    parts = code, repr(passed), *flags, *_GCC_CHECKS, *_CLANG_CHECKS, *_GCC_LOOK
    name = file_name(mode, *parts)
    kept = CACHE.find(name)
    if kept:
        return kept
    look: Sequence[str] = ()
    if mode == "check":
        clang = is_clang()
        flags += _CLANG_CHECKS if clang else _GCC_CHECKS
        flags += [_REPEATABLE] if takes(_REPEATABLE) else []
        look = [*_COMMON, *_GCC_LOOK] if not clang and _leaves_some_unset(code) else ()
    return _compile(name, code, passed, flags, look)


def passed_options(options: Sequence[str]) -> list[str]:
    """NVRTC's options that a C++ compiler takes, too: macros and folders."""
    passed = []
    for option in options:
        if option.startswith(("-D", "-U", "-I")):
            passed.append(option)
        elif option.startswith("--define-macro="):
            passed.append("-D" + option.split("=", 1)[1])
        elif option.startswith("--include-path="):
            passed.append("-I" + option.split("=", 1)[1])
    return passed


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CLASS = re.compile(r"\b(?:struct|class|union)\b[^;{}()]*\{[^{}]*\}")
# A local variable without a value: a type, names, and a semicolon.
_UNSET = re.compile(
    r"[;{})]\s*(?!(?:return|goto|typedef|using|else|case|struct|extern|template|namespace)\b)"
    r"(?:(?:const|volatile|unsigned|signed|long|short)\s+)*[A-Za-z_]\w*(?:<[^<>;]*>)?\s+"
    r"[A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*\s*;"
)


def _leaves_some_unset(code: str) -> bool:
    """True when a user's text may declare a local variable without giving it a value.

    The library's own texts, which have the prelude among their lines, are compiled by NVRTC in its
    tests."""
    own = code.rpartition("#line ")[2]
    plain = _CLASS.sub(";", _COMMENT.sub(" ", own))
    return "namespace miniml {" not in own and _UNSET.search(plain) is not None


_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+((?:__align__\s*\(\s*\w+\s*\)\s*)?)([\w:<> ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_DYNAMIC_DECLARED = r"\2* \3 = (\2*)sim_dynamic_shared;"


def _compile(
    name: str, code: str, passed: list[str], flags: list[str], look: Sequence[str]
) -> Path:
    text = _DYNAMIC_SHARED.sub(_in_one_line, plain(code))
    include = [f"-I{INCLUDE}", "-include", "cuda_sim.h"]
    library = runtime_library()
    # Without -nostdlib the sanitizers' own libraries would be linked; ours takes their place.
    link = ["-shared", "-nostdlib", "-x", "none", str(library), "-Wl,-rpath,$ORIGIN"]
    try:
        exports = "".join(f"SIM_KERNEL({k}, {bounds})\n" for k, bounds in kernels(code, passed))
        unit = f'#line 1 "{NAME}"\n{text}\n#line 1 "entries"\n{exports}'
        look = [*look, *passed, *include, "-"] if look else ()
        return compile_cached(name, [*flags, *passed, *include, "-", *link], unit, look)
    except CompileError as error:
        reasons = "".join(f" {reason};" for reason in absent(code, str(error)))
        raise CompileError(f"the CUDA source does not compile:{reasons}\n{error}") from None


_STATIC_SHARED = re.compile(r"\bstatic(\s+)(__shared__|__constant__)|(__shared__)(\s+)static\b")


def plain(code: str) -> str:
    """The text with `static __shared__` as `__shared__` alone, which means the same."""
    return _STATIC_SHARED.sub(r"\1\2\3\4", code)


def _in_one_line(found: re.Match[str]) -> str:
    """The declaration of dynamic shared memory as a pointer; later lines keep their numbers."""
    return found.expand(_DYNAMIC_DECLARED) + "\n" * found.group(0).count("\n")


# The keywords of CUDA are kept while kernels are searched.
_COMMON_NAMES = (
    "-std=c++17",
    "-nostdinc",
    "-D__CUDACC__",
    "-D__CUDACC_RTC__",
    "-D__CUDA_ARCH__=900",
)
_BOUNDS = r"__launch_bounds__\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
_KERNEL = re.compile(
    rf"(?:{_BOUNDS}\s*)?__global__\s+(?:static\s+|inline\s+)*(?:{_BOUNDS}\s*)?"
    rf"void\s+(?:{_BOUNDS}\s*)?(\w+)\s*\("
)
_NAMED_AS_IN_C = re.compile(r'extern\s+"C"\s*(?:\{.*)?$', re.DOTALL)


def kernels(code: str, passed: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The `extern "C"` kernels of a preprocessed text: (name, its launch bounds or 0)."""
    if "__global__" not in code:
        return []
    include = [f"-I{INCLUDE}"]
    plain = TOOLS.run(["-E", "-P", "-x", "c++", *_COMMON_NAMES, *passed, *include, "-"], code)
    found = []
    for match in _KERNEL.finditer(plain):
        # The GPU's driver knows other kernels only by mangled names.
        if _NAMED_AS_IN_C.search(plain, 0, match.start()):
            bounds = match.group(1) or match.group(2) or match.group(3) or "0"
            found.append((match.group(4), bounds))
    return list(dict(found).items())


# --- Parts of CUDA C that the simulator lacks -----------------------------------------------------


_HOST = (
    "NVRTC has no headers of the host either, so leave it out (mathematical functions, printf and "
    "assert are there without)"
)
# Headers that the simulator lacks: a pattern of their names, and a substitute.
_HEADERS = (
    (r"curand_kernel\.h", "draw with miniml.ops, or write Philox into the kernel"),
    (r"cub/cub\.cuh", "NVRTC compiles parts of cub only; include cub/block/block_reduce.cuh, "
     "cub/block/block_scan.cuh, cub/block/block_load.cuh, cub/block/block_store.cuh, "
     "cub/warp/warp_reduce.cuh or cub/warp/warp_scan.cuh"),
    (r"cub/.*", "of cub it has BlockReduce, BlockScan, BlockLoad, BlockStore, WarpReduce and "
     "WarpScan"),
    (r"thrust/.*", "write the loop, or use operations of miniml"),
    (r"cuda_pipeline\w*\.h|cuda/(barrier|pipeline)|cooperative_groups/memcpy_async\.h",
     "copy with plain loads and a barrier: it has no asynchronous copies"),
    (r"cuda/(std/)?atomic", "use atomicAdd and its like"),
    (r"cupy/.*|cuda/std/complex", "use float2 with functions of your own"),
    (r"cuda/.*", "of cuda::std it has limits, cstdint, cstddef, type_traits, utility and "
     "functional, of cuda functional"),
    (r"cuda_fp[468]\.h", "it knows half and bfloat16"),
    (r"(math|stdint|stdio|assert|stdlib|string|float|limits)\.h|c\w+|\w+", _HOST),
)  # fmt: skip
_MISSING = re.compile(r"fatal error: '?([^':]+)'?(?:: No such file| file not found)")

# Parts of the language: a pattern of their use, and the message.
_PARTS = (
    (r"\basm\s*(?:volatile\s*|__volatile__\s*)?\(\s*\"[^\"]", "no inline PTX (asm); use the "
     "intrinsic of the same name"),
    (r"\b(?:cudaTextureObject_t|cudaSurfaceObject_t|tex[123]D\w*|surf[123]D\w*|texture\s*<)",
     "no textures and surfaces; read the array itself"),
    (r"<<<", "no launches from a kernel (dynamic parallelism); launch from the host"),
    (r"\b__managed__\b", "no managed variables; pass an array"),
    (r"\b__cluster_dims__\b|\bthis_cluster\b|\bcluster_group\b|\bmap_shared_rank\b",
     "no clusters of blocks; use one block, or two launches"),
    (r"\b(?:malloc|free|new|delete)\b(?!\s*;)",
     "no memory from inside a kernel (malloc, new); pass a workspace"),
    (r"\bgrid\s*\.\s*sync\s*\(|\bthis_grid\s*\(\s*\)\s*\.\s*sync",
     "no barrier of a whole grid; end the kernel and launch another"),
    (r"\bmemcpy_async\b|\b__pipeline_\w+",
     "no asynchronous copies; copy with plain loads and a barrier"),
    (r"(?<!cuda::)\bstd::(?!move\b|forward\b)\w+",
     "no std beyond move and forward, like NVRTC; use max, min and their like, or cuda::std"),
    (r"\b__(?:shfl(?:_up|_down|_xor)?|ballot|any|all)\s*\(",
     "no functions of a warp without a mask, like CUDA since version 9; write "
     "__shfl_sync(mask, ...), __ballot_sync(mask, ...) and so on"),
)  # fmt: skip


def absent(code: str, log: str) -> list[str]:
    """Sentences about the parts of CUDA C that a failed text uses and the simulator lacks."""
    text = _COMMENT.sub(" ", code)
    return [*_headers(text, log), *_parts(text)]


def _headers(text: str, log: str) -> Iterator[str]:
    """The header that the compiler did not find, if the user's own text names it."""
    missing = _MISSING.search(log)
    if missing and missing[1] in INCLUDE_LINE.findall(text):
        known = (advice for name, advice in _HEADERS if re.fullmatch(name, missing[1]))
        yield f"the simulator has no <{missing[1]}>: {next(known, 'put it into the text')}"


def _parts(text: str) -> Iterator[str]:
    return (f"the simulator has {what}" for pattern, what in _PARTS if re.search(pattern, text))


# --- Toolchain and runtime ------------------------------------------------------------------------


HERE = Path(__file__).parent
INCLUDE = HERE / "include"
_RUNTIME = HERE / "runtime"
CACHE = Cache("cuda-sim", 256 << 20)  # bytes: some thousand units
TOOLS = Toolchain(
    language="C++",
    variable="CXX",
    names=("g++", "c++", "clang++"),
    user="device 'cuda-sim'",
    where="apt install g++",
    seconds=300.0,  # a large unit takes ten
)
_SIZE = 8  # bytes for the length of a log in a file


@cache
def is_clang() -> bool:
    """True when the compiler is clang, whose flags differ."""
    return "clang" in TOOLS.run(["--version"])


@cache
def identity() -> str:
    """The compiler's identity, for file names; without a compiler, that of the one that filled the
    cache.

    DeviceError if nothing can be compiled and nothing is cached.
    """
    if sys.platform != "linux":
        raise DeviceError(
            "device 'cuda-sim' runs on Linux only, on x86-64 and aarch64; elsewhere use a "
            "container, or WSL on Windows"
        )
    if TOOLS.find():
        return TOOLS.identity()
    runtime = CACHE.newest(f"runtime-{digest(_own_text(), *_RUNTIME_FLAGS)}-*.so")
    return runtime.stem.rpartition("-")[2] if runtime else TOOLS.identity()


@cache
def _own_text() -> str:
    """The simulator's own C++ text, on which compiled files depend besides their source."""
    own = sorted([*INCLUDE.rglob("*"), *_RUNTIME.glob("*")])
    texts = "".join(f"{p.name}\n{p.read_text()}" for p in own if p.is_file())
    return f"{platform.machine()}\n{texts}"


def file_name(kind: str, *parts: str) -> str:
    """The name of a compiled file, by its parts, the simulator's own texts and the compiler."""
    return f"{kind}-{digest(_own_text(), *parts)}-{identity()}.so"


def compile_cached(
    name: str, arguments: Sequence[str], text: str = "", look: Sequence[str] = ()
) -> Path:
    """Compile to a file of the cache; the log is appended to the library, see `log_of`.

    look: the arguments of a second compilation, of which only the log is kept, () for none.
    """

    def compiled(scratch: Path) -> bytes:
        ((content, log),) = TOOLS.libraries([Job(arguments, text)], scratch)
        with suppress(CompileError):  # the second one may fail: only its log counts
            log += TOOLS.log(look, text) if look else ""
        kept = log.encode()
        return content + kept + len(kept).to_bytes(_SIZE, "little")

    return CACHE.make(name, compiled)


def log_of(path: Path) -> str:
    """The compiler's log of a compiled file: warnings."""
    content = content_of(path)
    end = len(content) - _SIZE
    return content[end - int.from_bytes(content[end:], "little") : end].decode()


@cache
def takes(flag: str) -> bool:
    """True when this version of the compiler knows a flag."""
    try:
        TOOLS.run([flag, "-x", "c++", "-E", "-"])
    except CompileError:
        return False
    return True


_RUNTIME_FLAGS = (
    "-std=c++17", "-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions",
    "-fno-rtti", "-fno-omit-frame-pointer",
)  # fmt: skip


def runtime_library() -> Path:
    """The compiled runtime: fibers, barriers, the checker."""
    name = file_name("runtime", *_RUNTIME_FLAGS)
    # Units name it by its soname and find it beside them, wherever the folder is moved.
    flags = [*_RUNTIME_FLAGS, f"-Wl,-soname,{name}", str(_RUNTIME / "all.cpp")]
    return CACHE.find(name) or compile_cached(name, flags)
