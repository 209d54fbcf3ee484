"""From CUDA C text to a shared library: rewriting, flags, and the kernels found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ....errors import CompileError
from . import dialect, toolchain

NAME = "kernel.cu"  # the name of the user's text in messages, unless it has #line directives

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
# Local variables that are read too early hold the same bytes each time, if the compiler can do so.
_REPEATABLE = "-ftrivial-auto-var-init=pattern"
# No host headers are included: NVRTC has none either.
_COMMON = (
    "-std=c++17", "-x", "c++", "-nostdinc", "-nostdinc++", "-fPIC", "-fvisibility=hidden",
    "-fno-strict-aliasing", "-fno-threadsafe-statics", "-fno-exceptions", "-fno-rtti",
    "-ffp-contract=off", "-fno-omit-frame-pointer",
)  # fmt: skip

# The keywords of CUDA are kept while names are searched.
_COMMON_NAMES = (
    "-std=c++17",
    "-nostdinc",
    "-D__CUDACC__",
    "-D__CUDACC_RTC__",
    "-D__CUDA_ARCH__=900",
)

_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+((?:__align__\s*\(\s*\w+\s*\)\s*)?)([\w:<> ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_DYNAMIC_DECLARED = r"\2* \3 = (\2*)sim_dynamic_shared;"
_BOUNDS = r"__launch_bounds__\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
_KERNEL = re.compile(
    rf"(?:{_BOUNDS}\s*)?__global__\s+(?:static\s+|inline\s+)*(?:{_BOUNDS}\s*)?"
    rf"void\s+(?:{_BOUNDS}\s*)?(\w+)\s*\("
)
_NAMED_AS_IN_C = re.compile(r'extern\s+"C"\s*(?:\{.*)?$', re.DOTALL)


def passed_options(options: Sequence[str]) -> list[str]:
    """The options for NVRTC that a C++ compiler takes, too: macros and folders."""
    passed = []
    for option in options:
        if option.startswith(("-D", "-U", "-I")):
            passed.append(option)
        elif option.startswith("--define-macro="):
            passed.append("-D" + option.split("=", 1)[1])
        elif option.startswith("--include-path="):
            passed.append("-I" + option.split("=", 1)[1])
    return passed


def build(code: str, options: Sequence[str], mode: str) -> Path:
    """The shared library with the kernels of `code`, compiled unless the cache has it.

    CompileError: the text is not valid CUDA C; the message is the compiler's log with the user's
    lines.
    """
    passed = passed_options(options)
    flags = [*_COMMON, *_FLAGS[mode]]
    parts = code, repr(passed), *flags, *_GCC_CHECKS, *_CLANG_CHECKS
    name = toolchain.file_name(mode, *parts)
    kept = toolchain.CACHE.find(name)
    if kept:
        return kept
    if mode == "check":
        flags += _CLANG_CHECKS if toolchain.is_clang() else _GCC_CHECKS
        flags += [_REPEATABLE] if toolchain.takes(_REPEATABLE) else []
    return _compile(name, code, passed, flags)


def _compile(name: str, code: str, passed: list[str], flags: list[str]) -> Path:
    text = _DYNAMIC_SHARED.sub(_in_one_line, dialect.plain(code))
    include = [f"-I{toolchain.INCLUDE}", "-include", "cuda_sim.h"]
    library = toolchain.runtime_library()
    # Without -nostdlib the sanitizers' own libraries would be linked; ours takes their place.
    link = ["-shared", "-nostdlib", "-x", "none", str(library), "-Wl,-rpath,$ORIGIN"]
    try:
        exports = "".join(f"SIM_KERNEL({k}, {bound})\n" for k, bound in kernels(code, passed))
        unit = f'#line 1 "{NAME}"\n{text}\n#line 1 "entries"\n{exports}'
        return toolchain.build(name, [*flags, *passed, *include, "-", *link], unit)
    except CompileError as error:
        reasons = "".join(f" {reason};" for reason in dialect.absent(code, str(error)))
        raise CompileError(f"the CUDA source does not compile:{reasons}\n{error}") from None


def _in_one_line(found: re.Match[str]) -> str:
    """The declaration of dynamic shared memory as a pointer; the lines below keep their numbers."""
    return found.expand(_DYNAMIC_DECLARED) + "\n" * found.group(0).count("\n")


def kernels(code: str, passed: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The `extern "C"` kernels of a text, after its macros: (name, its launch bound or 0)."""
    if "__global__" not in code:
        return []
    include = [f"-I{toolchain.INCLUDE}"]
    plain = toolchain.TOOLS.run(
        ["-E", "-P", "-x", "c++", *_COMMON_NAMES, *passed, *include, "-"],
        code,
    )
    found = []
    for match in _KERNEL.finditer(plain):
        # The GPU's driver knows other kernels only by mangled names.
        if _NAMED_AS_IN_C.search(plain, 0, match.start()):
            bound = match.group(1) or match.group(2) or match.group(3) or "0"
            found.append((match.group(4), _first(bound)))
    return list(dict(found).items())


def _first(expressions: str) -> str:
    """The first of the expressions separated by commas outside parentheses."""
    depth = 0
    for i, c in enumerate(expressions):
        depth += (c in "(<") - (c in ")>")
        if c == "," and depth == 0:
            return expressions[:i]
    return expressions
