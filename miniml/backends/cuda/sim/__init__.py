"""The CUDA simulator: CUDA C compiled by the machine's C++ compiler, run thread by thread.

    module.py   Module(code, options).function(name)(grid, block, args), with its arguments
    unit.py     from the text to a shared library in the cache folder; the compiler
    memory.py   settings; the stream; memory with poison and guard zones; the faults of kernels
    include/    CUDA C for a C++ compiler; runtime/: fibers, barriers, warps, the checker

Not modelled: the weak order of a GPU's memory beyond barriers and fences, shared memory used by
blocks of one cluster, inline PTX, textures, bank conflicts, registers, time.
Numbers differ from a GPU's in the last digits: no fused multiply-add unless written, denormals
kept, libm's functions. Blocks run one after the other, so a block that waits for a later one waits
forever: a fault when its time is over. `static` variables in device functions are taken for
__shared__ ones, and unsigned integers wrap unnoticed.
"""
