"""Parts of CUDA C that the simulator lacks, each reported in a sentence before the compiler's
log."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HOST = (
    "NVRTC has no headers of the host either, so leave it out (mathematical functions, printf and "
    "assert are there without)"
)
# Headers that the simulator lacks: a pattern of their names, and what to use instead.
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
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
_MISSING = re.compile(r"fatal error: '?([^':]+)'?(?:: No such file| file not found)")

# Parts of the language: a pattern of their use, and what is wrong with it.
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
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATIC_SHARED = re.compile(r"\bstatic(\s+)(__shared__|__constant__)|(__shared__)(\s+)static\b")


def plain(code: str) -> str:
    """The text with `static __shared__` as `__shared__` alone, which means the same."""
    return _STATIC_SHARED.sub(r"\1\2\3\4", code)


def absent(code: str, log: str) -> list[str]:
    """Sentences about parts of CUDA C that a text which did not compile uses and the simulator
    lacks."""
    text = _COMMENT.sub(" ", code)
    return [*_headers(text, log), *_parts(text)]


def _headers(text: str, log: str) -> Iterator[str]:
    """The header that the compiler did not find, if the user's own text names it."""
    missing = _MISSING.search(log)
    if missing and missing[1] in _INCLUDE.findall(text):
        known = (advice for name, advice in _HEADERS if re.fullmatch(name, missing[1]))
        yield f"the simulator has no <{missing[1]}>: {next(known, 'put it into the text')}"


def _parts(text: str) -> Iterator[str]:
    return (f"the simulator has {what}" for pattern, what in _PARTS if re.search(pattern, text))
